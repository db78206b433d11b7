"""Section 3.1: drops of queues of 160 packets with 256 TCP connections to one VN, from 1 to 16 PNs.

The receiver's scheduler gives 956 Mb/s, as the paper's 900 of 941 Mb/s of goodput. Deviation: 20 s, for the paper's 60;
from the second second on rates are steady.

Also 64 connections of one tenant against ten of another, started at once: their drops must not count as congestion for
long.
"""

from experiments.scenarios.gatekeeper.fig5 import A_BPS, B_BPS, LINK_BPS, PUBLISHED, SAMPLE_MS, SCHEDULED_BPS
from experiments.scenarios.limits import Limits
from experiments.scenarios.scenario import Scenario
from experiments.scenarios.traffic import Source

CONNECTIONS, SENDERS = 256, (1, 2, 4, 8, 16)
RECEIVER_BPS = 956_000_000
DURATION_S = 20.0
TOGETHER_S = 10.0
SAMPLED = "-10ms"
INTERVALS = {"": (55, ("gatekeeper",)), SAMPLED: (SAMPLE_MS, (PUBLISHED,))}
"""The control interval and its controls, by the end of the scenario's name."""


def _split(senders: int, more: str) -> Scenario:
    """Return the scenario of one receiver with ``senders`` PNs; ``more`` names the control interval."""
    pns = senders + 1
    interval_ms, controls = INTERVALS[more]
    return Scenario(
        f"gatekeeper-queue-{senders}{more}",
        f"{CONNECTIONS} TCP connections from {senders} PNs to one",
        topology="gatekeeper-hosts",
        pns=pns,
        link_rate_bps=LINK_BPS,
        topology_options={"access_rates_bps": {pns: RECEIVER_BPS}},
        limits={1: Limits(A_BPS, A_BPS, RECEIVER_BPS, RECEIVER_BPS)},
        sources=tuple(Source(1, number, pns, "tcp", flows=CONNECTIONS // senders) for number in range(1, senders + 1)),
        duration_s=DURATION_S,
        phases={"after the start": (1.0, DURATION_S)},
        promise="ceilings",
        controls=controls,
        emulated_controls=(),
        queue_packets=160,
        seeds=3,
        interval_ms=interval_ms,
    )


def _many(more: str) -> Scenario:
    """Return the scenario of many flows to one receiver; ``more`` names the control interval."""
    interval_ms, controls = INTERVALS[more]
    return Scenario(
        f"gatekeeper-queue-64{more}",
        "64 TCP connections of one tenant against ten of another",
        topology="gatekeeper-hosts",
        pns=3,
        link_rate_bps=LINK_BPS,
        topology_options={"access_rates_bps": {3: SCHEDULED_BPS}},
        limits={vid: Limits(bps, bps, SCHEDULED_BPS, SCHEDULED_BPS) for vid, bps in ((1, A_BPS), (2, B_BPS))},
        sources=(Source(1, 1, 3, "tcp", flows=10), Source(2, 2, 3, "tcp", flows=64)),
        duration_s=TOGETHER_S,
        promise="ceilings",
        controls=controls,
        emulated_controls=(),
        seeds=3,
        interval_ms=interval_ms,
    )


scenarios = tuple(case for more in INTERVALS for case in (*(_split(senders, more) for senders in SENDERS), _many(more)))
