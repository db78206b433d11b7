"""HyGenICC: congestion marks from the fabric, token buckets at the source. What it claims.

Its curves are lost; what is judged is what its text says. Cuts 0 (the paper's law), 1 and 2 stand next to each other.
Bounds in brackets are those of a fabric in real time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from experiments.evaluation.claims import Claim, ClaimVerdict, Measured, Paper, ResultTable, all_of, show
from experiments.runs import reference_hygenicc
from experiments.scenarios.hygenicc.fig2 import AFTER, ALONE, BOTH, CUTS, LINK_BPS, SECOND
from experiments.scenarios.hygenicc.shares import OF_VNS, STEADY

LAW, _, BEST = CUTS
NAMES = ("cut 0", "cut 1", "cut 2")
FIG2 = ("hygenicc-fig2-tcp", "hygenicc-fig2-udp")
FIG3 = {4: ("hygenicc-fig3-4-tcp", "hygenicc-fig3-4-udp"), 8: ("hygenicc-fig3-8-tcp", "hygenicc-fig3-8-udp")}
SENDERS = dict.fromkeys(FIG2, 2) | {name: count for count, names in FIG3.items() for name in names}
FIGURES = tuple(SENDERS)


def _link_bps(measured: Measured) -> float:
    return LINK_BPS * measured.scale


def _shares(measured: Measured, experiments: Iterable[str], control: str, phase: str = BOTH) -> list[float]:
    """Return the tagged sender's rate as a part of an equal share of the link, of all seeds."""
    return [
        SENDERS[name] * rates[-1] / _link_bps(measured)
        for name in experiments
        for rates in measured.values(name, control, "delivered_bps_by_sender", phase).values()
    ]


def _uses(measured: Measured, experiments: Iterable[str], control: str, phase: str = BOTH) -> list[float]:
    """Return the part of the link that is used, of all seeds."""
    found = (measured.values(name, control, "received_bps", phase).values() for name in experiments)
    return [rate / _link_bps(measured) for rates in found for rate in rates]


def _jain(measured: Measured, experiments: Iterable[str], control: str) -> list[float]:
    found = (measured.values(name, control, "delivered_bps_by_sender", BOTH).values() for name in experiments)
    return [sum(r) ** 2 / (len(r) * sum(one * one for one in r)) for rates in found for r in rates]


def _least(values: list[float], bound: float) -> bool | None:
    return min(values) >= bound if values else None


def _range(values: Sequence[float], form: str = "percent") -> str:
    """Return the least and the most of several experiments and seeds: their mean would hide who has less."""
    least, most = (show([one], form) for one in (min(values), max(values))) if values else ("-", "-")
    return least if least == most else f"{least.removesuffix(' %')} to {most}"


def _each(
    values_of: Callable[[str], list[float]], form: str = "percent", told: Callable[[Sequence[float], str], str] = show
) -> str:
    """Return a measure under each cut, as text."""
    return "; ".join(f"{name}: {told(values_of(cut), form)}" for name, cut in zip(NAMES, CUTS, strict=True))


def _uncontrolled(measured: Measured) -> ClaimVerdict:
    udp = _shares(measured, FIG2[1:], "none")
    holds = max(udp) < 0.30 if udp else None
    return ClaimVerdict(f"{show(udp)} of its share", holds, show(_shares(measured, FIG2[1:], BEST)))


def _static(measured: Measured) -> ClaimVerdict:
    shares = _shares(measured, FIG2, "static")
    idle = _uses(measured, FIG2, "static", ALONE) + _uses(measured, FIG2, "static", AFTER)
    if not shares or not idle:
        return ClaimVerdict("-", None)
    off = 0.03 if measured.real_time else 0.02
    holds = 0.95 <= min(shares) <= max(shares) <= 1.05 and all(abs(use - 0.5) <= off for use in idle)
    best = _range(_uses(measured, FIG2, BEST, ALONE) + _uses(measured, FIG2, BEST, AFTER))
    return ClaimVerdict(f"{_range(shares)} of its share; {_range(idle)} of the link used by one alone", holds, best)


def _target(control: str) -> Callable[[Measured], ClaimVerdict]:
    """The criteria of the cut that is recommended; of the paper's law at 55 ms only Jain's index and use are judged."""

    def judge(measured: Measured) -> ClaimVerdict:
        best = (0.80, 0.95, 0.88, 0.93) if measured.real_time else (0.85, 0.97, 0.90, 0.95)
        share, jain, use, alone = best if control == BEST else (0.0, 0.95, 0.83, 0.0)

        def idle(cut: str) -> list[float]:
            return [use for phase in (ALONE, AFTER) for use in _uses(measured, FIG2, cut, phase)]

        holds = all_of(
            _least(_shares(measured, FIGURES, control), share),
            _least(_jain(measured, FIGURES, control), jain),
            _least(_uses(measured, FIGURES, control), use),
            _least(idle(control), alone),
        )

        def told(cut: str) -> str:
            parts = (
                _range(_shares(measured, FIGURES, cut)),
                _range(_jain(measured, FIGURES, cut), "plain"),
                _range(_uses(measured, FIGURES, cut)),
                _range(idle(cut)),
            )
            return "share {}, Jain {}, use {}, alone {}".format(*parts)

        return ClaimVerdict(told(control), holds, told(BEST))

    return judge


def _within(experiments: Iterable[str], phase: str) -> Callable[[Measured], ClaimVerdict]:
    def judge(measured: Measured) -> ClaimVerdict:
        most = 0.20 if measured.real_time else 0.15
        shares = _shares(measured, experiments, LAW, phase)
        holds = all(abs(share - 1.0) <= most for share in shares) if shares else None
        found = _each(lambda cut: _shares(measured, experiments, cut, phase), told=_range)
        return ClaimVerdict(found, holds, _range(_shares(measured, experiments, BEST, phase)))

    return judge


def _ratios(measured: Measured, experiment: str, control: str) -> list[float]:
    found = measured.values(experiment, control, "delivered_bps_by_sender", STEADY).values()
    return [one / other for one, other in found]


def _parallel(measured: Measured) -> ClaimVerdict:
    name = "hygenicc-shares-parallel"
    law, none = _ratios(measured, name, LAW), _ratios(measured, name, "none")
    holds = max(law) <= (1.25 if measured.real_time else 1.15) if law else None
    found = f"eight get {_each(lambda cut: _ratios(measured, name, cut), 'plain')} times as much as one"
    return ClaimVerdict(
        f"{found} (no control: {show(none, 'plain')})", holds, show(_ratios(measured, name, BEST), "plain")
    )


def _weights(measured: Measured) -> ClaimVerdict:
    name = "hygenicc-shares-weights"
    law = _ratios(measured, name, LAW)
    off = 0.3 if measured.real_time else 0.2
    holds = all(abs(ratio - 2.0) <= off for ratio in law) if law else None
    found = f"ratio {_each(lambda cut: _ratios(measured, name, cut), 'plain')}"
    return ClaimVerdict(found, holds, show(_ratios(measured, name, BEST), "plain"))


def _swings(measured: Measured, experiments: Iterable[str], control: str) -> list[float]:
    """Return the standard deviation of the tagged sender's rates, as a part of an equal share, of all seeds."""
    return [
        SENDERS[name] * swings[-1] / _link_bps(measured)
        for name in experiments
        for swings in measured.values(name, control, "swing_bps_by_sender", BOTH).values()
    ]


def _unstable(measured: Measured) -> ClaimVerdict:
    none, best = (_swings(measured, FIG2[:1], control) for control in ("none", BEST))
    holds = min(none) > (2.0 if measured.real_time else 3.0) * max(best) if none and best else None
    return ClaimVerdict(f"{_range(none)} of its share", holds, _range(best))


def _smooth(measured: Measured) -> ClaimVerdict:
    best = _swings(measured, FIGURES, BEST)
    holds = max(best) <= (0.25 if measured.real_time else 0.15) if best else None
    return ClaimVerdict(_each(lambda cut: _swings(measured, FIGURES, cut), told=_range), holds, _range(best))


def _utilised(measured: Measured) -> ClaimVerdict:
    def longest(control: str) -> list[int]:
        return [one for name in FIGURES for one in measured.values(name, control, "idle_longest").values()]

    best = longest(BEST)
    holds = max(best) <= (8 if measured.real_time else 5) if best else None
    worst = {name: max(longest(cut), default="-") for name, cut in zip(NAMES, CUTS, strict=True)}
    found = "; ".join(f"{name}: at most {most}" for name, most in worst.items())
    return ClaimVerdict(f"{found} intervals in a row", holds, f"at most {max(best)}" if best else "-")


def _pairs(measured: Measured) -> ClaimVerdict:
    def free(control: str) -> list[float]:
        found = measured.values("hygenicc-shares-pairs", control, "received_bps_by_receiver", STEADY)
        sent = measured.values("hygenicc-shares-pairs", control, "delivered_bps_by_sender", STEADY)
        return [found[seed][1] / (_link_bps(measured) - (sent[seed][0] - found[seed][1])) for seed in found]

    values = free(BEST)
    text = f"the free destination gets {_each(free)} of what is free; one rate for the VN: {show(free(OF_VNS))}"
    return ClaimVerdict(text, _least(values, 0.95), show(values))


CLAIMS = (
    Claim(
        "uncontrolled", "V, fig. 2a", "without control TCP starves next to UDP (below 30 % of its share)", _uncontrolled
    ),
    Claim(
        "unstable",
        "V, fig. 2a",
        "nor is it stable next to TCP: it swings three times (twice) as much as with cut 2",
        _unstable,
    ),
    Claim("static", "V, fig. 2c", "static limits: perfect shares, and idle capacity is lost", _static),
    Claim(
        "law",
        "V, fig. 2e",
        "the target rate and work conserving, whoever competes (the paper's law: Jain at least 0.95, use 83 %)",
        _target(LAW),
    ),
    Claim(
        "best",
        "V, fig. 2e",
        "the same, as close as cut 2 comes (share 85 %, Jain 0.97, use 90 %, alone 95 %)",
        _target(BEST),
    ),
    Claim("four", "V, fig. 3", "four senders: 250 Mb/s each, within 15 % (Open vSwitch: 20 %)", _within(FIG3[4], BOTH)),
    Claim("eight", "V, fig. 3", "eight senders: 125 Mb/s each, within 15 % (20 %)", _within(FIG3[8], BOTH)),
    Claim(
        "second",
        "V",
        "a newcomer has its share within a second: within 15 % (20 %) over the next one",
        _within(FIGURES, SECOND),
    ),
    Claim("utilised", "V", "the link is full all the time: below 80 % for 5 intervals (8) at most (cut 2)", _utilised),
    Claim("smooth", "V", "rates hardly swing: the tagged one's by 15 % (25 %) of its share at most (cut 2)", _smooth),
    Claim("connections", "I", "nobody gains by more connections", _parallel),
    Claim("weights", "II", "weights set the shares: 2 to 1", _weights),
    Claim("pairs", "-", "aim: a congested destination does not slow down another one", _pairs),
)

REFERENCE_S = 1.0
HEADS = ("law", "senders", "competitors", "use of the link", "Jain", "newcomer, of its share", "alone again", "lost")


def laws(measured: Measured) -> list[list[str]]:
    """Return what each cut does with 2, 4 and 8 senders, next to the printed algorithm at its own pace."""
    rows = [
        _law(measured, name, cut, title)
        for name in FIGURES
        for title, cut in zip(NAMES, CUTS, strict=True)
        if measured.runs(name, cut)
    ]
    if not rows:
        return []
    return [list(HEADS), *rows, *(_reference(senders) for senders in sorted(set(SENDERS.values())))]


def _law(measured: Measured, name: str, control: str, title: str) -> list[str]:
    """A row: over 7 to 10 s, the last over 12 to 15 s, losses over all of the run."""
    return [
        title,
        str(SENDERS[name]),
        name.rpartition("-")[2].upper(),
        show(_uses(measured, [name], control)),
        show(_jain(measured, [name], control), "plain"),
        show(_shares(measured, [name], control)),
        show(_uses(measured, [name], control, AFTER)),
        measured.shown(name, control, "lost_share"),
    ]


def _reference(senders: int) -> list[str]:
    """The printed algorithm with its slips mended, frame by frame: greedy sources, the last comes after 1 s."""
    constants = reference_hygenicc.PaperConstants()
    share_bps = constants.capacity_bps / senders
    sources = [reference_hygenicc.Source(constants, constants.capacity_bps, share_bps) for _ in range(senders)]
    link = reference_hygenicc.Bottleneck(constants)
    sources[-1].active = False
    reference_hygenicc.run(sources, link, REFERENCE_S)
    sources[-1].active = True
    reference_hygenicc.run(sources, link, REFERENCE_S, REFERENCE_S)
    lost, ticks = link.lost, reference_hygenicc.run(sources, link, REFERENCE_S, 2 * REFERENCE_S)
    frames = [sum(tick.frames[number] for tick in ticks) for number in range(senders)]
    jain = sum(frames) ** 2 / (senders * sum(one * one for one in frames))
    newcomer = senders * frames[-1] / sum(frames)
    shown = [f"{100 * reference_hygenicc.used(ticks, constants):.1f} %", f"{jain:.3f}", f"{100 * newcomer:.1f} %"]
    return ["printed, 0.5 ms", str(senders), "greedy", *shown, "-", f"{100 * (link.lost - lost) / sum(frames):.1f} %"]


TABLES = (ResultTable("The law at 55 ms, and as printed at 0.5 ms", laws),)

paper = Paper("hygenicc", "HyGenICC", CLAIMS, best=BEST, best_title="HyGenICC, cut 2", tables=TABLES)
