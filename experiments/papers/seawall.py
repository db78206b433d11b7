"""Seawall: Sharing the Data Center Network (NSDI 2011). What it shows, and what it promises and does not measure.

"Of the link" is wire rate over 1 Gb/s (its twentieth on Open vSwitch), from 10 s on. A claim holds if it does for every
seed. Halves are within 0.05, in real time 0.08. The numbers that the paper does not give are those of this project.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from experiments.evaluation.claims import Claim, ClaimVerdict, Measured, Paper, show
from experiments.scenarios.seawall.fig3 import MAPS

LAWS = ("seawall", "seawall-exact")
EXACT = "seawall-exact"
PHASE = "settled"
RECEIVERS = (1, 2, 4, 8)
UNIT_S = 2.0  # of figure 3
UNKNOWN = ClaimVerdict("-", None)

Judge = Callable[[Measured], ClaimVerdict]


def _parts(measured: Measured, experiment: str, control: str, sender: int, phase: str = PHASE) -> list[float]:
    """Return a sender's part of what all got, by seed."""
    rates = measured.values(experiment, control, "delivered_bps_by_sender", phase).values()
    return [one[sender] / sum(one) for one in rates]


def _sums(measured: Measured, experiment: str, control: str, phase: str = PHASE) -> list[float]:
    """Return what all got together, as a part of the same without control, by seed."""
    of_none = measured.values(experiment, "none", "delivered_bps_by_sender", phase)
    rates = measured.values(experiment, control, "delivered_bps_by_sender", phase)
    return [sum(one) / sum(of_none[seed]) for seed, one in rates.items() if seed in of_none]


def _within(values: Iterable[float], low: float, high: float) -> bool:
    return all(low <= one <= high for one in values)


def _share(experiment: str, sender: int, low: float, high: float, control: str = "seawall") -> Judge:
    """A sender's part of the link lies within bounds."""

    def judge(measured: Measured) -> ClaimVerdict:
        parts, best = _parts(measured, experiment, control, sender), _parts(measured, experiment, EXACT, sender)
        if not parts:
            return UNKNOWN
        return ClaimVerdict(show(parts), _within(parts, low, high), show(best) if best else "-")

    return judge


def _about_half(measured: Measured) -> tuple[float, float]:
    off = 0.08 if measured.real_time else 0.05
    return 0.5 - off, 0.5 + off


def _half(experiment: str, control: str = "seawall") -> Judge:
    """The well-behaved sender has about half of the link."""

    def judge(measured: Measured) -> ClaimVerdict:
        return _share(experiment, 0, *_about_half(measured), control)(measured)

    return judge


def _sum(experiment: str, least: float) -> Judge:
    """What all senders get together is at least a part of what they get without control."""

    def judge(measured: Measured) -> ClaimVerdict:
        sums, best = _sums(measured, experiment, "seawall"), _sums(measured, experiment, EXACT)
        return ClaimVerdict(show(sums), min(sums) >= least, show(best)) if sums else UNKNOWN

    return judge


def _next_to(measured: Measured, control: str) -> list[list[float]]:
    """Return the well-behaved sender's part of figure 10, by seed, for each of RECEIVERS of the other one."""
    return [_parts(measured, f"seawall-fig10-{count}", control, 0) for count in RECEIVERS]


def _receivers(measured: Measured) -> ClaimVerdict:
    """Figure 10: the well-behaved sender's part does not depend on how many receivers the other one has."""

    def words(control: str) -> str:
        return ", ".join(map(show, _next_to(measured, control)))

    ours = _next_to(measured, "seawall")
    if not all(ours):
        return UNKNOWN
    good = all(_within(one, *_about_half(measured)) for one in ours)
    return ClaimVerdict(f"{words('seawall')} (none: {words('none')})", good, words(EXACT))


def _falls(measured: Measured) -> ClaimVerdict:
    """Figure 10 without control: each flow has an equal part, so the sender with more of them has more."""
    parts = _next_to(measured, "none")
    if not all(parts):
        return UNKNOWN
    equal = [1 / (count + 1) for count in RECEIVERS]
    good = all(_within(one, part - 0.10, part + 0.10) for one, part in zip(parts, equal, strict=True))
    best = ", ".join(map(show, _next_to(measured, EXACT)))
    return ClaimVerdict(", ".join(map(show, parts)), good, best)


def _active(ends_s: list[float]) -> float:
    """Return the time that tasks are active in sum; the reduce ends with its last source."""
    return sum(ends_s[:MAPS]) + max(ends_s[MAPS:])


def _tasks(experiment: str, control: str, low: float, high: float, of: Callable[[list[float]], float]) -> Judge:
    """Figure 3, in units: how long tasks are active, or when the last ends. A task that does not end fails it."""

    def units(measured: Measured, control: str) -> list[float]:
        found = measured.values(experiment, control, "completions_s").values()
        return [of([math.inf if end_s is None else end_s for end_s in one]) / UNIT_S for one in found]

    def judge(measured: Measured) -> ClaimVerdict:
        ours, best = units(measured, control), units(measured, EXACT)
        if not ours:
            return UNKNOWN
        return ClaimVerdict(f"{show(ours, 'count')} units", _within(ours, low, high), show(best, "count"))

    return judge


def _web(experiment: str, name: str, base: tuple[str, str], good: Callable[[float], bool]) -> Judge:
    """Figure 11: a measure of the web requests over that of another run."""

    def ratios(measured: Measured, control: str) -> list[float]:
        of_base = measured.values(*base, name, PHASE)
        found = measured.values(experiment, control, name, PHASE)
        return [one / of_base[seed] for seed, one in found.items() if of_base.get(seed)]

    def judge(measured: Measured) -> ClaimVerdict:
        ours = ratios(measured, "seawall")
        if not ours:
            return UNKNOWN
        others = {control: show(ratios(measured, control)) for control in (EXACT, "none")}
        return ClaimVerdict(f"{show(ours)} (none: {others['none']})", all(map(good, ours)), others[EXACT])

    return judge


def _by_weight(kind: str, most: float) -> Judge:
    """All x_k / w_k are within a part of their mean."""

    def off(measured: Measured, control: str) -> list[float]:
        found = []
        for rates in measured.values(f"seawall-weights-{kind}", control, "delivered_bps_by_sender", PHASE).values():
            per_weight = [rate / weight for rate, weight in zip(rates, (1.0, 2.0, 4.0), strict=True)]
            mean = sum(per_weight) / len(per_weight)
            found.append(max(abs(one / mean - 1.0) for one in per_weight))
        return found

    def judge(measured: Measured) -> ClaimVerdict:
        ours, best = off(measured, "seawall"), off(measured, EXACT)
        return ClaimVerdict(f"off by {show(ours)}", max(ours) <= most, show(best)) if ours else UNKNOWN

    return judge


def _settled(phase: str, most: int) -> Judge:
    """Intervals until all grants stay within 5 % of where they end."""

    def judge(measured: Measured) -> ClaimVerdict:
        def took(control: str) -> list[float | None]:
            runs = measured.phases("seawall-weights-change", control, phase)
            return [one.get("settled_after") for one in runs]

        def words(control: str) -> str:
            found = sorted(math.inf if one is None else one for one in took(control))
            ends = ["never" if one == math.inf else f"{one:g}" for one in dict.fromkeys((*found[:1], *found[-1:]))]
            return " to ".join(ends) or "-"

        ours = took("seawall")
        if not ours:
            return UNKNOWN
        others = ", ".join(
            f"{name.removeprefix('seawall-')} {words(name)}" for name in ("seawall-cubic", "seawall-dctcp")
        )
        holds = all(one is not None and one <= most for one in ours)
        return ClaimVerdict(f"{words('seawall')} intervals ({others})", holds, words(EXACT))

    return judge


def _use(experiment: str, least: float, phase: str | None) -> Judge:
    def judge(measured: Measured) -> ClaimVerdict:
        ours, best = (list(measured.values(experiment, law, "use_of_oracle", phase).values()) for law in LAWS)
        return ClaimVerdict(f"{show(ours)} of the oracle's", min(ours) >= least, show(best)) if ours else UNKNOWN

    return judge


def _lot(measured: Measured) -> ClaimVerdict:
    ours, best = (
        [
            abs(part - 1.0)
            for run in measured.values("seawall-work-lot", law, "part_of_oracle_by_sender", PHASE).values()
            for part in run
        ]
        for law in LAWS
    )
    return ClaimVerdict(f"off by {show(ours)}", max(ours) <= 0.05, show(best)) if ours else UNKNOWN


_NONE = ("seawall-fig11-700", "none")
_ALONE = ("seawall-fig11-alone", "none")

paper = Paper(
    "seawall",
    "Seawall",
    (
        Claim("overhead", "table 1", "one flow alone keeps 96.7 % of its goodput", _sum("seawall-fig9-alone", 0.967)),
        Claim(
            "maps-none",
            "figure 3",
            "TCP alone: tasks are active for 90 units (81 to 99)",
            _tasks("seawall-fig3-equal", "none", 81.0, 99.0, _active),
        ),
        Claim(
            "maps-equal",
            "figure 3",
            "equal weights of all sources: 90 units again (81 to 99)",
            _tasks("seawall-fig3-equal", "seawall", 81.0, 99.0, _active),
        ),
        Claim(
            "maps-tasks",
            "figure 3",
            "weights of one over the fan-in: 45 units (at most 49.5)",
            _tasks("seawall-fig3-tasks", "seawall", 0.0, 49.5, _active),
        ),
        Claim(
            "maps-last",
            "figure 3",
            "and all has ended after 15 units (at most 16.5)",
            _tasks("seawall-fig3-tasks", "seawall", 0.0, 16.5, max),
        ),
        Claim(
            "tunnels",
            "figure 7",
            "a loop per tunnel: three tunnels have 3/4 (+-0.05)",
            _share("seawall-fig7", 0, 0.70, 0.80, "seawall-strawman"),
        ),
        Claim("entities", "figure 7", "a loop per sender: half (+-0.05)", _half("seawall-fig7")),
        Claim(
            "udp-none",
            "figure 9(a)",
            "without control TCP next to UDP has next to nothing (below 10 %)",
            _share("seawall-fig9-a", 0, 0.0, 0.10, "none"),
        ),
        Claim("udp", "figure 9(a)", "TCP next to UDP: half (+-0.05)", _half("seawall-fig9-a")),
        Claim(
            "udp-cubic",
            "figure 9(a)",
            "the same by the paper's law on losses",
            _half("seawall-fig9-a", "seawall-cubic"),
        ),
        Claim(
            "udp-dctcp",
            "figure 9(a)",
            "the same by the paper's law on losses and marks",
            _half("seawall-fig9-a", "seawall-dctcp"),
        ),
        *(
            Claim(
                f"flows-none-{flows}",
                "figure 9(b)",
                f"without control one flow has 1/{flows + 1} next to {flows} (+-{off})",
                _share(f"seawall-fig9-b{flows}", 0, 1 / (flows + 1) - off, 1 / (flows + 1) + off, "none"),
            )
            for flows, off in ((1, 0.10), (2, 0.08))
        ),
        Claim(
            "flows-none",
            "figure 9(b)",
            "without control one flow has next to nothing (below 3 %) next to 66",
            _share("seawall-fig9-b66", 0, 0.0, 0.03, "none"),
        ),
        *(
            Claim(
                f"flows-{flows}",
                "figure 9(b)",
                f"one TCP flow next to {flows}: half (+-0.05)",
                _half(f"seawall-fig9-b{flows}"),
            )
            for flows in (1, 2, 66)
        ),
        Claim(
            "flows-sum",
            "figure 9(b)",
            "the sum next to 66 flows is slightly lower (93 % or more)",
            _sum("seawall-fig9-b66", 0.93),
        ),
        Claim(
            "receivers-none",
            "figure 10",
            "without control the share falls with the other's receivers: 1/2, 1/3, 1/5, 1/9 (+-0.10)",
            _falls,
        ),
        Claim("receivers", "figure 10", "next to 1, 2, 4 and 8 receivers: half (+-0.05)", _receivers),
        Claim(
            "receivers-udp",
            "figure 10",
            "TCP next to UDP to 8 receivers over a core link: half (+-0.05)",
            _half("seawall-fig10-udp"),
        ),
        Claim(
            "web-flood",
            "figure 11",
            "next to a full flood as many answers as without one (95 %)",
            _web("seawall-fig11-flood", "answers_per_s", _ALONE, lambda ratio: ratio >= 0.95),
        ),
        Claim(
            "web-flood-latency",
            "figure 11",
            "and their mean latency is at most 1.1 times",
            _web("seawall-fig11-flood", "latency_mean_s", _ALONE, lambda ratio: ratio <= 1.1),
        ),
        Claim(
            "web-700",
            "figure 11",
            "next to 700 Mb/s as many answers as without control (+-5 %)",
            _web("seawall-fig11-700", "answers_per_s", _NONE, lambda ratio: 0.95 <= ratio <= 1.05),
        ),
        Claim(
            "web-700-latency",
            "figure 11",
            "and their mean latency is almost halved (at most 0.55)",
            _web("seawall-fig11-700", "latency_mean_s", _NONE, lambda ratio: ratio <= 0.55),
        ),
        Claim("weights-udp", "4", "shares by weights of 1, 2, 4: UDP within 5 %", _by_weight("udp", 0.05)),
        Claim("weights-tcp", "4", "the same: TCP within 10 %", _by_weight("tcp", 0.10)),
        Claim("weights-mixed", "4", "the same: TCP and UDP within 10 %", _by_weight("mixed", 0.10)),
        Claim("parking-lot", "4", "max-min over two links: within 5 % of the oracle", _lot),
        Claim(
            "work-conserving", "4", "on/off senders: 92 % of the oracle's use", _use("seawall-work-bursts", 0.92, None)
        ),
        Claim("join", "-", "settled within 60 intervals after a join", _settled("join", 60)),
        Claim(
            "reweigh",
            "4.2",
            "settled within 65 intervals after a change of weight (paper: one sawtooth)",
            _settled("reweigh", 65),
        ),
        Claim("leave", "-", "settled within 20 intervals after a leave", _settled("leave", 20)),
    ),
    best=EXACT,
    best_title="seawall-exact",
)
