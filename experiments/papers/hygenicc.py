"""HyGenICC: congestion marks from the fabric, token buckets at the source. Its claims.

Its curves are lost; the statements of its text are judged. Ours is the default: cut 0, the paper's form with constants
for 55 ms; cuts 1 and 2 are shown next to it. As published is the printed listing at its own pace, packet by packet
(``experiments/scenarios/hygenicc/packets.py``). For statements without a figure it is cut 0 with the printed constants
scaled to 55 ms, limiters of VNs and starts at the whole Capacity Share. Bounds in brackets are those of a fabric in
real time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from experiments.evaluation.claims import (
    Aim,
    Claim,
    ClaimVerdict,
    Judge,
    Measured,
    Outcome,
    Paper,
    Published,
    ResultTable,
    above,
    all_of,
    show,
    within,
)
from experiments.scenarios.hygenicc.fig2 import AFTER, ALONE, BOTH, CUTS, LINK_BPS, SECOND, SOONER, published
from experiments.scenarios.hygenicc.packets import COMPETITORS, QUEUED, packets_name
from experiments.scenarios.hygenicc.shares import RATE_PER_VN, STEADY

LAW, _, BEST = CUTS
NAMES = ("cut 0", "cut 1", "cut 2")
FIG2 = ("hygenicc-fig2-tcp", "hygenicc-fig2-udp")
FIG3 = {4: ("hygenicc-fig3-4-tcp", "hygenicc-fig3-4-udp"), 8: ("hygenicc-fig3-8-tcp", "hygenicc-fig3-8-udp")}
SENDERS = dict.fromkeys(FIG2, 2) | {name: count for count, names in FIG3.items() for name in names}
FIGURES = tuple(SENDERS)
TWO = {ecn: tuple(packets_name(2, competitor, ecn) for competitor in COMPETITORS) for ecn in (False, True)}
MORE = {count: tuple(packets_name(count, competitor, False) for competitor in COMPETITORS) for count in (4, 8)}
PACKETS = (*TWO[False], *MORE[4], *MORE[8])
"""The experiments of figures 2 and 3 packet by packet; those with ECN, 2(b), (d) and (f), are TWO[True]."""
PRINTED = "hygenicc"
"""In packet-by-packet runs this is the listing with its own constants."""
SENDERS |= dict.fromkeys((*TWO[False], *TWO[True]), 2) | {name: count for count, all_ in MORE.items() for name in all_}
PUBLISHED = "published"
"""Stands for the printed constants, which depend on the number of senders (``fig2.published``)."""
CONTROLS = {name: published(SENDERS[name]) for name in FIGURES}


def _link_bps(measured: Measured) -> float:
    return LINK_BPS * measured.scale


def _as_run(experiment: str, control: str) -> str:
    """Return the control that was run for one of CUTS or PUBLISHED."""
    return CONTROLS.get(experiment, published(2)) if control == PUBLISHED else control


def _shares(measured: Measured, experiments: Iterable[str], control: str, phase: str = BOTH) -> list[float]:
    """Return the tagged sender's rate as a part of an equal share of the link, of all seeds."""
    return [
        SENDERS[name] * rates[-1] / _link_bps(measured)
        for name in experiments
        for rates in measured.values(name, _as_run(name, control), "delivered_bps_by_sender", phase).values()
    ]


def _uses(measured: Measured, experiments: Iterable[str], control: str, phase: str = BOTH) -> list[float]:
    """Return the used part of the link, of all seeds."""
    found = (measured.values(name, _as_run(name, control), "received_bps", phase).values() for name in experiments)
    return [rate / _link_bps(measured) for rates in found for rate in rates]


def _jain(measured: Measured, experiments: Iterable[str], control: str) -> list[float]:
    found = (
        measured.values(name, _as_run(name, control), "delivered_bps_by_sender", BOTH).values() for name in experiments
    )
    return [sum(r) ** 2 / (len(r) * sum(rate_bps * rate_bps for rate_bps in r)) for rates in found for r in rates]


def _each_within(
    values_of: Callable[[str], Sequence[float]],
    experiments: Iterable[str],
    low: float = -math.inf,
    high: float = math.inf,
) -> Outcome:
    """Return whether a measure is within bounds in each experiment: an interval is over the seeds of one."""
    return all_of(*(within(values_of(name), low, high) for name in experiments))


def _range(values: Sequence[float], form: str = "percent") -> str:
    """Return the range of a measure over experiments and seeds: a mean would hide the lowest."""
    least, most = (show([bound], form) for bound in (min(values), max(values))) if values else ("-", "-")
    return least if least == most else f"{least.removesuffix(' %')} to {most}"


def _each(
    values_of: Callable[[str], list[float]],
    form: str = "percent",
    summary: Callable[[Sequence[float], str], str] = show,
) -> str:
    """Return a measure under each cut, as text."""
    return "; ".join(f"{name}: {summary(values_of(cut), form)}" for name, cut in zip(NAMES, CUTS, strict=True))


def _below(experiments: Sequence[str], most: float) -> Judge:
    """Judge whether the tagged sender has less than a part of its share without control, next to any competitor."""

    def judge(measured: Measured) -> ClaimVerdict:
        holds = _each_within(lambda name: _shares(measured, [name], "none"), experiments, high=most)
        shown = _range(_shares(measured, experiments, "none"))
        return ClaimVerdict(f"{shown} of its share", holds, _range(_shares(measured, FIG2[1:], BEST)))

    return judge


def _ecn(measured: Measured) -> ClaimVerdict:
    tcp, dctcp, udp = (_shares(measured, [name], "none") for name in TWO[True])
    holds = all_of(within(tcp, 0.8, 1.2), within(dctcp, high=0.7), within(udp, high=0.3))
    return ClaimVerdict(f"next to TCP {show(tcp)}, DCTCP {show(dctcp)}, UDP {show(udp)} of its share", holds)


def _static(experiments: Sequence[str]) -> Judge:
    """Return a judge of static limits: a sender keeps its share, and alone it uses half of the link."""

    def judge(measured: Measured) -> ClaimVerdict:
        shares = _shares(measured, experiments, "static")
        idle = [use for phase in (ALONE, AFTER) for use in _uses(measured, experiments, "static", phase)]
        off = 0.03 if measured.real_time else 0.02
        holds = all_of(
            _each_within(lambda name: _shares(measured, [name], "static"), experiments, 0.95, 1.05),
            *(
                _each_within(
                    lambda name, phase=phase: _uses(measured, [name], "static", phase),  # type: ignore[misc]
                    experiments,
                    0.5 - off,
                    0.5 + off,
                )
                for phase in (ALONE, AFTER)
            ),
        )
        best = _range(_uses(measured, FIG2, BEST, ALONE) + _uses(measured, FIG2, BEST, AFTER))
        return ClaimVerdict(
            f"{_range(shares)} of its share; {_range(idle)} of the link used by a single sender", holds, best
        )

    return judge


Bounds = tuple[float, float, float, float]
LAW_BOUNDS: Bounds = (0.0, 0.95, 0.83, 0.0)
"""Least share of the tagged sender, Jain's index, link use, and link use by one sender alone."""


def _target(control: str, bounds: Bounds | None = None, figures: Sequence[str] = FIGURES) -> Judge:
    """Judge target rate and work conservation; ``bounds`` None: those of the recommended cut, wider in real time."""

    def judge(measured: Measured) -> ClaimVerdict:
        best = (0.80, 0.95, 0.88, 0.93) if measured.real_time else (0.85, 0.97, 0.90, 0.95)
        share, jain, use, alone = bounds or best

        def idle(names: Iterable[str], cut: str) -> list[float]:
            return [use for phase in (ALONE, AFTER) for use in _uses(measured, names, cut, phase)]

        holds = all_of(
            _each_within(lambda name: _shares(measured, [name], control), figures, share),
            _each_within(lambda name: _jain(measured, [name], control), figures, jain),
            _each_within(lambda name: _uses(measured, [name], control), figures, use),
            _each_within(lambda name: _uses(measured, [name], control, ALONE), figures, alone),
            _each_within(lambda name: _uses(measured, [name], control, AFTER), figures, alone),
        )

        def text(cut: str) -> str:
            parts = (
                _range(_shares(measured, figures, cut)),
                _range(_jain(measured, figures, cut), "plain"),
                _range(_uses(measured, figures, cut)),
                _range(idle(figures, cut)),
            )
            return "share {}, Jain {}, use {}, alone {}".format(*parts)

        return ClaimVerdict(text(control), holds, text(BEST))

    return judge


def _within(experiments: Sequence[str], phase: str, control: str) -> Judge:
    """Judge whether the tagged sender's share is fair; the results of all cuts are shown."""

    def judge(measured: Measured) -> ClaimVerdict:
        most = 0.20 if measured.real_time else 0.15
        found = _each(lambda cut: _shares(measured, experiments, cut, phase), summary=_range)
        if control not in CUTS or experiments[0] in PACKETS:
            found = _range(_shares(measured, experiments, control, phase))
        holds = _each_within(lambda name: _shares(measured, [name], control, phase), experiments, 1 - most, 1 + most)
        return ClaimVerdict(found, holds, _range(_shares(measured, experiments, BEST, phase)))

    return judge


def _ratios(measured: Measured, experiment: str, control: str) -> list[float]:
    found = measured.values(experiment, _as_run(experiment, control), "delivered_bps_by_sender", STEADY).values()
    return [rate / other for rate, other in found]


def _parallel(control: str) -> Judge:
    name = "hygenicc-shares-parallel"

    def judge(measured: Measured) -> ClaimVerdict:
        law, none = _ratios(measured, name, control), _ratios(measured, name, "none")
        holds = within(law, high=1.25 if measured.real_time else 1.15)
        cuts = _each(lambda cut: _ratios(measured, name, cut), "plain")
        found = show(law, "plain") if control == PUBLISHED else cuts
        text = f"eight get {found} times as much as one (without control: {show(none, 'plain')})"
        return ClaimVerdict(text, holds, show(_ratios(measured, name, BEST), "plain"))

    return judge


def _weights(control: str) -> Judge:
    name = "hygenicc-shares-weights"

    def judge(measured: Measured) -> ClaimVerdict:
        law = _ratios(measured, name, control)
        off = 0.3 if measured.real_time else 0.2
        cuts = _each(lambda cut: _ratios(measured, name, cut), "plain")
        found = show(law, "plain") if control == PUBLISHED else cuts
        best = show(_ratios(measured, name, BEST), "plain")
        return ClaimVerdict(f"ratio {found}", within(law, 2.0 - off, 2.0 + off), best)

    return judge


def _swings(measured: Measured, experiments: Iterable[str], control: str) -> list[float]:
    """Return the standard deviation of the tagged sender's rates, as a part of an equal share, of all seeds."""
    return [
        SENDERS[name] * swings[-1] / _link_bps(measured)
        for name in experiments
        for swings in measured.values(name, _as_run(name, control), "swing_bps_by_sender", BOTH).values()
    ]


def _unstable(experiment: str, control: str) -> Judge:
    def judge(measured: Measured) -> ClaimVerdict:
        none, best = (_swings(measured, [experiment], system) for system in ("none", control))
        times = 2.0 if measured.real_time else 3.0
        holds = above([swing - times * max(best) for swing in none]) if best else None
        return ClaimVerdict(f"{_range(none)} of its share, {_range(best)} under HyGenICC", holds, _range(best))

    return judge


def _smooth(control: str, figures: Sequence[str] = FIGURES) -> Judge:
    def judge(measured: Measured) -> ClaimVerdict:
        most = 0.25 if measured.real_time else 0.15
        holds = _each_within(lambda name: _swings(measured, [name], control), figures, high=most)
        cuts = _each(lambda cut: _swings(measured, figures, cut), summary=_range)
        found = cuts if figures is FIGURES and control in CUTS else _range(_swings(measured, figures, control))
        return ClaimVerdict(found, holds, _range(_swings(measured, FIGURES, BEST)))

    return judge


def _utilised(control: str, figures: Sequence[str] = FIGURES) -> Judge:
    def judge(measured: Measured) -> ClaimVerdict:
        def longest(names: Iterable[str], cut: str) -> list[int]:
            return [longest for n in names for longest in measured.values(n, _as_run(n, cut), "idle_longest").values()]

        most = 8 if measured.real_time else 5
        holds = _each_within(lambda name: longest([name], control), figures, high=most)
        best = longest(FIGURES, BEST)
        shown = dict(zip(CUTS, NAMES, strict=True)) if figures is FIGURES and control in CUTS else {control: "at most"}
        worst = {title: max(longest(figures, cut), default="-") for cut, title in shown.items()}
        found = "; ".join(f"{name}: {longest_one}" for name, longest_one in worst.items())
        return ClaimVerdict(f"{found} intervals in a row", holds, f"at most {max(best)}" if best else "-")

    return judge


def _pairs(measured: Measured) -> ClaimVerdict:
    def free(control: str) -> list[float]:
        found = measured.values("hygenicc-shares-pairs", control, "received_bps_by_receiver", STEADY)
        sent = measured.values("hygenicc-shares-pairs", control, "delivered_bps_by_sender", STEADY)
        return [found[seed][1] / (_link_bps(measured) - (sent[seed][0] - found[seed][1])) for seed in found]

    values = free(BEST)
    text = f"the free destination gets {_each(free)} of the free rate; one rate for the VN: {show(free(RATE_PER_VN))}"
    return ClaimVerdict(text, within(values, 0.95), show(values))


FORM = "cut 0 with the printed constants for 55 ms, limiters of VNs, starts at C"
# Ours is judged only by runs of the product, which has neither DCTCP's nor guests' ECN: such claims stay open there.
PACKET_FORM = "packet by packet, the listing with its own constants every 0.5 ms, starts at C, limiters that drop"
KINDS = {"cut 0": LAW, "cut 1": CUTS[1], "cut 2": BEST, "a congestion time-out of 2 intervals (`timeout=2`)": SOONER}
DECIDES = "limiters that keep 20 frames instead of dropping, with a time-out of 1 ms (the paper gives none)"


def _by_packets(judge: Judge, *decides: tuple[str, Judge]) -> Published:
    return Published(PACKET_FORM, judge, "packets", decides)


def _claim(key: str, section: str, title: str, make: Callable[[str], Judge]) -> Claim:
    """Return a claim judged for the default, cut 0, and as published; what may decide is one of the other laws."""
    decides = tuple((name, make(cut)) for name, cut in KINDS.items() if cut != LAW)
    return Claim(key, section, title, make(LAW), Published(FORM, make(PUBLISHED), decides=decides), decides)


def _figure(key: str, section: str, title: str, make: Callable[[str], Judge], printed: Callable[[str], Judge]) -> Claim:
    """Return a claim on figures, as published packet by packet: ``printed`` judges a control there."""
    decides = tuple((name, make(cut)) for name, cut in KINDS.items() if cut != LAW)
    return Claim(key, section, title, make(LAW), _by_packets(printed(PRINTED), (DECIDES, printed(QUEUED))), decides)


CLAIMS = (
    Claim(
        "uncontrolled",
        "V, fig. 2a",
        "Figure 2, without control: TCP gets less than 30 % of its fair share next to UDP",
        _below(FIG2[1:], 0.30),
        _by_packets(_below(TWO[False][2:], 0.30)),
    ),
    Claim(
        "uncontrolled-dctcp",
        "V, fig. 2a",
        "Figure 2, without control: TCP without ECN gets less than 30 % of its fair share next to DCTCP",
        _below(TWO[False][1:2], 0.30),
        _by_packets(_below(TWO[False][1:2], 0.30)),
    ),
    Claim(
        "unstable",
        "V, fig. 2a",
        "Figure 2, without control: a TCP sender's rate next to TCP swings at least 3 times (Open vSwitch: 2) as much "
        "as under HyGenICC (ours: cut 2)",
        _unstable(FIG2[0], BEST),
        _by_packets(_unstable(TWO[False][0], PRINTED), (DECIDES, _unstable(TWO[False][0], QUEUED))),
    ),
    Claim(
        "uncontrolled-ecn",
        "V, fig. 2b",
        "Figure 2, without control: TCP with ECN has its fair share (+-20 %) next to TCP, less than 70 % of it next to "
        "DCTCP, less than 30 % next to UDP",
        _ecn,
        _by_packets(_ecn),
    ),
    Claim(
        "static",
        "V, fig. 2c",
        "Figure 2, static limits: exact shares (+-5 %), and a single sender uses half",
        _static(FIG2),
        _by_packets(_static(TWO[False])),
    ),
    Claim(
        "static-ecn",
        "V, fig. 2d",
        "Figure 2, static limits, TCP with ECN: exact shares (+-5 %), and a single sender uses half",
        _static(TWO[True]),
        _by_packets(_static(TWO[True])),
    ),
    _figure(
        "law",
        "V, fig. 2e, 3",
        "Figures 2 and 3: Jain's index at least 0.95 and link use at least 83 %, whoever TCP competes with",
        lambda control: _target(control, LAW_BOUNDS),
        lambda control: _target(control, LAW_BOUNDS, PACKETS),
    ),
    Claim(
        "law-ecn",
        "V, fig. 2f",
        "Figure 2, TCP with ECN: Jain's index at least 0.95 and link use at least 83 %, whoever TCP competes with",
        _target(PRINTED, LAW_BOUNDS, TWO[True]),
        _by_packets(_target(PRINTED, LAW_BOUNDS, TWO[True]), (DECIDES, _target(QUEUED, LAW_BOUNDS, TWO[True]))),
    ),
    *(
        _figure(
            key,
            "V, fig. 3",
            f"Figure 3, {key} senders: the tagged sender gets its fair share within 15 % (Open vSwitch: 20 %)",
            lambda control, count=count: _within(FIG3[count], BOTH, control),  # type: ignore[misc]
            lambda control, count=count: _within(MORE[count], BOTH, control),  # type: ignore[misc]
        )
        for key, count in (("four", 4), ("eight", 8))
    ),
    _figure(
        "second",
        "V",
        "A new sender has its fair share within 15 % (Open vSwitch: 20 %) during its second second",
        lambda control: _within(FIGURES, SECOND, control),
        lambda control: _within(PACKETS, SECOND, control),
    ),
    _figure(
        "utilised",
        "V",
        "Link use is below 80 % for at most 5 intervals in a row (Open vSwitch: 8)",
        _utilised,
        lambda control: _utilised(control, PACKETS),
    ),
    _figure(
        "smooth",
        "V",
        "The tagged sender's rate varies by at most 15 % of its share (Open vSwitch: 25 %)",
        _smooth,
        lambda control: _smooth(control, PACKETS),
    ),
    _claim(
        "connections", "I", "Eight connections get at most 1.15 times the rate of one (Open vSwitch: 1.25)", _parallel
    ),
    _claim("weights", "II", "Weights of 2 and 1 give rates of 2 to 1 (+-0.2; Open vSwitch: 0.3)", _weights),
)

AIMS = (
    Aim(
        "best",
        "Figures 2 and 3, cut 2: tagged share at least 85 %, Jain's index 0.97, link use 90 %, 95 % when alone",
        _target(BEST),
    ),
    Aim("pairs", "Congestion at one destination leaves 95 % of the free rate to another, cut 2", _pairs),
)

HEADS = ("law", "senders", "competitors", "use of the link", "Jain", "newcomer, of its share", "alone again", "lost")


def laws(measured: Measured) -> list[list[str]]:
    """Return the results of each cut with 2, 4 and 8 senders, and of the paper's law at 55 ms."""
    titles = (*zip(NAMES, CUTS, strict=True), ("as published, for 55 ms", PUBLISHED))
    rows = [
        _law(measured, name, _as_run(name, cut), title)
        for name in FIGURES
        for title, cut in titles
        if measured.runs(name, _as_run(name, cut))
    ]
    return [list(HEADS), *rows] if rows else []


def _law(measured: Measured, name: str, control: str, title: str) -> list[str]:
    """Return a row: over 7 to 10 s, the last column over 12 to 15 s, losses over the whole run."""
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


TABLES = (ResultTable("The law at 55 ms", laws),)

paper = Paper(
    "hygenicc",
    "HyGenICC",
    CLAIMS,
    AIMS,
    best=BEST,
    best_title="HyGenICC, cut 2",
    tables=TABLES,
)
