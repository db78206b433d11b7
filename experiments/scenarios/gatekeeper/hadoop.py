"""Figures 6 and 7 (section 3.3): a Hadoop job next to pairs of netperf, ten TCP flows each (6) or UDP (7).

A stand-in for the job: each of its VNs sends a file to each other VN, as a shuffle does. The paper has 26 VNs and 13
pairs; 14 and 7 keep a run short. So does a quarter of the time: of the paper's 41 s alone 20 s are map and reduce, in
which the job sends nothing. Here they come before the shuffle, since the network cannot tell them apart. The shuffle
takes the other 21 s of the 860 Mb/s that a host's scheduler gives. The job has 25, 50 or 75 % of them, the pairs have
the rest, both ways. Three seeds stand for the paper's five runs.
"""

from typing import Any

from experiments.measure.frame_sizes import TCP_PAYLOAD_BYTES, TCP_WIRE_BYTES
from experiments.scenarios.gatekeeper.fig5 import LINK_BPS, LITERAL, SCHEDULED_BPS, SILENT
from experiments.scenarios.limits import Limits
from experiments.scenarios.scenario import Scenario
from experiments.scenarios.traffic import Source

PNS = 14
SHARES = (25, 50, 75)
KINDS = ("tcp", "udp")
ALONE = "gatekeeper-hadoop-alone"
SILENCE_S, SHUFFLE_S, END_S = 20 / 4, 21 / 4, 30.0
FILE_BYTES = round(SHUFFLE_S * SCHEDULED_BPS / 8 * TCP_PAYLOAD_BYTES / TCP_WIRE_BYTES / (PNS - 1))


def name_of(kind: str, share: int) -> str:
    """Return the name of the run with ``tcp`` or ``udp`` in the background, where the job has ``share`` percent."""
    return f"gatekeeper-hadoop-{kind}-{share}"


def _job() -> tuple[Source, ...]:
    numbers = range(1, PNS + 1)
    pairs = [(one, (one + step - 1) % PNS + 1) for step in range(1, PNS) for one in numbers]
    return tuple(Source(1, *pair, "tcp", spans=((SILENCE_S, END_S),), octets=FILE_BYTES) for pair in pairs)


def _pairs(kind: str) -> tuple[Source, ...]:
    more: dict[str, Any] = {"rate_bps": LINK_BPS} if kind == "udp" else {"flows": 10}
    return tuple(Source(2, number, number + PNS // 2, kind, **more) for number in range(1, PNS // 2 + 1))


def _beside(name: str, title: str, share: int, background: tuple[Source, ...], controls: tuple[str, ...]) -> Scenario:
    parts_bps = {1: SCHEDULED_BPS * share // 100, 2: SCHEDULED_BPS * (100 - share) // 100}
    return Scenario(
        name,
        title,
        topology="gatekeeper-hosts",
        pns=PNS,
        link_rate_bps=LINK_BPS,
        topology_options={"access_rates_bps": dict.fromkeys(range(1, PNS + 1), SCHEDULED_BPS)},
        limits={vid: Limits(bps, bps, SCHEDULED_BPS, SCHEDULED_BPS) for vid, bps in parts_bps.items()},
        sources=(*_job(), *background),
        duration_s=END_S,
        promise="ceilings",
        controls=controls,
        emulated_controls=(),
        uplink_queues=True,
        seeds=3,
    )


def _shared(kind: str, share: int) -> Scenario:
    controls = ("static", "gatekeeper", SILENT, LITERAL)
    title = f"a shuffle with {share} % next to {PNS // 2} pairs with {'ten TCP flows each' if kind == 'tcp' else 'UDP'}"
    more = ("none", "max-min") if share == 50 else ()  # guarantees mean nothing to the first
    return _beside(name_of(kind, share), title, share, _pairs(kind), (*controls, *more))


scenarios = (
    _beside(ALONE, "a shuffle alone", 50, (), ("none", "gatekeeper")),
    *(_shared(kind, share) for kind in KINDS for share in SHARES),
)
