"""DETS, section V: a host that can shape does so instead of a meter at its port. Both on the same traffic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from experiments.evaluation.claims import (
    Aim,
    Claim,
    ClaimVerdict,
    Measured,
    NotRun,
    Paper,
    ResultTable,
    all_of,
    show,
    within,
)
from experiments.measure.rate_series import RECOVERED_SHARE
from experiments.scenarios.agents import FIG5, PLACEMENTS, UPLINK

CONTROL = "fp"
MIN_UDP, MAX_UDP = 0.98, 1.02  # of UDP's limit
PROMPT_INTERVALS = 2
FEWER = 0.1  # of TCP's retransmissions with meters
STARVED = 0.7  # of TCP's limit


def _tcp(run: dict[str, Any]) -> float:
    """Return TCP's goodput during the UDP blast over the goodput that its limit allows."""
    return float(run["victim_goodput_bps_during"] / run["victim_goodput_limit_bps"])


def _udp(run: dict[str, Any]) -> float:
    """Return the UDP rate received during the blast over UDP's limit."""
    return float(run["aggressor_received_bps_during"] / run["aggressor_limit_bps"])


def _isolation(shaping: str) -> Callable[[Measured], ClaimVerdict]:
    """Judge figure 5 with a value of ``--shaping``: TCP and UDP both get their limits."""

    def judge(measured: Measured) -> ClaimVerdict:
        runs = measured.runs(f"{FIG5}-{shaping}", CONTROL)
        if not runs:
            return ClaimVerdict("-", None)
        tcp_shares, udp_shares = [_tcp(run) for run in runs], [_udp(run) for run in runs]
        holds = all_of(within(tcp_shares, RECOVERED_SHARE), within(udp_shares, MIN_UDP, MAX_UDP))
        return ClaimVerdict(f"TCP {show(tcp_shares)}, UDP {show(udp_shares)} of their limits", holds)

    return judge


def _prompt(measured: Measured) -> ClaimVerdict:
    """Judge whether TCP regains its limit within PROMPT_INTERVALS after the UDP blast begins, if hosts shape."""
    runs = measured.runs(f"{FIG5}-agent", CONTROL)
    if not runs:
        return ClaimVerdict("-", None)
    recoveries = [run["victim_recovery_intervals"] for run in runs]
    worst = "no recovery in at least one seed" if None in recoveries else f"worst {max(recoveries)} intervals"
    delays = [math.inf if intervals is None else intervals for intervals in recoveries]
    return ClaimVerdict(worst, within(delays, high=PROMPT_INTERVALS))


def _retransmitted(measured: Measured) -> ClaimVerdict:
    """Judge whether TCP, if hosts shape, retransmits at most a tenth of what it retransmits with meters."""
    by_agent, by_meter = (
        measured.mean(f"{FIG5}-{shaping}", CONTROL, "tcp_retransmitted_share") for shaping in ("agent", "meter")
    )
    if by_meter is None or by_agent is None:
        return ClaimVerdict("-", None)
    return ClaimVerdict(f"{by_agent:.2%} of the segments, with meters {by_meter:.2%}", by_agent <= FEWER * by_meter)


def _uplink(measured: Measured) -> ClaimVerdict:
    """Judge one host's uplink: shaping on the host protects TCP from another VN's UDP; meters at the switch do not."""
    tcp_shares = {
        shaping: [_tcp(run) for run in measured.runs(f"{UPLINK}-{shaping}", CONTROL)] for shaping in ("meter", "agent")
    }
    if not all(tcp_shares.values()):
        return ClaimVerdict("-", None)
    found = f"TCP keeps {show(tcp_shares['agent'])} of its limit, with meters {show(tcp_shares['meter'])}"
    return ClaimVerdict(
        found, all_of(within(tcp_shares["agent"], RECOVERED_SHARE), within(tcp_shares["meter"], high=STARVED))
    )


def _rows(measured: Measured) -> list[list[str]]:
    """Return the table, headings first: a row for each of PLACEMENTS (who shapes) that has runs; [] without any."""
    heads = ["shaped by", "seeds", "TCP", "UDP", "back after, intervals", "TCP's segments sent again", "meters changed"]
    rows = []
    for shaping, title in PLACEMENTS.items():
        name = f"{FIG5}-{shaping}"
        if runs := measured.runs(name, CONTROL):
            recoveries = [run["victim_recovery_intervals"] for run in runs]
            recovery_text = "never" if None in recoveries else f"at most {max(recoveries)}"
            retransmitted = measured.shown(name, CONTROL, "tcp_retransmitted_share")
            meter_mods = show(measured.noted(name, CONTROL, "meter_mods"), "count")
            shares = show([_tcp(run) for run in runs]), show([_udp(run) for run in runs])
            rows.append([title, str(len(runs)), *shares, recovery_text, retransmitted, meter_mods])
    return [heads, *rows] if rows else []


PROPOSED = NotRun("an experiment in the paper, which only proposes section V")

CLAIMS = (
    Claim(
        "agent",
        "V",
        "Figure 5, all hosts shape, no meters: TCP and UDP VLANs keep their limits (UDP within 2 %)",
        _isolation("agent"),
        PROPOSED,
    ),
    Claim(
        "mixed",
        "V",
        "Figure 5, every second host shapes, meters for the others: both VLANs keep their limits (UDP within 2 %)",
        _isolation("mixed"),
        PROPOSED,
    ),
)

AIMS = (
    Aim(
        "prompt",
        "Figure 5, all hosts shape: TCP regains its limit within two intervals after the UDP blast begins",
        _prompt,
    ),
    Aim(
        "retransmitted",
        "With shaping on hosts TCP retransmits at most a tenth of the segments that it retransmits with meters",
        _retransmitted,
    ),
    Aim(
        "uplink",
        "One host's uplink: shaping on the host protects TCP from another VN's UDP; meters at the switch do not",
        _uplink,
    ),
)

paper = Paper(
    "agents",
    "DETS, section V: shaping at hosts",
    CLAIMS,
    AIMS,
    tables=(ResultTable("Figure 5 by both placements", _rows),),
)
