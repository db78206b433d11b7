"""HyGenICC: congestion marks from the fabric, token buckets at the source. Its claims.

Its curves are lost; the statements of its text are judged. "Ours" is the default: cut 0, the paper's form with
constants for intervals of 55 ms; cuts 1 and 2 are shown next to it. "As published" is the printed listing at its own
pace, packet by packet (``experiments/scenarios/hygenicc/packets.py``). For statements without a figure it is cut 0 with
the printed constants scaled to 55 ms, limiters of VNs, and starts at the whole Capacity Share. Bounds in brackets are
those of a fabric in real time. The *tagged* sender is the last one: the claims are about its share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

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
"""The experiments of figures 2 and 3, by intervals of 55 ms; SENDERS has the number of senders of each experiment."""
TWO = {ecn: tuple(packets_name(2, competitor, ecn) for competitor in COMPETITORS) for ecn in (False, True)}
MORE = {count: tuple(packets_name(count, competitor, False) for competitor in COMPETITORS) for count in (4, 8)}
PACKETS = (*TWO[False], *MORE[4], *MORE[8])
"""The experiments of figures 2 and 3 packet by packet; those with ECN, 2(b), (d) and (f), are TWO[True]."""
PRINTED = "hygenicc"
"""In packet-by-packet runs this is the listing with its own constants."""
SENDERS |= dict.fromkeys((*TWO[False], *TWO[True]), 2)
SENDERS |= {name: count for count, names in MORE.items() for name in names}
PUBLISHED = "published"
"""Stands for the printed constants, which depend on the number of senders (``fig2.published``)."""
CONTROLS = {name: published(SENDERS[name]) for name in FIGURES}


def _link_bps(measured: Measured) -> float:
    """Return the rate of the bottleneck link on the measured fabric in bit/s."""
    return LINK_BPS * measured.scale


def _as_run(experiment: str, control: str) -> str:
    """Return the control that was run in an experiment for one of CUTS or PUBLISHED.

    Experiments without an entry in CONTROLS have two senders wherever they are judged as published.
    """
    return CONTROLS.get(experiment, published(2)) if control == PUBLISHED else control


def _all_values(
    measured: Measured, experiments: Iterable[str], control: str, name: str, phase: str | None
) -> list[Any]:
    """Return the values of a measure: one per experiment and seed."""
    by_seed = (measured.values(experiment, _as_run(experiment, control), name, phase) for experiment in experiments)
    return [value for values in by_seed for value in values.values()]


def _shares(measured: Measured, experiments: Iterable[str], control: str, phase: str = BOTH) -> list[float]:
    """Return the tagged (last) sender's rate over an equal share of the link: a value per experiment and seed."""
    return [
        SENDERS[name] * sender_rates_bps[-1] / _link_bps(measured)
        for name in experiments
        for sender_rates_bps in measured.values(name, _as_run(name, control), "delivered_bps_by_sender", phase).values()
    ]


def _uses(measured: Measured, experiments: Iterable[str], control: str, phase: str = BOTH) -> list[float]:
    """Return the used part of the link, 0 to 1: a value per experiment and seed."""
    rates_bps = _all_values(measured, experiments, control, "received_bps", phase)
    return [rate_bps / _link_bps(measured) for rate_bps in rates_bps]


def _jain(measured: Measured, experiments: Iterable[str], control: str) -> list[float]:
    """Return Jain's index of the senders' rates while both send: a value per experiment and seed."""
    all_rates_bps = _all_values(measured, experiments, control, "delivered_bps_by_sender", BOTH)
    return [sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates)) for rates in all_rates_bps]


def _each_within(
    values_of: Callable[[str], Sequence[float]],
    experiments: Iterable[str],
    low: float = -math.inf,
    high: float = math.inf,
) -> Outcome:
    """Return whether the mean over seeds of a measure is within bounds in every experiment.

    ``values_of`` returns the values of one experiment, by seed. Seeds of different experiments are not pooled.
    """
    return all_of(*(within(values_of(name), low, high) for name in experiments))


def _range(values: Sequence[float], form: str = "percent") -> str:
    """Return the lowest and the highest value as text; a mean over experiments would hide the lowest."""
    lowest, highest = (show([bound], form) for bound in (min(values), max(values))) if values else ("-", "-")
    return lowest if lowest == highest else f"{lowest.removesuffix(' %')} to {highest}"


def _each(
    values_of: Callable[[str], list[float]],
    form: str = "percent",
    summary: Callable[[Sequence[float], str], str] = show,
) -> str:
    """Return a measure under each of CUTS as text.

    ``values_of`` returns its values under a cut; ``summary`` makes the text of values.
    """
    return "; ".join(f"{name}: {summary(values_of(cut), form)}" for name, cut in zip(NAMES, CUTS, strict=True))


def _below(experiments: Sequence[str], max_share: float) -> Judge:
    """Judge whether the tagged sender has at most ``max_share`` of its fair share without control, in each run."""

    def judge(measured: Measured) -> ClaimVerdict:
        holds = _each_within(lambda name: _shares(measured, [name], "none"), experiments, high=max_share)
        shares_text = _range(_shares(measured, experiments, "none"))
        return ClaimVerdict(f"{shares_text} of its share", holds, _range(_shares(measured, FIG2[1:], BEST)))

    return judge


def _ecn(measured: Measured) -> ClaimVerdict:
    """Judge figure 2(b): with ECN and without control, the tagged sender's share next to each competitor."""
    tcp, dctcp, udp = (_shares(measured, [name], "none") for name in TWO[True])
    holds = all_of(within(tcp, 0.8, 1.2), within(dctcp, high=0.7), within(udp, high=0.3))
    return ClaimVerdict(f"next to TCP {show(tcp)}, DCTCP {show(dctcp)}, UDP {show(udp)} of its share", holds)


def _static(experiments: Sequence[str]) -> Judge:
    """Judge whether static limits give the tagged sender its share, and a single sender half of the link."""

    def judge(measured: Measured) -> ClaimVerdict:
        shares = _shares(measured, experiments, "static")
        single_uses = [use for phase in (ALONE, AFTER) for use in _uses(measured, experiments, "static", phase)]
        tolerance = 0.03 if measured.real_time else 0.02
        low, high = 0.5 - tolerance, 0.5 + tolerance
        holds = all_of(
            _each_within(lambda name: _shares(measured, [name], "static"), experiments, 0.95, 1.05),
            _each_within(lambda name: _uses(measured, [name], "static", ALONE), experiments, low, high),
            _each_within(lambda name: _uses(measured, [name], "static", AFTER), experiments, low, high),
        )
        best = _range(_uses(measured, FIG2, BEST, ALONE) + _uses(measured, FIG2, BEST, AFTER))
        text = f"{_range(shares)} of its share; {_range(single_uses)} of the link used by a single sender"
        return ClaimVerdict(text, holds, best)

    return judge


Bounds = tuple[float, float, float, float]
"""Minima of the tagged sender's share, Jain's index, link use, and link use by a single sender."""
LAW_BOUNDS: Bounds = (0.0, 0.95, 0.83, 0.0)


def _target(control: str, bounds: Bounds | None = None, figures: Sequence[str] = FIGURES) -> Judge:
    """Judge fairness and link use under a control in the experiments ``figures``, by four minima.

    Without ``bounds`` the minima are those of cut 2, lower in real time.
    """

    def judge(measured: Measured) -> ClaimVerdict:
        best_cut_bounds = (0.80, 0.95, 0.88, 0.93) if measured.real_time else (0.85, 0.97, 0.90, 0.95)
        min_share, min_jain, min_use, min_single_use = bounds or best_cut_bounds

        def single_sender_uses(experiments: Iterable[str], cut: str) -> list[float]:
            return [use for phase in (ALONE, AFTER) for use in _uses(measured, experiments, cut, phase)]

        holds = all_of(
            _each_within(lambda name: _shares(measured, [name], control), figures, min_share),
            _each_within(lambda name: _jain(measured, [name], control), figures, min_jain),
            _each_within(lambda name: _uses(measured, [name], control), figures, min_use),
            _each_within(lambda name: _uses(measured, [name], control, ALONE), figures, min_single_use),
            _each_within(lambda name: _uses(measured, [name], control, AFTER), figures, min_single_use),
        )

        def as_text(cut: str) -> str:
            measures = (
                _range(_shares(measured, figures, cut)),
                _range(_jain(measured, figures, cut), "plain"),
                _range(_uses(measured, figures, cut)),
                _range(single_sender_uses(figures, cut)),
            )
            return "share {}, Jain {}, use {}, alone {}".format(*measures)

        return ClaimVerdict(as_text(control), holds, as_text(BEST))

    return judge


def _fair_share(experiments: Sequence[str], phase: str, control: str) -> Judge:
    """Judge whether the tagged sender's share is fair in a phase of each experiment.

    The shares under all cuts are shown if ``control`` is a cut.
    """

    def judge(measured: Measured) -> ClaimVerdict:
        tolerance = 0.20 if measured.real_time else 0.15
        shares_text = _each(lambda cut: _shares(measured, experiments, cut, phase), summary=_range)
        if control not in CUTS or experiments[0] in PACKETS:
            shares_text = _range(_shares(measured, experiments, control, phase))
        low, high = 1 - tolerance, 1 + tolerance
        holds = _each_within(lambda name: _shares(measured, [name], control, phase), experiments, low, high)
        return ClaimVerdict(shares_text, holds, _range(_shares(measured, experiments, BEST, phase)))

    return judge


def _ratios(measured: Measured, experiment: str, control: str) -> list[float]:
    """Return the rate of the first of two senders over that of the second: a value per seed."""
    by_seed = measured.values(experiment, _as_run(experiment, control), "delivered_bps_by_sender", STEADY)
    return [first_bps / second_bps for first_bps, second_bps in by_seed.values()]


def _ratios_text(measured: Measured, experiment: str, control: str) -> str:
    """Return the text of the ratios under every cut, or of those as published if ``control`` is PUBLISHED."""
    if control == PUBLISHED:
        return show(_ratios(measured, experiment, control), "plain")
    return _each(lambda cut: _ratios(measured, experiment, cut), "plain")


def _parallel(control: str) -> Judge:
    """Judge whether a sender with eight connections gets hardly more than a sender with one connection."""
    name = "hygenicc-shares-parallel"

    def judge(measured: Measured) -> ClaimVerdict:
        ratios, uncontrolled_ratios = _ratios(measured, name, control), _ratios(measured, name, "none")
        holds = within(ratios, high=1.25 if measured.real_time else 1.15)
        ratios_text = _ratios_text(measured, name, control)
        text = f"eight get {ratios_text} times as much as one (without control: {show(uncontrolled_ratios, 'plain')})"
        return ClaimVerdict(text, holds, show(_ratios(measured, name, BEST), "plain"))

    return judge


def _weights(control: str) -> Judge:
    """Judge whether senders of weights 2 and 1 have rates of 2 to 1."""
    name = "hygenicc-shares-weights"

    def judge(measured: Measured) -> ClaimVerdict:
        ratios = _ratios(measured, name, control)
        tolerance = 0.3 if measured.real_time else 0.2
        ratios_text = _ratios_text(measured, name, control)
        holds = within(ratios, 2.0 - tolerance, 2.0 + tolerance)
        return ClaimVerdict(f"ratio {ratios_text}", holds, show(_ratios(measured, name, BEST), "plain"))

    return judge


def _swings(measured: Measured, experiments: Iterable[str], control: str) -> list[float]:
    """Return the standard deviation of the tagged sender's rate over its share: a value per experiment and seed."""
    return [
        SENDERS[name] * deviations_bps[-1] / _link_bps(measured)
        for name in experiments
        for deviations_bps in measured.values(name, _as_run(name, control), "swing_bps_by_sender", BOTH).values()
    ]


def _unstable(experiment: str, control: str) -> Judge:
    """Judge whether the tagged sender's rate varies far more without control than under ``control``.

    Each seed's deviation without control is compared with a multiple of the largest under ``control``.
    """

    def judge(measured: Measured) -> ClaimVerdict:
        uncontrolled, controlled = (_swings(measured, [experiment], law) for law in ("none", control))
        min_factor = 2.0 if measured.real_time else 3.0
        holds = above([swing - min_factor * max(controlled) for swing in uncontrolled]) if controlled else None
        text = f"{_range(uncontrolled)} of its share, {_range(controlled)} under HyGenICC"
        return ClaimVerdict(text, holds, _range(controlled))

    return judge


def _smooth(control: str, figures: Sequence[str] = FIGURES) -> Judge:
    """Judge whether the tagged sender's rate varies little, as a part of its fair share."""

    def judge(measured: Measured) -> ClaimVerdict:
        max_swing = 0.25 if measured.real_time else 0.15
        holds = _each_within(lambda name: _swings(measured, [name], control), figures, high=max_swing)
        swings_text = _each(lambda cut: _swings(measured, figures, cut), summary=_range)
        if figures is not FIGURES or control not in CUTS:
            swings_text = _range(_swings(measured, figures, control))
        return ClaimVerdict(swings_text, holds, _range(_swings(measured, FIGURES, BEST)))

    return judge


def _utilised(control: str, figures: Sequence[str] = FIGURES) -> Judge:
    """Judge the largest number of intervals in a row in which the link is below 80 % of the oracle's use."""

    def judge(measured: Measured) -> ClaimVerdict:
        def longest_runs(names: Iterable[str], cut: str) -> list[int]:
            return _all_values(measured, names, cut, "idle_longest", None)

        max_intervals = 8 if measured.real_time else 5
        holds = _each_within(lambda name: longest_runs([name], control), figures, high=max_intervals)
        best = longest_runs(FIGURES, BEST)
        titles = dict(zip(CUTS, NAMES, strict=True)) if figures is FIGURES and control in CUTS else {control: "at most"}
        longest_by_title = {title: max(longest_runs(figures, cut), default="-") for cut, title in titles.items()}
        longest_text = "; ".join(f"{name}: {longest}" for name, longest in longest_by_title.items())
        return ClaimVerdict(f"{longest_text} intervals in a row", holds, f"at most {max(best)}" if best else "-")

    return judge


def _pairs(measured: Measured) -> ClaimVerdict:
    """Judge whether congestion at one destination leaves the free rate to the other destination."""

    def shares(control: str) -> list[float]:
        """Return the part of the free rate that the uncongested destination receives: a value per seed.

        The free rate is the link rate less what the first sender delivers to the congested destination.
        """
        received_bps = measured.values("hygenicc-shares-pairs", control, "received_bps_by_receiver", STEADY)
        sent_bps = measured.values("hygenicc-shares-pairs", control, "delivered_bps_by_sender", STEADY)
        link_bps = _link_bps(measured)
        # Sender 0 sends to both receivers, the other senders only to receiver 0, the congested one.
        return [rates[1] / (link_bps - (sent_bps[seed][0] - rates[1])) for seed, rates in received_bps.items()]

    best_shares = shares(BEST)
    one_rate = show(shares(RATE_PER_VN))
    text = f"the free destination gets {_each(shares)} of the free rate; one rate for the VN: {one_rate}"
    return ClaimVerdict(text, within(best_shares, 0.95), show(best_shares))


FORM = "cut 0 with the printed constants for 55 ms, limiters of VNs, starts at C"
# Ours is judged only by runs of the product, which has neither DCTCP's nor guests' ECN: such claims stay open there.
PACKET_FORM = "packet by packet, the listing with its own constants every 0.5 ms, starts at C, limiters that drop"
KINDS = {"cut 0": LAW, "cut 1": CUTS[1], "cut 2": BEST, "a congestion time-out of 2 intervals (`timeout=2`)": SOONER}
DECIDES = "limiters that keep 20 frames instead of dropping, with a time-out of 1 ms (the paper gives none)"


def _by_packets(judge: Judge, *decides: tuple[str, Judge]) -> Published:
    """Return the judgement as published of runs packet by packet.

    ``decides`` are (name, judge) of changes that may reverse it.
    """
    return Published(PACKET_FORM, judge, "packets", decides)


def _claim(key: str, section: str, title: str, make: Callable[[str], Judge]) -> Claim:
    """Return a claim without a figure: ``make`` returns the judge of a control.

    Ours is cut 0, as published is PUBLISHED; the other laws are changes that may reverse either verdict.
    """
    decides = tuple((name, make(cut)) for name, cut in KINDS.items() if cut != LAW)
    return Claim(key, section, title, make(LAW), Published(FORM, make(PUBLISHED), decides=decides), decides)


def _figure(key: str, section: str, title: str, make: Callable[[str], Judge], printed: Callable[[str], Judge]) -> Claim:
    """Return a claim on figures: ``make`` returns the judge of a control by intervals, ``printed`` packet by packet."""
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
            lambda control, count=count: _fair_share(FIG3[count], BOTH, control),  # type: ignore[misc]
            lambda control, count=count: _fair_share(MORE[count], BOTH, control),  # type: ignore[misc]
        )
        for key, count in (("four", 4), ("eight", 8))
    ),
    _figure(
        "second",
        "V",
        "A new sender has its fair share within 15 % (Open vSwitch: 20 %) during its second second",
        lambda control: _fair_share(FIGURES, SECOND, control),
        lambda control: _fair_share(PACKETS, SECOND, control),
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
    """Return table rows, with a heading: each cut, and the paper's law at 55 ms, in the experiments of FIGURES."""
    titles = (*zip(NAMES, CUTS, strict=True), ("as published, for 55 ms", PUBLISHED))
    rows = [
        _law(measured, name, _as_run(name, cut), title)
        for name in FIGURES
        for title, cut in titles
        if measured.runs(name, _as_run(name, cut))
    ]
    return [list(HEADS), *rows] if rows else []


def _law(measured: Measured, experiment: str, control: str, title: str) -> list[str]:
    """Return the table row of one control: rates over 7 to 10 s, "alone again" over 12 to 15 s, losses over the run."""
    return [
        title,
        str(SENDERS[experiment]),
        experiment.rpartition("-")[2].upper(),
        show(_uses(measured, [experiment], control)),
        show(_jain(measured, [experiment], control), "plain"),
        show(_shares(measured, [experiment], control)),
        show(_uses(measured, [experiment], control, AFTER)),
        measured.shown(experiment, control, "lost_share"),
    ]


TABLES = (ResultTable("The law at 55 ms", laws),)

paper = Paper("hygenicc", "HyGenICC", CLAIMS, AIMS, best=BEST, best_title="HyGenICC, cut 2", tables=TABLES)
