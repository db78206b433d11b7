"""Messages, what queues drop, and how soon a tenant has its own back."""

from __future__ import annotations

import math

from experiments.evaluation.claims import ClaimVerdict, Judge, Measured, Outcome, show, within
from experiments.measure.rate_series import goodput_limit_bps
from experiments.papers.gatekeeper.tenant_claims import NAME, RX, UNKNOWN, USED_ALONE
from experiments.scenarios.gatekeeper.fig5 import LINK_BPS, LITERAL, SCHEDULED_BPS, TCP_CELLS
from experiments.scenarios.gatekeeper.queue import SENDERS

THRESHOLD_BPS = 0.02 * SCHEDULED_BPS


def quiet(measured: Measured) -> ClaimVerdict:
    """Judge whether anybody is told of congestion where all is TCP."""
    counts = {
        control: [
            one
            for way in ("rx", "tx")
            for one in measured.values(f"gatekeeper-fig5-tcp-{way}", control, "notifications").values()
        ]
        for control in (NAME, LITERAL)
    }
    if not counts[NAME]:
        return UNKNOWN
    found = f"{sum(counts[NAME])} messages in {len(TCP_CELLS)} cells (paper's parameters: {sum(counts[LITERAL])})"
    return ClaimVerdict(found, not sum(counts[NAME]))


def quiet_start(measured: Measured) -> ClaimVerdict:
    """Judge the same of many connections that start at once."""
    counts = list(measured.values("gatekeeper-queue-64", NAME, "notifications").values())
    if not counts:
        return UNKNOWN
    return ClaimVerdict(f"{show(counts, 'count')} messages in 10 s, 74 connections", within(counts, high=2))


def queue(measured: Measured) -> ClaimVerdict:
    """Judge what many connections of one VN drop, by how many PNs they come from."""
    mean, worst, messages = [], [], 0
    for senders in SENDERS:
        name = f"gatekeeper-queue-{senders}"
        lost, p99 = (list(measured.values(name, NAME, key).values()) for key in ("lost_share", "queue_drops_p99_bps"))
        if not (lost and p99):
            return UNKNOWN
        mean.append(sum(lost) / len(lost))
        worst.append(max(p99))
        messages += sum(measured.values(name, NAME, "notifications").values())
    found = "; ".join(
        f"{n} PNs {part:.2%}, {p99_bps / 1e6:.1f} Mb/s" for n, part, p99_bps in zip(SENDERS, mean, worst, strict=True)
    )
    holds = max(worst) <= THRESHOLD_BPS and mean[0] == max(mean) and mean[-1] < mean[0]
    return ClaimVerdict(f"mean, and in all but 1 % of 110 ms: {found}; {messages} messages", holds)


def recovers_within(experiment: str, max_intervals: int) -> Judge:
    """Judge after how many intervals the victim of a blast has its own again, in the worst seed."""

    def judge(measured: Measured) -> ClaimVerdict:
        def told(control: str) -> tuple[str, Outcome]:
            runs = measured.runs(experiment, control)
            if not runs:
                return "-", None
            took = [run["victim_recovery_intervals"] for run in runs]
            worst = "no recovery in at least one seed" if None in took else f"worst {max(took)} intervals"
            return worst, within([math.inf if one is None else one for one in took], high=max_intervals)

        found, holds = told(NAME)
        literal, _ = told(LITERAL)
        return ClaimVerdict(f"{found} (paper's parameters: {literal})", holds, told("max-min")[0])

    return judge


def use_of_edge(measured: Measured) -> ClaimVerdict:
    """Judge what TCP alone gets of a link without headroom."""
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
    """Judge how often meters change."""
    rates = {
        control: [
            one
            for name in (RX, "gatekeeper-blast-host", "gatekeeper-blast-host-ten")
            for one in measured.values(name, control, "meter_mods_per_s_and_pair").values()
        ]
        for control in (NAME, "max-min")
    }
    if not rates[NAME]:
        return UNKNOWN
    best = f"at most {max(rates['max-min']):.1f}" if rates["max-min"] else "-"
    return ClaimVerdict(f"at most {max(rates[NAME]):.1f} a second", max(rates[NAME]) <= 8.0, best)
