"""Notifications, queue drops, and the time until a tenant regains its guarantee."""

from __future__ import annotations

import math

from experiments.evaluation.claims import ClaimVerdict, Judge, Measured, Outcome, all_of, show, within
from experiments.measure.rate_series import goodput_limit_bps
from experiments.papers.gatekeeper.tenant_claims import NAME, RX, UNKNOWN, USED_ALONE
from experiments.scenarios.gatekeeper.fig5 import LINK_BPS, LITERAL, SAMPLES, TCP_CELLS
from experiments.scenarios.gatekeeper.queue import SAMPLED, SENDERS

THRESHOLD_BPS = 0.02 * LINK_BPS  # of queue drops


def _ending(control: str) -> str:
    """Return the end of an experiment's name: SAMPLED for a control with samples of 10 ms."""
    return SAMPLED if SAMPLES in control else ""


def quiet(control: str) -> Judge:
    """Judge whether receivers send no notification in the TCP cells of figure 5."""

    def judge(measured: Measured) -> ClaimVerdict:
        names = [f"gatekeeper-fig5-tcp-{way}{_ending(control)}" for way in ("rx", "tx")]
        counts = [list(measured.values(name, control, "notifications").values()) for name in names]
        if not all(counts):
            return UNKNOWN
        text = f"{sum(map(sum, counts))} notifications in {len(TCP_CELLS)} cells, {len(counts[0])} seeds"
        return ClaimVerdict(text, all_of(*(within(count, high=0.0) for count in counts)))

    return judge


def quiet_start(control: str) -> Judge:
    """Judge the number of notifications when many connections start at once: at most 2."""

    def judge(measured: Measured) -> ClaimVerdict:
        counts = list(measured.values(f"gatekeeper-queue-64{_ending(control)}", control, "notifications").values())
        return ClaimVerdict(f"{show(counts, 'count')} notifications in 10 s, 74 connections", within(counts, high=2))

    return judge


def queue(control: str, span: str = "worst") -> Judge:
    """Judge the receiver's queue drops with 256 connections, spread over each number of sending PNs in SENDERS.

    Drops must stay below THRESHOLD_BPS, and be fewer on average from the most PNs than from the fewest. ``span``
    "worst" covers the whole run, "settled" leaves out the first second.
    """

    def judge(measured: Measured) -> ClaimVerdict:
        names = [f"gatekeeper-queue-{senders}{_ending(control)}" for senders in SENDERS]

        def drops_mbps(kind: str) -> list[list[float]]:
            """Return the queue drops by seed, for each number in SENDERS."""
            drops_bps = (measured.values(name, control, f"queue_drops_{kind}_bps").values() for name in names)
            return [[rate_bps / 1e6 for rate_bps in by_seed] for by_seed in drops_bps]

        worst_mbps, mean_mbps = drops_mbps(span), drops_mbps("mean")
        if not (all(worst_mbps) and all(mean_mbps)):
            return UNKNOWN
        text = "; ".join(
            f"{senders} PNs {show(means, 'count')}, {show(maxima, 'count')} Mb/s"
            for senders, means, maxima in zip(SENDERS, mean_mbps, worst_mbps, strict=True)
        )
        decrease = within([few - many for few, many in zip(mean_mbps[0], mean_mbps[-1], strict=False)], 0.0)
        holds = all_of(decrease, *(within(rates, high=THRESHOLD_BPS / 1e6) for rates in worst_mbps))
        return ClaimVerdict(f"mean, and worst 110 ms: {text}", holds)

    return judge


def recovers_within(experiment: str, max_intervals: int) -> Judge:
    """Judge the number of intervals until the victim of a UDP blast has regained its guarantee."""

    def judge(measured: Measured) -> ClaimVerdict:
        def describe(control: str) -> tuple[str, Outcome]:
            """Return the worst recovery as text, and the outcome, under one control."""
            runs = measured.runs(experiment, control)
            if not runs:
                return "-", None
            recoveries = [run["victim_recovery_intervals"] for run in runs]
            worst = "no recovery in at least one seed" if None in recoveries else f"worst {max(recoveries)} intervals"
            return worst, within([math.inf if count is None else count for count in recoveries], high=max_intervals)

        text, holds = describe(NAME)
        literal, _ = describe(LITERAL)
        return ClaimVerdict(f"{text} (paper's parameters: {literal})", holds, describe("max-min")[0])

    return judge


def use_of_edge(measured: Measured) -> ClaimVerdict:
    """Judge whether TCP alone gets USED_ALONE of a link that keeps no headroom."""
    parts = {
        control: [
            run["victim_goodput_bps_before"] / measured.scale / goodput_limit_bps(LINK_BPS)
            for run in measured.runs("gatekeeper-blast-edge", control)
        ]
        for control in (NAME, "max-min")
    }
    if not parts[NAME]:
        return UNKNOWN
    return ClaimVerdict(f"{show(parts[NAME])} of the link", within(parts[NAME], USED_ALONE), show(parts["max-min"]))


def meter_mods(measured: Measured) -> ClaimVerdict:
    """Judge the largest number of meter-mods per second and pair over experiments and seeds: at most 8."""
    rates = {
        control: [
            rate
            for name in (RX, "gatekeeper-blast-host", "gatekeeper-blast-host-ten")
            for rate in measured.values(name, control, "meter_mods_per_s_and_pair").values()
        ]
        for control in (NAME, "max-min")
    }
    if not rates[NAME]:
        return UNKNOWN
    best = f"at most {max(rates['max-min']):.1f}" if rates["max-min"] else "-"
    return ClaimVerdict(f"at most {max(rates[NAME]):.1f} a second", max(rates[NAME]) <= 8.0, best)
