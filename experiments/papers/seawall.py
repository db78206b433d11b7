"""Seawall: Sharing the Data Center Network (NSDI 2011). Its results, and what it promises without measurements.

"Of the link" is the rate on the wire over the link's rate, 1 Gb/s (on Open vSwitch 50 Mb/s), from 10 s on. "Half" is
within 0.05 of the link, in real time 0.08. "As published" is the paper's Class 3 inside Class 2: on losses, with
feedback of paths. Numbers that the paper does not give are those of this project.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from experiments.evaluation.claims import (
    Aim,
    Claim,
    ClaimVerdict,
    Judge,
    Measured,
    Paper,
    Published,
    all_of,
    show,
    within,
)
from experiments.scenarios.seawall import AT_HOSTS, AT_METERS, CHANGES, PUBLISHED
from experiments.scenarios.seawall.fig3 import MAPS

LAWS = ("seawall", "seawall-exact")
EXACT = "seawall-exact"
PHASE = "settled"
RECEIVERS = (1, 2, 4, 8)
UNIT_S = 2.0  # a unit of work in figure 3
UNKNOWN = ClaimVerdict("-", None)


def _parts(measured: Measured, experiment: str, control: str, sender: int, phase: str = PHASE) -> list[float]:
    """Return a sender's part of the sum of all senders' rates, 0 to 1: a value per seed."""
    rates_by_seed = measured.values(experiment, control, "delivered_bps_by_sender", phase).values()
    return [rates_bps[sender] / sum(rates_bps) for rates_bps in rates_by_seed]


def _sums(measured: Measured, experiment: str, control: str, phase: str = PHASE) -> list[float]:
    """Return the sum of all senders' rates over that sum without control: a value per seed that both have."""
    uncontrolled = measured.values(experiment, "none", "delivered_bps_by_sender", phase)
    controlled = measured.values(experiment, control, "delivered_bps_by_sender", phase)
    return [sum(rates_bps) / sum(uncontrolled[seed]) for seed, rates_bps in controlled.items() if seed in uncontrolled]


def _share(experiment: str, sender: int, low: float, high: float, control: str = "seawall") -> Judge:
    """Judge whether a sender's part of the link lies within bounds."""

    def judge(measured: Measured) -> ClaimVerdict:
        parts, exact_parts = (_parts(measured, experiment, law, sender) for law in (control, EXACT))
        return ClaimVerdict(show(parts), within(parts, low, high), show(exact_parts))

    return judge


def _about_half(measured: Measured) -> tuple[float, float]:
    """Return the (low, high) bounds of "about half"; wider for runs in real time."""
    tolerance = 0.08 if measured.real_time else 0.05
    return 0.5 - tolerance, 0.5 + tolerance


def _half(experiment: str, control: str = "seawall") -> Judge:
    """Judge whether the well-behaved sender has about half of the link."""

    def judge(measured: Measured) -> ClaimVerdict:
        return _share(experiment, 0, *_about_half(measured), control)(measured)

    return judge


def _sum(experiment: str, minimum: float, control: str = "seawall") -> Judge:
    """Judge whether all senders together get at least a part of their rate without control."""

    def judge(measured: Measured) -> ClaimVerdict:
        sums, exact_sums = _sums(measured, experiment, control), _sums(measured, experiment, EXACT)
        return ClaimVerdict(show(sums), within(sums, minimum), show(exact_sums))

    return judge


def _fig10_parts(measured: Measured, control: str) -> list[list[float]]:
    """Return the well-behaved sender's part of the link in figure 10: a list by seed for each number in RECEIVERS."""
    return [_parts(measured, f"seawall-fig10-{count}", control, 0) for count in RECEIVERS]


def _fig10_text(measured: Measured, control: str) -> str:
    """Return the mean part of the well-behaved sender in figure 10 for each number in RECEIVERS, as text."""
    return ", ".join(map(show, _fig10_parts(measured, control)))


def _receivers(control: str) -> Judge:
    """Judge figure 10: the well-behaved sender has half of the link, however many receivers the other sender has."""

    def judge(measured: Measured) -> ClaimVerdict:
        holds = all_of(*(within(parts, *_about_half(measured)) for parts in _fig10_parts(measured, control)))
        text = f"{_fig10_text(measured, control)} (without control: {_fig10_text(measured, 'none')})"
        return ClaimVerdict(text, holds, _fig10_text(measured, EXACT))

    return judge


def _fig10_without_control(measured: Measured) -> ClaimVerdict:
    """Judge figure 10 without control: each flow has an equal part, so one flow next to n flows has 1 / (n + 1)."""
    parts_by_count = _fig10_parts(measured, "none")
    if not all(parts_by_count):
        return UNKNOWN
    equal_parts = [1 / (count + 1) for count in RECEIVERS]
    by_count = zip(parts_by_count, equal_parts, strict=True)
    holds = all_of(*(within(parts, equal_part - 0.10, equal_part + 0.10) for parts, equal_part in by_count))
    return ClaimVerdict(_fig10_text(measured, "none"), holds, _fig10_text(measured, EXACT))


def _active(ends_s: list[float]) -> float:
    """Return the sum of the times in seconds during which tasks are active, from the times at which transfers end.

    Each of the first MAPS transfers is one task; all later transfers feed one reduce task, which ends with the last.
    """
    return sum(ends_s[:MAPS]) + max(ends_s[MAPS:])


def _tasks(experiment: str, control: str, low: float, high: float, total_s: Callable[[list[float]], float]) -> Judge:
    """Judge figure 3: whether a time is within ``low`` to ``high`` units of UNIT_S.

    ``total_s`` computes the time from the times at which transfers end. A transfer without an end counts as infinite,
    so that the claim fails.
    """

    def units(measured: Measured, control: str) -> list[float]:
        ends_by_seed = measured.values(experiment, control, "completions_s").values()
        return [total_s([math.inf if end_s is None else end_s for end_s in ends_s]) / UNIT_S for ends_s in ends_by_seed]

    def judge(measured: Measured) -> ClaimVerdict:
        ours, exact = units(measured, control), units(measured, EXACT)
        return ClaimVerdict(f"{show(ours, 'count')} units", within(ours, low, high), show(exact, "count"))

    return judge


def _web(
    experiment: str, name: str, base: tuple[str, str], bounds: tuple[float, float], control: str = "seawall"
) -> Judge:
    """Judge figure 11: whether a measure of the web requests, over that in ``base``, is within ``bounds``.

    ``name`` is the measure; ``base`` is (experiment, control); ``bounds`` are (low, high).
    """

    def ratios(measured: Measured, control: str) -> list[float]:
        base_by_seed = measured.values(*base, name, PHASE)
        by_seed = measured.values(experiment, control, name, PHASE)
        return [value / base_by_seed[seed] for seed, value in by_seed.items() if base_by_seed.get(seed)]

    def judge(measured: Measured) -> ClaimVerdict:
        ours = ratios(measured, control)
        uncontrolled = show(ratios(measured, "none"))
        text = f"{show(ours)} (without control: {uncontrolled})"
        return ClaimVerdict(text, within(ours, *bounds), show(ratios(measured, EXACT)))

    return judge


def _by_weight(kind: str, maximum: float, control: str = "seawall") -> Judge:
    """Judge whether the senders' rates per weight deviate from their mean by at most ``maximum`` of that mean.

    ``kind`` of the senders: "udp", "tcp" or "mixed". Three senders have weights 1, 2 and 4.
    """

    def deviations(measured: Measured, control: str) -> list[float]:
        """Return the largest deviation from the mean, as a part of it, for each seed."""
        largest = []
        by_seed = measured.values(f"seawall-weights-{kind}", control, "delivered_bps_by_sender", PHASE)
        for rates_bps in by_seed.values():
            per_weight_bps = [rate_bps / weight for rate_bps, weight in zip(rates_bps, (1.0, 2.0, 4.0), strict=True)]
            mean_bps = sum(per_weight_bps) / len(per_weight_bps)
            largest.append(max(abs(rate_bps / mean_bps - 1.0) for rate_bps in per_weight_bps))
        return largest

    def judge(measured: Measured) -> ClaimVerdict:
        ours = deviations(measured, control)
        exact = show(deviations(measured, EXACT))
        return ClaimVerdict(f"largest deviation {show(ours)}", within(ours, high=maximum), exact)

    return judge


def _settled(phase: str, max_intervals: int, control: str = "seawall") -> Judge:
    """Judge the number of intervals of a phase until all grants stay within 5 % of their final value."""

    def judge(measured: Measured) -> ClaimVerdict:
        def intervals_by_seed(control: str) -> list[float]:
            runs = measured.phases("seawall-weights-change", control, phase)
            found = [run.get("settled_after") for run in runs]
            return [math.inf if intervals is None else intervals for intervals in found]

        def text(control: str) -> str:
            ordered = sorted(intervals_by_seed(control))
            extremes = dict.fromkeys((*ordered[:1], *ordered[-1:]))  # one value if all seeds agree
            return " to ".join("never" if value == math.inf else f"{value:g}" for value in extremes) or "-"

        holds = within(intervals_by_seed(control), high=max_intervals)
        return ClaimVerdict(f"{text(control)} intervals", holds, text(EXACT))

    return judge


def _use(experiment: str, minimum: float, phase: str | None, control: str = "seawall") -> Judge:
    """Judge whether a run uses at least ``minimum`` of what the oracle uses, in a phase or (None) as a whole."""

    def judge(measured: Measured) -> ClaimVerdict:
        laws = (control, EXACT)
        ours, best = (list(measured.values(experiment, law, "use_of_oracle", phase).values()) for law in laws)
        return ClaimVerdict(f"{show(ours)} of the oracle's", within(ours, minimum), show(best))

    return judge


def _parking_lot(control: str) -> Judge:
    """Judge the parking lot: each sender's rate deviates from its max-min rate by at most 5 %."""

    def deviations(measured: Measured, control: str) -> list[float]:
        parts_by_seed = measured.values("seawall-work-lot", control, "part_of_oracle_by_sender", PHASE)
        return [max(abs(part - 1.0) for part in parts) for parts in parts_by_seed.values()]

    def judge(measured: Measured) -> ClaimVerdict:
        ours, best = deviations(measured, control), deviations(measured, EXACT)
        return ClaimVerdict(f"largest deviation {show(ours)}", within(ours, high=0.05), show(best))

    return judge


_UNCONTROLLED_700 = ("seawall-fig11-700", "none")
_WITHOUT_UDP = ("seawall-fig11-alone", "none")
FORM = "Class 3 inside Class 2: on losses, feedback of paths, by meters"
BY_HOSTS = "shaped by hosts (`--shaping agent`)"


def _at_hosts(judge: Judge) -> Judge:
    """Return a judge that judges the runs as published in which hosts shape, in place of those with meters."""
    return lambda measured: judge(measured.substituted(PUBLISHED, AT_HOSTS, AT_METERS))


def _claim(key: str, section: str, title: str, make: Callable[[str], Judge]) -> Claim:
    """Return a claim judged under the default law and as published; ``make`` returns the judge of a control.

    Under the default law, knowing all demands may reverse the verdict; as published, shaping by hosts or another law.
    """
    changes = ((name, make(control)) for name, control in CHANGES.items())
    published = Published(FORM, make(PUBLISHED), decides=((BY_HOSTS, _at_hosts(make(PUBLISHED))), *changes))
    return Claim(key, section, title, make("seawall"), published, (("all demands known", make(EXACT)),))


CLAIMS = (
    _claim(
        "overhead",
        "6.1.1, table 1",
        "Table 1: one TCP flow alone keeps 96.7 % of its goodput without control",
        lambda law: _sum("seawall-fig9-alone", 0.967, law),
    ),
    Claim(
        "maps-none",
        "2.2, fig. 3",
        "Figure 3, without control: tasks are active for 81 to 99 units in sum (paper: 90)",
        _tasks("seawall-fig3-equal", "none", 81.0, 99.0, _active),
    ),
    _claim(
        "maps-tasks",
        "2.2, fig. 3",
        "Figure 3, weight 1/fan-in: tasks are active for at most 49.5 units in sum (paper: 45)",
        lambda law: _tasks("seawall-fig3-tasks", law, 0.0, 49.5, _active),
    ),
    _claim(
        "maps-last",
        "2.2, fig. 3",
        "Figure 3, weight 1/fan-in: the last task ends within 16.5 units (paper: 15)",
        lambda law: _tasks("seawall-fig3-tasks", law, 0.0, 16.5, max),
    ),
    Claim(
        "tunnels",
        "4.2, fig. 7",
        "Figure 7, a loop per tunnel (Class 1): the sender with three tunnels gets 3/4 of the link (+-0.05)",
        _share("seawall-fig7", 0, 0.70, 0.80, "seawall-strawman"),
    ),
    _claim(
        "entities",
        "4.3, fig. 7",
        "Figure 7, a loop per sender: each sender gets half of the link (+-0.05)",
        lambda law: _half("seawall-fig7", law),
    ),
    Claim(
        "udp-none",
        "6.1.2, fig. 9(a)",
        "Figure 9(a), without control: TCP next to UDP gets less than 10 % of the link",
        _share("seawall-fig9-a", 0, 0.0, 0.10, "none"),
    ),
    _claim(
        "udp",
        "6.1.2, fig. 9(a)",
        "Figure 9(a): TCP next to UDP gets half of the link (+-0.05)",
        lambda law: _half("seawall-fig9-a", law),
    ),
    *(
        Claim(
            f"flows-none-{flows}",
            "6.1.2, fig. 9(b)",
            f"Figure 9(b), without control: one TCP flow next to {flows} gets 1/{flows + 1} of the link (+-{off})",
            _share(f"seawall-fig9-b{flows}", 0, 1 / (flows + 1) - off, 1 / (flows + 1) + off, "none"),
        )
        for flows, off in ((1, 0.10), (2, 0.08))
    ),
    Claim(
        "flows-none",
        "6.1.2, fig. 9(b)",
        "Figure 9(b), without control: one TCP flow next to 66 gets less than 3 % of the link",
        _share("seawall-fig9-b66", 0, 0.0, 0.03, "none"),
    ),
    *(
        _claim(
            f"flows-{flows}",
            "6.1.2, fig. 9(b)",
            f"Figure 9(b): one TCP flow next to a sender with {flows} gets half of the link (+-0.05)",
            lambda law, flows=flows: _half(f"seawall-fig9-b{flows}", law),  # type: ignore[misc]
        )
        for flows in (1, 2, 66)
    ),
    _claim(
        "flows-sum",
        "6.1.2, fig. 9(b)",
        "Figure 9(b), 66 flows: both senders together get at least 93 % of their sum without control",
        lambda law: _sum("seawall-fig9-b66", 0.93, law),
    ),
    Claim(
        "receivers-none",
        "6.1.2, fig. 10",
        "Figure 10, without control: the share falls with the other's receivers: 1/2, 1/3, 1/5, 1/9 (+-0.10)",
        _fig10_without_control,
    ),
    _claim(
        "receivers",
        "6.1.2, fig. 10",
        "Figure 10: TCP to one receiver gets half of the link next to 1, 2, 4 and 8 receivers (+-0.05)",
        _receivers,
    ),
    _claim(
        "web-flood",
        "6.2, fig. 11",
        "Figure 11, UDP at full rate: at least 95 % of the web answers of a run without UDP",
        lambda law: _web("seawall-fig11-flood", "answers_per_s", _WITHOUT_UDP, (0.95, math.inf), law),
    ),
    _claim(
        "web-flood-latency",
        "6.2, fig. 11",
        "Figure 11, UDP at full rate: mean web latency at most 1.1 times that of a run without UDP",
        lambda law: _web("seawall-fig11-flood", "latency_mean_s", _WITHOUT_UDP, (0.0, 1.1), law),
    ),
    _claim(
        "web-700",
        "6.2, fig. 11",
        "Figure 11, UDP at 700 Mb/s: web answers within 5 % of those of a run without control",
        lambda law: _web("seawall-fig11-700", "answers_per_s", _UNCONTROLLED_700, (0.95, 1.05), law),
    ),
    _claim(
        "web-700-latency",
        "6.2, fig. 11",
        "Figure 11, UDP at 700 Mb/s: mean web latency at most 0.55 times that of a run without control",
        lambda law: _web("seawall-fig11-700", "latency_mean_s", _UNCONTROLLED_700, (0.0, 0.55), law),
    ),
    *(
        _claim(
            f"weights-{kind}",
            "4",
            f"Weights of 1, 2 and 4, {said} senders: rates per weight within {100 * most:g} % of their mean",
            lambda law, kind=kind, most=most: _by_weight(kind, most, law),  # type: ignore[misc]
        )
        for kind, said, most in (("udp", "UDP", 0.05), ("tcp", "TCP", 0.10), ("mixed", "TCP and UDP", 0.10))
    ),
    _claim("parking-lot", "4", "Parking lot of two links: rates within 5 % of max-min", _parking_lot),
    _claim(
        "work-conserving",
        "4",
        "On/off senders of DETS's figure 6: at least 92 % of the oracle's use",
        lambda law: _use("seawall-work-bursts", 0.92, None, law),
    ),
    _claim(
        "reweigh",
        "4.2",
        "All grants settle within 65 intervals after a sender changes its weight (paper: one sawtooth)",
        lambda law: _settled("reweigh", 65, law),
    ),
)

AIMS = (
    Aim(
        "maps-equal",
        "Figure 3, equal weights of all sources: tasks are active for 81 to 99 units in sum",
        _tasks("seawall-fig3-equal", "seawall", 81.0, 99.0, _active),
    ),
    Aim(
        "udp-cubic",
        "Figure 9(a), `seawall-cubic` (losses): TCP next to UDP gets half of the link (+-0.05)",
        _half("seawall-fig9-a", "seawall-cubic"),
    ),
    Aim(
        "udp-dctcp",
        "Figure 9(a), `seawall-dctcp` (losses and marks): TCP next to UDP gets half of the link (+-0.05)",
        _half("seawall-fig9-a", "seawall-dctcp"),
    ),
    Aim(
        "receivers-udp",
        "TCP next to UDP to eight receivers over one core link gets half of it (+-0.05)",
        _half("seawall-fig10-udp"),
    ),
    Aim("join", "All grants settle within 60 intervals after a sender joins", _settled("join", 60)),
    Aim("leave", "All grants settle within 20 intervals after a sender leaves", _settled("leave", 20)),
)

paper = Paper("seawall", "Seawall", CLAIMS, AIMS, best=EXACT, best_title="seawall-exact")
