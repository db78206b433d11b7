"""``max-min`` on real Open vSwitch: while the other VLAN is idle, one gets more than its limit, up to its ceiling."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.application import Application
from support.ovs import controlled

from experiments.ovs_fabric import OvsFabric
from experiments.ovs_vsctl import find_rows, vsctl
from experiments.sampler import Sampler
from experiments.series import rates_of, read_samples
from experiments.traffic import Traffic, udp_sources
from topologies.builders import fig1

LIMITS_BPS = {1: 20_000_000, 2: 30_000_000}
CEILING_BPS = 45_000_000
UDP_BPS = 25_000_000  # of each of two senders: more than the ceiling together
FABRIC = fig1(pns=3)
PORT = "s1-eth3"


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OvsFabric, Application, Path]]:
    folder = tmp_path_factory.mktemp("lending")
    rate = {vid: {"send_limit": limit, "receive_limit": limit} for vid, limit in LIMITS_BPS.items()}
    lends = {"algorithm": "max-min", "send_ceiling": CEILING_BPS, "receive_ceiling": CEILING_BPS}
    vlans = {vid: {**rate[vid], **lends} for vid in LIMITS_BPS}
    with controlled(FABRIC, LIMITS_BPS, folder, vlans=vlans) as (ovs, app):
        yield ovs, app, folder


def queue_rates_bps(vlan_vid: int) -> tuple[int, int]:
    qos = vsctl("get", "Port", PORT, "qos").strip()
    queues = next(row["queues"] for row in find_rows("QoS", "_uuid,queues") if row["_uuid"] == qos)
    row = next(row for row in find_rows("Queue", "_uuid,other_config") if row["_uuid"] == queues[vlan_vid])
    return int(row["other_config"]["min-rate"]), int(row["other_config"]["max-rate"])


def received_bps(ovs: OvsFabric, folder: Path, vlan_vid: int, seconds: float) -> float:
    interface = ovs.fabric.vn(vlan_vid, 3).switch_interface
    samples = folder / f"samples-{vlan_vid}-{time.monotonic_ns()}.csv"
    with Sampler([interface], 0.055, seconds + 30, samples):
        time.sleep(seconds)
    return float(np.average(rates_of(read_samples(samples, interface)).wire_bps))


def limits_bps(app: Application, vlan_vid: int) -> int:
    return sum(entry["limit_bps"] for entry in app.get(f"/v1/entries?vlan={vlan_vid}")["entries"])


def test_a_vlan_gets_more_than_its_limit_while_the_other_is_idle(
    fabric: tuple[OvsFabric, Application, Path],
) -> None:
    ovs, app, folder = fabric
    assert queue_rates_bps(1) == (LIMITS_BPS[1], CEILING_BPS)
    with Traffic(ovs, folder, 200) as traffic:
        flows = udp_sources([ovs.fabric.vn(1, 1), ovs.fabric.vn(1, 2)], ovs.fabric.vn(1, 3), UDP_BPS)
        traffic.serve(flows)
        traffic.start(flows, 30)
        app.wait_for(lambda: limits_bps(app, 1) >= 0.99 * CEILING_BPS, "lent")
        time.sleep(1.0)
        assert received_bps(ovs, folder, 1, 2.0) == pytest.approx(CEILING_BPS, rel=0.05)
