"""DETS, section V: a host that can shape does so in the place of its port. Both placements on the same traffic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.evaluation.claims import Claim, ClaimVerdict, Measured, Paper, ResultTable, show
from experiments.measure.rate_series import RECOVERED_SHARE
from experiments.scenarios.agents import FIG5, PLACEMENTS, UPLINK

CONTROL = "fp"
LEAST_UDP, MOST_UDP = 0.98, 1.02
PROMPT_INTERVALS = 2
FEWER = 0.1
STARVED = 0.7


def _tcp(run: dict[str, Any]) -> float:
    return float(run["victim_goodput_bps_during"] / run["victim_goodput_limit_bps"])


def _udp(run: dict[str, Any]) -> float:
    return float(run["aggressor_received_bps_during"] / run["aggressor_limit_bps"])


def _isolation(shaping: str) -> Callable[[Measured], ClaimVerdict]:
    def judge(measured: Measured) -> ClaimVerdict:
        runs = measured.runs(f"{FIG5}-{shaping}", CONTROL)
        if not runs:
            return ClaimVerdict("-", None)
        tcp, udp = [_tcp(run) for run in runs], [_udp(run) for run in runs]
        good = min(tcp) >= RECOVERED_SHARE and all(LEAST_UDP <= one <= MOST_UDP for one in udp)
        return ClaimVerdict(f"TCP {show(tcp)}, UDP {show(udp)} of their limits", good)

    return judge


def _prompt(measured: Measured) -> ClaimVerdict:
    runs = measured.runs(f"{FIG5}-agent", CONTROL)
    if not runs:
        return ClaimVerdict("-", None)
    took = [run["victim_recovery_intervals"] for run in runs]
    worst = "never" if None in took else str(max(took))
    return ClaimVerdict(f"worst {worst}", all(one is not None and one <= PROMPT_INTERVALS for one in took))


def _retransmitted(measured: Measured) -> ClaimVerdict:
    means = {one: measured.mean(f"{FIG5}-{one}", CONTROL, "tcp_retransmitted_share") for one in ("meter", "agent")}
    meter, agent = means["meter"], means["agent"]
    if meter is None or agent is None:
        return ClaimVerdict("-", None)
    return ClaimVerdict(f"{agent:.2%} of the segments, with meters {meter:.2%}", agent <= FEWER * meter)


def _uplink(measured: Measured) -> ClaimVerdict:
    kept = {one: [_tcp(run) for run in measured.runs(f"{UPLINK}-{one}", CONTROL)] for one in ("meter", "agent")}
    if not all(kept.values()):
        return ClaimVerdict("-", None)
    found = f"TCP keeps {show(kept['agent'])} of its limit, with meters {show(kept['meter'])}"
    return ClaimVerdict(found, min(kept["agent"]) >= RECOVERED_SHARE and max(kept["meter"]) < STARVED)


def _rows(measured: Measured) -> list[list[str]]:
    heads = ["shaped by", "seeds", "TCP", "UDP", "back after, intervals", "TCP's segments sent again", "meters changed"]
    rows = []
    for shaping, title in PLACEMENTS.items():
        name = f"{FIG5}-{shaping}"
        if runs := measured.runs(name, CONTROL):
            took = [run["victim_recovery_intervals"] for run in runs]
            back = "never" if None in took else f"at most {max(took)}"
            again = measured.shown(name, CONTROL, "tcp_retransmitted_share")
            changed = show(measured.noted(name, CONTROL, "meter_mods"), "count")
            shares = show([_tcp(run) for run in runs]), show([_udp(run) for run in runs])
            rows.append([title, str(len(runs)), *shares, back, again, changed])
    return [heads, *rows] if rows else []


CLAIMS = (
    Claim("agent", "V", "hosts shape, no meter: each VLAN keeps its limit (UDP within 2 %)", _isolation("agent")),
    Claim("mixed", "V", "the same where every second host does, and meters elsewhere", _isolation("mixed")),
    Claim("prompt", "V", "with agents TCP is back at its limit within two intervals", _prompt),
    Claim("retransmitted", "-", "aim: TCP sends a tenth as much again as with meters", _retransmitted),
    Claim("uplink", "V", "a VN's UDP cannot take the uplink from another VN of its host; with meters it can", _uplink),
)

paper = Paper(
    "agents",
    "DETS, section V: shaping at hosts",
    CLAIMS,
    tables=(ResultTable("Figure 5 by both placements", _rows),),
)
