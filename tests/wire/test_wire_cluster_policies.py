"""Policies that read receivers and links, with the switches shared out over three real nodes, of which one dies."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.cluster import NAMES, ShardedRun, check_one_writer, needs_etcd
from support.sharded_blast import EDGES, LIMIT_BPS, LINKS, RECEIVER, SENDERS, InstalledMeters, granted_bps, offer

pytestmark = [needs_etcd, pytest.mark.long]
LEASE_S = 4  # so that only the one that is killed loses its lease, however busy the machine
MAX_S = 40.0  # limits go down and up by steps, an interval each
OWNERS = {"s1": "n2", "s2": "n1", "s3": "n3"}  # by hash; n2, the allocator, dies, which has two of the senders
ALLOCATOR, LIVE = 1, (0, 2)
PARTS = {11: LIMIT_BPS / 4, 12: LIMIT_BPS / 2, 21: LIMIT_BPS / 4}  # of the guarantee, by weight
RISE = (
    1.25  # of such a part: how far a sender gets until it is told of congestion, in one process (test_wire_gatekeeper)
)
# Without `served`, and with a slow rise, senders stay near their parts of the guarantee.
GATEKEEPER = {"algorithm": "gatekeeper", "parameters": {"served": 0, "slope": 0.05}}
VLANS = {
    10: {"send_limit": "400M", "receive_limit": "400M", **GATEKEEPER},
    20: {"send_limit": "400M", "receive_limit": "400M", "algorithm": "fs"},
}


def near_parts(run: ShardedRun, nodes: Sequence[int]) -> bool:
    found_bps = granted_bps(run, nodes)
    return found_bps.keys() == PARTS.keys() and all(
        0.99 * part_bps <= found_bps[port_no] <= RISE * part_bps for port_no, part_bps in PARTS.items()
    )


def is_near(run: ShardedRun, each_bps: float, heavy_bps: float) -> bool:
    """Whether live nodes grant the senders so much, and the one that weighs more so much."""
    return granted_bps(run, LIVE) == pytest.approx({11: each_bps, 12: heavy_bps, 21: each_bps}, rel=0.1)


def most_kbps(run: ShardedRun) -> dict[tuple[int, int], float]:
    """Return the most that the senders' meters may be set to, by switch and meter."""
    found = {}
    for dpid, port_no in SENDERS:
        entry = run.nodes[0].entry(port_no, RECEIVER[1], 10)  # any node answers for all
        assert entry is not None
        found[dpid, entry["meter_id"]] = RISE * PARTS[port_no] / 1e3
    return found


def test_policies_give_what_one_process_does_and_free_nobody_when_the_allocator_dies(tmp_path: Path) -> None:
    with ShardedRun(tmp_path, EDGES, links=LINKS, nodes=3, ttl_s=LEASE_S, vlans=VLANS) as run:
        assert run.owners(0) == OWNERS
        with run.fabric.locked():  # as its node would, over OVSDB
            run.fabric.switches[RECEIVER[0]].ports[RECEIVER[1]].set_queue(10, LIMIT_BPS, LIMIT_BPS)
        run.nodes[0].patch("/v1/vns/10/s1/12", weight=2.0)
        offer(run, 390e6)
        run.wait(lambda: near_parts(run, range(3)), "parts of the guarantee, whosever the senders are", MAX_S)
        installed = InstalledMeters(run, most_kbps(run))
        told = len(run.nodes[0].events("congestion-notification-sent"))
        run.nodes[ALLOCATOR].send_signal(signal.SIGKILL)
        run.nodes[ALLOCATOR].wait_ended()
        run.wait(lambda: NAMES[ALLOCATOR] not in run.owners(0).values(), "the others have its switches", MAX_S)
        run.wait(lambda: {run.health(one)["status"] for one in LIVE} == {"ready"}, "they control them", MAX_S)
        run.wait(
            lambda: len(run.nodes[0].events("congestion-notification-sent")) > told,
            "who decides now tells senders",
            MAX_S,
        )
        run.wait(lambda: near_parts(run, LIVE), "parts of the guarantee again", MAX_S)
        installed.check()
        last = run.nodes[0].last_event()
        run.nodes[0].patch("/v1/vlans/10", algorithm="hygenicc", parameters={"cut": 2, "slow": 0.02, "fast": 0.2})
        run.wait(
            lambda: run.nodes[0].events("congestion-began", last), "who decides hears of marks at another node's switch"
        )
        run.wait(lambda: is_near(run, 0.98 * LIMIT_BPS / 4, 0.98 * LIMIT_BPS / 2), "parts by marks", MAX_S)
        run.nodes[0].patch("/v1/vlans/10", algorithm="seawall")
        run.nodes[0].patch("/v1/vns/10/s1/12", weight=1.0)
        run.wait(lambda: is_near(run, 0.98 * LIMIT_BPS / 3, 0.98 * LIMIT_BPS / 3), "equal parts by losses", MAX_S)
        check_one_writer(run, EDGES)
