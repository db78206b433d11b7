"""Figures 6 and 7 (section 3.3): a Hadoop job next to pairs of netperf, ten TCP flows each (6) or UDP (7).

A stand-in for the job: its map tasks end one after another, and its reduce tasks, which go to VMs as these come free,
fetch from five VMs at once, as Hadoop does. So VMs without a pair's traffic on their link do more of the work. The
paper has 26 VNs and 13 pairs; 14 and 7, and a quarter of the time, keep a run short. Choice: two map tasks and four
reduce tasks for each VM; the job's size makes it take about 10 s alone (paper: 41). The job has 25, 50 or 75 % of the
860 Mb/s that a host's scheduler gives, the pairs have the rest, in both directions. Three seeds stand for the paper's
five runs. A run lasts a third longer than its slowest job. Pairs with senders on other hosts than the job's show the
effect of the scheduler on their hosts on the job.
"""

from typing import Any

from experiments.scenarios.gatekeeper.fig5 import (
    LINK_BPS,
    PUBLISHED,
    PUBLISHED_SILENT,
    SAMPLE_MS,
    SCHEDULED_BPS,
    SILENT,
)
from experiments.scenarios.limits import Limits
from experiments.scenarios.scenario import Scenario
from experiments.scenarios.traffic import Job, Source

PNS = 14
SHARES = (25, 50, 75)
KINDS = ("tcp", "udp")
APART = "udp-apart"
"""UDP from PNs without the job, so that no scheduler there makes it wait for the job's frames."""
ALONE = "gatekeeper-hadoop-alone"
END_S = {25: 36.0, 50: 28.0, 75: 18.0}
"""When a run ends, by what the job has."""
HIGHER = "threshold=0.1"
"""A parameter of Gatekeeper: five times the default's drops are congestion."""
JOB = Job(1, maps=2, map_s=2.0, reduces=4, reduce_s=0.3, fetch_bytes=5_000_000)


def name_of(kind: str, share: int, control: str = "") -> str:
    """Return the name of the run with a kind of pairs in the background, and ``share`` percent for the job.

    The paper's law has samples of 10 ms.
    """
    return f"gatekeeper-hadoop-{kind}-{share}{'-10ms' if control.startswith(PUBLISHED) else ''}"


def _pairs(kind: str) -> tuple[Source, ...]:
    """Return the background traffic of a kind to the second half of the PNs.

    It comes from the first half; APART, from PNs of its own.
    """
    more: dict[str, Any] = {"flows": 10} if kind == "tcp" else {"rate_bps": LINK_BPS}
    first = PNS + 1 if kind == APART else 1
    pairs = enumerate(range(PNS // 2 + 1, PNS + 1), start=first)
    return tuple(Source(2, sender, receiver, kind[:3], **more) for sender, receiver in pairs)


def _beside(name: str, title: str, share: int, background: tuple[Source, ...], **more: Any) -> Scenario:
    """Return a job next to background traffic; ``share`` is its percentage of the link."""
    parts_bps = {1: SCHEDULED_BPS * share // 100, 2: SCHEDULED_BPS * (100 - share) // 100}
    numbers = range(1, PNS + 1)
    pns = max([PNS, *(source.sender for source in background)])
    return Scenario(
        name,
        title,
        topology="gatekeeper-hosts",
        pns=pns,
        link_rate_bps=LINK_BPS,
        topology_options={"access_rates_bps": dict.fromkeys(range(1, pns + 1), SCHEDULED_BPS)},
        limits={vid: Limits(bps, bps, SCHEDULED_BPS, SCHEDULED_BPS) for vid, bps in parts_bps.items()},
        sources=(*(Source(1, pn, other, "tcp") for pn in numbers for other in numbers if pn != other), *background),
        job=JOB,
        duration_s=END_S[share],
        promise="ceilings",
        emulated_controls=(),
        uplink_queues=True,
        seeds=3,
        **more,
    )


def _shared(kind: str, share: int) -> tuple[Scenario, Scenario]:
    """Return two scenarios of a job next to background traffic: this project's parameters, the published ones."""
    what = {"tcp": "ten TCP flows each", "udp": "UDP", APART: "UDP from other PNs"}[kind]
    title = f"a job with {share} % next to {PNS // 2} pairs with {what}"
    # Shares mean nothing without control, so one share is enough for it.
    others = ("static", "none", "max-min") if share == 50 else ("static",)
    higher = (kind, share) == ("tcp", 25)
    laws = (("gatekeeper", SILENT), (PUBLISHED, PUBLISHED_SILENT))
    ours, published = ((*law, f"{law[0]} {HIGHER}") if higher else law for law in laws)
    ours = ours if kind == APART else (*others, *ours)
    sampled: dict[str, Any] = {"controls": published, "interval_ms": SAMPLE_MS}
    return (
        _beside(name_of(kind, share), title, share, _pairs(kind), controls=ours),
        _beside(name_of(kind, share, PUBLISHED), f"{title}, samples of 10 ms", share, _pairs(kind), **sampled),
    )


scenarios = (
    _beside(ALONE, "a job alone", 50, (), controls=("none", "gatekeeper")),
    *(scenario for kind in KINDS for share in SHARES for scenario in _shared(kind, share)),
    *_shared(APART, 50),
)
