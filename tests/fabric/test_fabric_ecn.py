"""Congestion marks on real Open vSwitch under the real application: a link marks, senders answer, hosts see nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import link_marker
from support.application import Application
from support.ip_frames import IPV4, IPV6, ip_frame, traffic_class
from support.ovs import End, controlled, wait_until

from controller.forwarding.pipeline import Table
from experiments.measure.rate_series import rates_of, read_samples
from experiments.measure.sampler import Sampler
from experiments.ovs.fabric import OvsFabric
from experiments.ovs.ovs_vsctl import ofctl
from experiments.ovs.traffic import FIRST_PORT, Flow, Traffic
from topologies.builders import dumbbell

pytestmark = pytest.mark.rates

LINK_BPS, MARKED_FROM_BPS = 50_000_000, 20_000_000
FABRIC = dumbbell(pns=4, link_rate_bps=LINK_BPS, vlans=(1,), receivers=2)
PAIRS = ((1, 3), (2, 4))
MARKED = {
    "algorithm": "hygenicc",
    "parameters": {"cut": 2, "slow": 0.02, "fast": 0.2},
    "send_limit": LINK_BPS,
    "receive_limit": LINK_BPS,
}
EF = 0xB8


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OvsFabric, Application, Path]]:
    """UDP from the first PN, TCP that speaks ECN from the second; the link marks what is beyond 20 Mb/s."""
    folder = tmp_path_factory.mktemp("ecn")
    sections = {"vlans": {1: MARKED}, "ecn": {"source": "phantom+network"}}
    with (
        controlled(FABRIC, {1: LINK_BPS}, folder, **sections) as (ovs, app),
        Traffic(ovs, folder, 200) as traffic,
    ):
        link_marker.mark_at(FABRIC.core_links[0].interfaces[0], MARKED_FROM_BPS, 0.006, 0.030)
        for vn in FABRIC.vns():
            ovs.host(vn.name).cmd("sysctl -w net.ipv4.tcp_ecn=1")
        flows = [
            Flow(
                FABRIC.vn(1, sender),
                FABRIC.vn(1, receiver),
                FIRST_PORT,
                congestion_control="cubic" if sender == 2 else None,
                wire_rate_bps=None if sender == 2 else 40_000_000,
            )
            for sender, receiver in PAIRS
        ]
        traffic.serve(flows)
        traffic.start(flows, 150)
        yield ovs, app, folder
        traffic.check_running(flows)


def counted() -> dict[int, int]:
    """Return how many packets each meter of table COUNT has seen at the receivers' switch."""
    ids = re.findall(r"meter:(\d+)", ofctl("dump-flows", "s2", f"table={Table.COUNT:d}"))
    text = ofctl("meter-stats", "s2")
    found = dict(re.findall(r"meter:(\d+).*?packet_in_count:(\d+)", text, re.DOTALL))
    return {int(meter_id): int(found[meter_id]) for meter_id in set(ids)}


def test_senders_share_what_the_link_carries_unmarked(running: tuple[OvsFabric, Application, Path]) -> None:
    _, _, folder = running
    interfaces = [FABRIC.vn(1, receiver).switch_interface for _, receiver in PAIRS]

    def shared() -> bool:
        samples = folder / f"samples-{time.monotonic_ns()}.csv"
        with Sampler(interfaces, 0.055, 40, samples):
            time.sleep(4.0)
        rates = [np.average(rates_of(read_samples(samples, one)).wire_bps) / 1e6 for one in interfaces]
        print("udp and tcp, Mb/s:", np.round(rates, 2), "marked packets:", counted())
        return 12.0 <= sum(rates) <= 26.0 and min(rates) >= 0.25 * sum(rates)

    wait_until(shared, "both with a fair part of 20 Mb/s", 60)
    assert len(counted()) >= 2
    assert sum(counted().values()) > 100


@pytest.mark.parametrize("eth_type", [IPV4, IPV6])
def test_hosts_get_their_packets_as_they_were(running: tuple[OvsFabric, Application, Path], eth_type: int) -> None:
    """In the traffic of the others, which the link marks; DSCP kept, checksums right (looked at there)."""
    source, target = (int(FABRIC.vn(1, number).mac.replace(":", ""), 16) for number in PAIRS[0])
    ends = [End(FABRIC.pn(number).trunk_interface, source, target) for number in PAIRS[0]]
    try:
        for _ in range(300):
            ends[0].send(ip_frame(eth_type, EF, source, target, 1, size=200))
            time.sleep(0.002)
        time.sleep(0.5)
        got = [frame for frame in ends[1].arrived() if traffic_class(frame) & 0xFC == EF]
    finally:
        for end in ends:
            end.close()
    assert len(got) > 100
    assert {traffic_class(frame) for frame in got} == {EF}
