"""DETS: Distributed Ethernet Traffic Shaping. Its claims, and aims of this project that go beyond it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from experiments.evaluation.claims import (
    Aim,
    Claim,
    ClaimVerdict,
    Measured,
    Outcome,
    Paper,
    Published,
    all_of,
    show,
    within,
)
from experiments.measure.rate_series import RECOVERED_SHARE

BEST = "level"
NEARLY_NOTHING = 0.05  # of TCP's rate before the UDP
WITHIN_LIMIT = 1.02  # of the limit
PROMPT_INTERVALS = 2
PROMPT_SEEDS = 0.9  # of all seeds
ORACLE_TARGET = 0.97  # of the oracle's use of the receive limit
FE_SLOW = "fe k=0.02"
FE_PAPER = "fe k=0.07"  # the paper gives no k; with this one FE takes 39 intervals where nothing else delays it
SLOW = (20, 60)  # intervals that still are "about 40"
UNDISTURBED = 0.95  # of the rate before the UDP
UNKNOWN = ClaimVerdict("-", None)

Judge = Callable[[Measured], ClaimVerdict]


def _starving(measured: Measured) -> ClaimVerdict:
    """Judge figure 2: without control the UDP of another VLAN takes nearly all of TCP's rate."""
    runs = measured.runs("dets-fig2", "none")
    kept_parts = [run["victim_goodput_bps_during"] / run["victim_goodput_bps_before"] for run in runs]
    controlled_parts = [_victim_share(run) for run in measured.runs("dets-fig5", BEST)]
    best = f"{show(controlled_parts)} of what its limit allows" if controlled_parts else "-"
    return ClaimVerdict(f"{show(kept_parts)} of what it had before", within(kept_parts, high=NEARLY_NOTHING), best)


def _victim_share(run: dict[str, Any]) -> float:
    """Return TCP's goodput during the UDP blast over the goodput that its limit allows, in one run."""
    return float(run["victim_goodput_bps_during"] / run["victim_goodput_limit_bps"])


def _isolation(control: str) -> Judge:
    """Judge figure 5: TCP gets 95 % of its limit during the UDP blast, and UDP gets its own limit."""

    def judged(measured: Measured, control: str) -> tuple[str, Outcome]:
        """Return the result as text, and whether the statement holds, under one control."""
        runs = measured.runs("dets-fig5", control)
        tcp_shares = [_victim_share(run) for run in runs]
        udp_shares = [run["aggressor_received_bps_during"] / run["aggressor_limit_bps"] for run in runs]
        holds = all_of(within(tcp_shares, RECOVERED_SHARE), within(udp_shares, RECOVERED_SHARE, WITHIN_LIMIT))
        return f"TCP {show(tcp_shares)}, UDP {show(udp_shares)} of their limits", holds

    def judge(measured: Measured) -> ClaimVerdict:
        return ClaimVerdict(*judged(measured, control), judged(measured, BEST)[0])

    return judge


def _recovery_times(measured: Measured, control: str) -> list[float]:
    """Return the number of intervals until TCP is at 95 % of its limit again: a value per seed; infinite: never."""
    runs = measured.runs("dets-fig5", control)
    return [math.inf if run["victim_recovery_intervals"] is None else run["victim_recovery_intervals"] for run in runs]


def _recovery(control: str) -> Judge:
    """Judge figure 5: TCP regains its limit within PROMPT_INTERVALS after the UDP blast begins."""

    def text(intervals: list[float]) -> str:
        if not intervals:
            return "-"
        worst = "no recovery in at least one seed" if math.inf in intervals else f"worst {max(intervals):g} intervals"
        return f"{sum(count <= PROMPT_INTERVALS for count in intervals)} of {len(intervals)} seeds, {worst}"

    def judge(measured: Measured) -> ClaimVerdict:
        intervals, best_intervals = _recovery_times(measured, control), _recovery_times(measured, BEST)
        return ClaimVerdict(text(intervals), within(intervals, high=PROMPT_INTERVALS), text(best_intervals))

    return judge


def _prompt(measured: Measured) -> ClaimVerdict:
    """Judge whether TCP regains its limit within one interval in nine of ten seeds."""
    intervals = _recovery_times(measured, "fp")
    prompt_seeds = sum(count <= 1 for count in intervals)
    holds = prompt_seeds >= PROMPT_SEEDS * len(intervals) if intervals else None
    return ClaimVerdict(f"{prompt_seeds} of {len(intervals)} seeds", holds)


def _use_against_fair_share(measured: Measured) -> ClaimVerdict:
    """Judge figure 6: RAA-SP and RAA-FP each use more of the receive limit than RAA-FS."""
    uses = {control: measured.shown("dets-fig6", control, "use_of_oracle") for control in ("sp", "fp", "fs", BEST)}
    holds = all_of(*(measured.more("dets-fig6", algorithm, "fs", "use_of_oracle") for algorithm in ("sp", "fp")))
    return ClaimVerdict(f"SP {uses['sp']}, FP {uses['fp']}, FS {uses['fs']} of the oracle's", holds, uses[BEST])


def _slow_over_fast(measured: Measured) -> ClaimVerdict:
    """Judge figure 6: RAA-SP uses more of the receive limit than RAA-FP."""
    uses = [measured.shown("dets-fig6", control, "use_of_oracle") for control in ("sp", "fp", BEST)]
    return ClaimVerdict(f"SP {uses[0]}, FP {uses[1]}", measured.more("dets-fig6", "sp", "fp", "use_of_oracle"), uses[2])


def _spread(measured: Measured) -> ClaimVerdict:
    """Judge figure 6: grants differ more between senders under RAA-SP than under RAA-FP."""
    spreads = [measured.shown("dets-fig6", control, "grant_spread") for control in ("fp", "sp", BEST)]
    holds = measured.more("dets-fig6", "sp", "fp", "grant_spread")
    return ClaimVerdict(f"FP {spreads[0]}, SP {spreads[1]} of the mean grant", holds, spreads[2])


def _slow(explicit: str) -> Judge:
    """Judge whether RAA-FE, as control ``explicit`` with its gain k, needs 20 to 60 intervals until all grants settle.

    The times with other gains, and under RAA-FP, are shown as well.
    """

    def judge(measured: Measured) -> ClaimVerdict:
        intervals = {
            control: list(measured.values("dets-fe-convergence", control, "settled_after", "five send").values())
            for control in dict.fromkeys(("fe", "fe k=0.2", "fe k=0.1", FE_PAPER, "fe k=0.05", explicit, "fp", BEST))
        }
        if not intervals[explicit]:
            runs = measured.runs("dets-fe-convergence", explicit)
            return ClaimVerdict("did not settle" if runs else "-", None)
        gain_of = {"fe": "k=0.5", **{fe: fe.removeprefix("fe ") for fe in intervals if fe.startswith("fe ")}}
        shown = [f"{show(intervals[fe], 'count')} with {gain}" for fe, gain in gain_of.items() if intervals[fe]]
        found = f"intervals: {', '.join(shown)}; FP {show(intervals['fp'], 'count')}"
        return ClaimVerdict(found, within(intervals[explicit], *SLOW), f"{show(intervals[BEST], 'count')} intervals")

    return judge


def _uses_least(explicit: str) -> Judge:
    """Judge figure 6: RAA-FE, as control ``explicit``, uses less of the receive limit than SP, FP and FS."""

    def judge(measured: Measured) -> ClaimVerdict:
        others = ("sp", "fp", "fs")
        uses = {control: measured.shown("dets-fig6", control, "use_of_oracle") for control in (explicit, *others, BEST)}
        holds = all_of(*(measured.more("dets-fig6", other, explicit, "use_of_oracle") for other in others))
        found = f"FE {uses[explicit]}, SP {uses['sp']}, FP {uses['fp']}, FS {uses['fs']}"
        return ClaimVerdict(found, holds, uses[BEST])

    return judge


def _swings(explicit: str) -> Judge:
    """Judge figure 6: the received rate varies more under RAA-FE, as control ``explicit``, than under RAA-FP."""

    def judge(measured: Measured) -> ClaimVerdict:
        controls = (explicit, "fp", BEST)
        swings = {control: measured.shown("dets-fig6", control, "received_swing") for control in controls}
        holds = measured.more("dets-fig6", explicit, "fp", "received_swing")
        return ClaimVerdict(f"FE {swings[explicit]}, FP {swings['fp']} of the limit", holds, swings[BEST])

    return judge


def _trade_off(measured: Measured) -> ClaimVerdict:
    """Judge whether a larger ``d`` under RAA-FP lowers the use of the receive limit and raises Jain's index."""
    controls = ("fp d=1.1", "fp d=1.5", "fp", "fp d=4", "fp d=10")
    uses = [measured.mean("dets-fig6", control, "use_of_oracle") for control in controls]
    jain_indices = [measured.mean("dets-fig6", control, "jain_backlogged") for control in controls]
    if None in uses or None in jain_indices:
        return ClaimVerdict("-", None)
    holds = all_of(
        measured.more("dets-fig6", controls[0], controls[-1], "use_of_oracle"),
        measured.more("dets-fig6", controls[-1], controls[0], "jain_backlogged"),
    )
    rows = zip(("1.1", "1.5", "2", "4", "10"), uses, jain_indices, strict=True)
    found = "; ".join(f"d={d}: use {use:.1%}, Jain {jain:.3f}" for d, use, jain in rows if use and jain)
    use, jain = (measured.mean("dets-fig6", BEST, name) for name in ("use_of_oracle", "jain_backlogged"))
    return ClaimVerdict(found, holds, f"use {use:.1%}, Jain {jain:.3f}" if use and jain else "-")


def _independent(measured: Measured) -> ClaimVerdict:
    """Judge figure 1: each of five TCP VNs keeps its rate while UDP is sent to one PN, and then to all PNs."""

    def judged(control: str) -> tuple[str, Outcome]:
        alone_bps = measured.values("dets-fig1", control, "received_bps_by_receiver", "TCP alone")
        kept_by_phase = []
        for phase in ("one flooded", "all flooded"):
            flooded_bps = measured.values("dets-fig1", control, "received_bps_by_receiver", phase)
            seeds = [seed for seed in alone_bps if seed in flooded_bps]
            # TCP's five VNs are the first receivers: its sources are the first ones.
            kept_by_phase.append(
                [min(flooded_bps[seed][vn] / alone_bps[seed][vn] for vn in range(5)) for seed in seeds]
            )
        found = f"least of five TCP VNs keeps {show(kept_by_phase[0])}, then {show(kept_by_phase[1])} of its rate"
        return found, all_of(*(within(kept, UNDISTURBED) for kept in kept_by_phase))

    found, holds = judged("fp")
    return ClaimVerdict(found, holds, judged(BEST)[0])


def _behind_edges(measured: Measured) -> ClaimVerdict:
    """Judge figure 7: TCP keeps its rate while UDP from behind several edge switches sends."""

    def judged(control: str) -> tuple[str, Outcome]:
        alone_bps = measured.values("dets-fig7", control, "received_bps_by_receiver", "TCP alone")
        with_udp_bps = measured.values("dets-fig7", control, "received_bps_by_receiver", "with UDP")
        kept = [with_udp_bps[seed][0] / alone_bps[seed][0] for seed in alone_bps if seed in with_udp_bps]
        return f"TCP keeps {show(kept)} of its rate", within(kept, UNDISTURBED)

    found, holds = judged("fp")
    return ClaimVerdict(found, holds, judged(BEST)[0])


def _wasted(measured: Measured) -> ClaimVerdict:
    """Judge section III.A: RAA-SP and RAA-FP use capacity that a sender releases, and RAA-FS does not."""
    phase, controls = "first stopped", ("static", "fs", "sp", "fp", BEST)
    uses = {control: measured.shown("dets-example", control, "use_of_oracle", phase) for control in controls}
    holds = all_of(*(measured.more("dets-example", other, "fs", "use_of_oracle", phase) for other in ("sp", "fp")))
    found = f"FS {uses['fs']}, SP {uses['sp']}, FP {uses['fp']} of the oracle's (static limits {uses['static']})"
    return ClaimVerdict(found, holds, uses[BEST])


def _fairness(measured: Measured) -> ClaimVerdict:
    """Judge section III.A: Jain's index is higher under RAA-FP than under RAA-SP."""
    phase = "others want more"
    jain = [measured.shown("dets-example", c, "jain_backlogged", phase, "plain") for c in ("sp", "fp", BEST)]
    holds = measured.more("dets-example", "fp", "sp", "jain_backlogged", phase)
    return ClaimVerdict(f"Jain's index: SP {jain[0]}, FP {jain[1]}", holds, jain[2])


def _oracle(measured: Measured) -> ClaimVerdict:
    """Judge whether Fair Level uses 97 % of what the oracle uses in figure 6."""
    uses = list(measured.values("dets-fig6", BEST, "use_of_oracle").values())
    paper_uses = [measured.mean("dets-fig6", control, "use_of_oracle") for control in ("fs", "sp", "fp", "fe")]
    best_of_paper = max(use or 0.0 for use in paper_uses)
    found = f"{show(uses)} (best of the paper's {best_of_paper:.1%})"
    return ClaimVerdict(found, within(uses, ORACLE_TARGET), show(uses))


PAPER_FORM = "no queue at the receiver, grants two intervals late"


def _claim(key: str, section: str, title: str, judge: Judge) -> Claim:
    """Return a claim that the same judge judges under the product's conditions and under the paper's."""
    return Claim(key, section, title, judge, Published(PAPER_FORM, judge, "paper"))


def _fe_claim(key: str, section: str, title: str, make: Callable[[str], Judge]) -> Claim:
    """Return a claim about RAA-FE: k = 0.5 in the product, k = 0.07 as published; ``make`` is given the control.

    The paper gives no k, so every gain is shown as a change that may reverse the verdict.
    """
    control_by_gain = {"k=0.5": "fe", "k=0.07": FE_PAPER, "k=0.02": FE_SLOW}
    decides = tuple((gain, make(control)) for gain, control in control_by_gain.items())
    return Claim(
        key, section, title, make("fe"), Published(f"{PAPER_FORM}, k = 0.07", make(FE_PAPER), "paper", decides), decides
    )


CLAIMS = (
    Claim(
        "starving",
        "I, fig. 2",
        "Figure 2, without control: UDP of another VLAN leaves TCP less than 5 % of its rate",
        _starving,
    ),
    _claim(
        "isolation",
        "IV, fig. 5",
        "Figure 5, FP, d = 2: TCP gets 95 % of its limit of 400 Mb/s, UDP 95 to 102 % of 500 Mb/s",
        _isolation("fp"),
    ),
    _claim(
        "recovery",
        "IV, fig. 5",
        "Figure 5, FP: TCP regains its limit within two intervals after the UDP blast begins",
        _recovery("fp"),
    ),
    _claim(
        "use",
        "IV, fig. 6",
        "Figure 6: SP and FP use a larger part of the receive limit than FS",
        _use_against_fair_share,
    ),
    _claim(
        "slow-over-fast", "IV, fig. 6", "Figure 6: SP uses a larger part of the receive limit than FP", _slow_over_fast
    ),
    _claim("spread", "IV, fig. 6", "Figure 6: grants vary less between senders under FP than under SP", _spread),
    _fe_claim(
        "explicit-slow",
        "III.A",
        "FE: 20 to 60 intervals until all grants are at the fair rate (paper: 40)",
        _slow,
    ),
    _fe_claim(
        "explicit-use",
        "IV, fig. 6",
        'Figure 6, "performs poorly": FE uses a smaller part of the receive limit than SP, FP and FS',
        _uses_least,
    ),
    _fe_claim(
        "explicit-unrest",
        "IV, fig. 6",
        "Figure 6: the received rate swings more under FE than under FP",
        _swings,
    ),
    _claim(
        "trade-off", "III.A", "FP: use of the limit falls and Jain's index rises from d = 1.1 to d = 10", _trade_off
    ),
    _claim("wasted", "III.A", "Example of III.A: SP and FP use capacity that a sender releases, FS does not", _wasted),
    _claim("fairness", "III.A", "Example of III.A: Jain's index is higher under FP than under SP", _fairness),
    _claim(
        "independent",
        "I, II",
        "Figure 1, FP: five TCP VNs keep 95 % of their rates while UDP floods one PN, then all PNs",
        _independent,
    ),
    _claim(
        "edges",
        "V, fig. 7",
        "Figure 7, FP, senders behind several edge switches: TCP keeps 95 % of its rate while UDP sends",
        _behind_edges,
    ),
)

AIMS = (
    Aim(
        "prompt",
        "Figure 5, FP: TCP regains its limit within one interval after the UDP blast begins, in 9 of 10 seeds",
        _prompt,
    ),
    Aim("oracle", "Figure 6, Fair Level: 97 % of the oracle's use of the receive limit", _oracle),
)


def _with_gain(claim: Claim) -> Claim:
    """Return a claim about FE, judged with k = 0.07, which fits the paper's text best; the paper gives no k."""
    assert isinstance(claim.published, Published)
    return replace(claim, key=f"{claim.key}-k", title=f"{claim.title}, k = 0.07", judge=claim.published.judge)


def _under_control(key: str, control: str, title: str) -> Claim:
    """Return a copy of the claim ``key`` (isolation or recovery), judged under ``control``, which ``title`` names."""
    judge = {"isolation": _isolation, "recovery": _recovery}[key](control)
    claim = _BY_KEY[key]
    return replace(claim, key=f"{key}-{control}", title=claim.title.replace("FP, d = 2", title), judge=judge)


_BY_KEY = {claim.key: claim for claim in CLAIMS}
COMPARED = (
    *(_BY_KEY[key] for key in ("isolation", "recovery")),
    _under_control("isolation", "static", "static meters"),
    *(_BY_KEY[key] for key in ("use", "slow-over-fast", "spread", "wasted", "fairness")),
    _BY_KEY["explicit-slow"],
    _with_gain(_BY_KEY["explicit-slow"]),
    _BY_KEY["explicit-use"],
    _with_gain(_BY_KEY["explicit-use"]),
    _BY_KEY["explicit-unrest"],
    _with_gain(_BY_KEY["explicit-unrest"]),
    *(_BY_KEY[key] for key in ("independent", "edges")),
)
"""The claims that are judged under several conditions; those about FE with two gains k, 0.5 and 0.07."""

paper = Paper("dets", "DETS", CLAIMS, AIMS, COMPARED, BEST, "Fair Level")
