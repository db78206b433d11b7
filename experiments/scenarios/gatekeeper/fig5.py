"""Figure 5 (section 3.2): two tenants at one bottleneck, each idle or with 1 TCP, 10 TCP or UDP: 15 cells.

Of a link of 1 Gb/s the scheduler gives 860 Mb/s: 75 % to A, 25 % to B. ``rx``: both send to one PN, and meet in the
core switch before it. ``tx``: one PN sends for both, to one PN each. All cells run one after another, as phases: the
paper does not give their duration. 5(a) is the control ``none``, 5(b) ``gatekeeper``.
"""

from itertools import product
from typing import Any

from experiments.scenarios.limits import Limits
from experiments.scenarios.scenario import Scenario
from experiments.scenarios.traffic import Source

LINK_BPS, SCHEDULED_BPS = 1_000_000_000, 860_000_000
A_BPS, B_BPS = 645_000_000, 215_000_000
TCP_KINDS = ("1 TCP", "10 TCP")
KINDS = ("none", *TCP_KINDS, "UDP")
CELLS = tuple(cell for cell in product(KINDS, KINDS) if cell != ("none", "none"))
TCP_CELLS = tuple(product(TCP_KINDS, TCP_KINDS))
UDP_CELLS = tuple(cell for cell in CELLS if "UDP" in cell)
CELL_S, GAP_S, MEASURED = 6.0, 1.0, 0.6  # a cell, the pause after it, and the last part of a cell that is measured
# The paper's law, without the lower bounds, the further recipients and the limits of pairs that the product adds.
LITERAL = "gatekeeper floor=0 served=0 targets=0 pair=0"
SILENT = "gatekeeper feedback=0"  # without congestion notifications
SAMPLE_MS = 10
SAMPLES = "window=10 hold=10"  # in samples: drops count over 100 ms, and notifications are 100 ms apart
PUBLISHED = f"{LITERAL} {SAMPLES}"
"""The paper's law on drops of the last 100 ms, for samples of 10 ms (section 3.1)."""
PUBLISHED_SILENT = f"{PUBLISHED} feedback=0"
DEFAULT_LAW = "the default's parameters"
DEVIATIONS = {
    "limits not below the share of the guarantee (`floor=1`)": f"gatekeeper served=0 targets=0 pair=0 {SAMPLES}",
    DEFAULT_LAW: f"gatekeeper {SAMPLES}",
}
"""Controls by their difference to PUBLISHED."""
SWEPT = {f"`{change}`": f"{PUBLISHED} {change}" for change in ("slope=2", "slope=10", "threshold=0.1")}
"""Controls with constants that the paper does not give, five times the default's or more; for UDP_CELLS."""


def cell_name(a: str, b: str) -> str:
    """Return the name of a cell's phase."""
    return f"A {a}, B {b}"


def _source(vid: int, kind: str, ends: tuple[int, int], span: tuple[float, float]) -> Source:
    """Return the source of one tenant in one cell: UDP at link rate, or the number of TCP flows in ``kind``."""
    if kind == "UDP":
        return Source(vid, *ends, "udp", LINK_BPS, spans=(span,))
    return Source(vid, *ends, "tcp", flows=int(kind.split()[0]), spans=(span,))


def cells(
    name: str,
    title: str,
    ends: dict[int, tuple[int, int]],
    scheduling_pn: int,
    chosen: tuple[tuple[str, str], ...] = CELLS,
    **more: Any,
) -> Scenario:
    """Return the cells; ``ends`` are sender and receiver of A (1) and B (2), ``scheduling_pn`` has the scheduler."""
    sources, phases = [], {}
    for number, (a, b) in enumerate(chosen):
        begin_s = number * (CELL_S + GAP_S)
        span = (begin_s, begin_s + CELL_S)
        sources += [_source(vid, kind, ends[vid], span) for vid, kind in ((1, a), (2, b)) if kind != "none"]
        phases[cell_name(a, b)] = (span[1] - MEASURED * CELL_S, span[1])
    limits = {1: (A_BPS, A_BPS), 2: (B_BPS, B_BPS)}
    return Scenario(
        name,
        title,
        topology="gatekeeper-hosts",
        pns=3,
        link_rate_bps=LINK_BPS,
        topology_options={"access_rates_bps": {scheduling_pn: SCHEDULED_BPS}},
        limits={vid: Limits(*both, SCHEDULED_BPS, SCHEDULED_BPS) for vid, both in limits.items()},
        sources=tuple(sources),
        duration_s=len(chosen) * (CELL_S + GAP_S),
        phases=phases,
        promise="ceilings",
        **more,
    )


CONTROLS = ("none", "static", "gatekeeper", LITERAL, SILENT, "max-min")
# (sending PN, receiving PN) of tenants A (1) and B (2).
TO_ONE = {1: (1, 3), 2: (2, 3)}
FROM_ONE = {1: (1, 2), 2: (1, 3)}

scenarios = (
    cells(
        "gatekeeper-fig5-rx",
        "two tenants send to one PN",
        TO_ONE,
        3,
        controls=CONTROLS,
        emulated_controls=("none", "gatekeeper", LITERAL),
    ),
    cells(
        "gatekeeper-fig5-rx-160",
        "two tenants send to one PN, queues of 160 packets",
        TO_ONE,
        3,
        controls=("gatekeeper", LITERAL, "max-min"),
        emulated_controls=(),
        queue_packets=160,
        seeds=3,
    ),
    *(
        cells(
            f"gatekeeper-fig5-rx-10ms{more}",
            f"two tenants send to one PN, samples of 10 ms, queues of {depth}",
            TO_ONE,
            3,
            chosen,
            controls=controls,
            emulated_controls=(),
            queue_packets=packets,
            interval_ms=SAMPLE_MS,
            seeds=3,
        )
        for more, depth, packets, chosen, controls in (
            ("", "160 packets", 160, CELLS, (PUBLISHED, PUBLISHED_SILENT, *DEVIATIONS.values())),
            ("-udp", "160 packets", 160, UDP_CELLS, tuple(SWEPT.values())),
            ("-deep", "30 ms", None, CELLS, (PUBLISHED, DEVIATIONS[DEFAULT_LAW])),
        )
    ),
    cells(
        "gatekeeper-fig5-tx-10ms",
        "one PN sends for two tenants, and schedules them, samples of 10 ms",
        FROM_ONE,
        1,
        controls=(PUBLISHED,),
        emulated_controls=(),
        uplink_queues=True,
        interval_ms=SAMPLE_MS,
        seeds=3,
    ),
    cells(
        "gatekeeper-fig5-tx",
        "one PN sends for two tenants, and schedules them",
        FROM_ONE,
        1,
        controls=("none", "gatekeeper", LITERAL, "max-min"),
        emulated_controls=("none", "gatekeeper"),
        uplink_queues=True,
    ),
    cells(
        "gatekeeper-fig5-tx-meters",
        "one PN sends for two tenants, and does not schedule them",
        FROM_ONE,
        1,
        controls=("gatekeeper", "max-min"),
        emulated_controls=("gatekeeper",),
    ),
    cells(
        "gatekeeper-fig5-tx-agent",
        "one PN sends for two tenants, and an agent on it schedules them",
        FROM_ONE,
        1,
        controls=("gatekeeper",),
        shaping="agent",
    ),
    *(
        cells(
            f"gatekeeper-fig5-tcp-{way}{more}",
            f"two tenants with nothing but TCP, {way}{', samples of 10 ms' if more else ''}",
            ends,
            pn,
            TCP_CELLS,
            controls=controls,
            emulated_controls=(),
            uplink_queues=way == "tx",
            interval_ms=interval_ms,
        )
        for way, ends, pn in (("rx", TO_ONE, 3), ("tx", FROM_ONE, 1))
        for more, interval_ms, controls in (("", 55, ("gatekeeper",)), ("-10ms", SAMPLE_MS, (PUBLISHED,)))
    ),
)
