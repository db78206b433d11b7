"""DETS, ``max-min`` and ``gatekeeper`` at one port of real Open vSwitch: each keeps its promise, under changes too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.application import Application
from support.ovs import controlled, wait_until

from experiments.measure.rate_series import rates_of, read_samples
from experiments.measure.sampler import Sampler
from experiments.ovs.fabric import OvsFabric
from experiments.ovs.traffic import FIRST_PORT, Flow, Traffic
from topologies.builders import fig1

pytestmark = pytest.mark.rates

LINK_BPS, LIMIT_BPS = 50_000_000, 10_000_000
DETS, MAX_MIN, GATEKEEPER = 1, 2, 3
UDP_BPS = 30_000_000
FABRIC = fig1(pns=4, link_rate_bps=LINK_BPS, vlans=(DETS, MAX_MIN, GATEKEEPER))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OvsFabric, Application, Path]]:
    """UDP under DETS and gatekeeper and TCP under max-min, each from a PN of its own, all to the fourth."""
    folder = tmp_path_factory.mktemp("gatekeeper")
    limits = {"send_limit": LIMIT_BPS, "receive_limit": LIMIT_BPS}
    ceilings = {"send_ceiling": LINK_BPS, "receive_ceiling": LINK_BPS}
    vlans = {
        DETS: {**limits, "algorithm": "fs"},
        MAX_MIN: {**limits, **ceilings, "algorithm": "max-min"},
        GATEKEEPER: {**limits, "algorithm": "gatekeeper"},
    }
    with (
        controlled(FABRIC, dict.fromkeys(vlans, LIMIT_BPS), folder, vlans=vlans) as (ovs, app),
        Traffic(ovs, folder, 200) as traffic,
    ):
        flows = [
            Flow(
                ovs.fabric.vn(vid, vid),
                ovs.fabric.vn(vid, 4),
                FIRST_PORT,
                congestion_control="cubic" if vid == MAX_MIN else None,
                wire_rate_bps=None if vid == MAX_MIN else UDP_BPS,
            )
            for vid in vlans
        ]
        traffic.serve(flows)
        traffic.start(flows, 150)
        yield ovs, app, folder
        traffic.check_running(flows)


def means_mbps(ovs: OvsFabric, folder: Path, seconds: float = 3.0) -> dict[int, float]:
    """What each VLAN gets at the fourth PN."""
    interfaces = {vid: ovs.fabric.vn(vid, 4).switch_interface for vid in (DETS, MAX_MIN, GATEKEEPER)}
    samples = folder / f"samples-{time.monotonic_ns()}.csv"
    with Sampler(list(interfaces.values()), 0.055, seconds + 30, samples):
        time.sleep(seconds)
    read = {vid: rates_of(read_samples(samples, interface)) for vid, interface in interfaces.items()}
    found = {vid: float(np.average(rates.wire_bps)) / 1e6 for vid, rates in read.items()}
    print({vid: round(mbps, 2) for vid, mbps in found.items()})
    return found


def test_each_keeps_its_promise_at_one_port(running: tuple[OvsFabric, Application, Path]) -> None:
    ovs, _, folder = running

    def kept() -> bool:  # a busy machine loses frames
        got = means_mbps(ovs, folder)
        assert got[DETS] <= 1.05 * 10
        return all(mbps >= 0.95 * 10 for mbps in got.values()) and sum(got.values()) >= 0.9 * 50

    wait_until(kept, "all with their guarantees, and the port in use", 40)
