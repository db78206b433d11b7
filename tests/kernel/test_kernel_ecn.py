"""Marks that the kernel's own queue makes (``tc red ecn``), hidden from hosts.

The link between two switches carries less than its senders offer; no receiver has too much, so phantom meters see
nothing. RED is as instantaneous as it can be: its thresholds are one frame apart, its average is of the fewest frames.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.application import Application
from support.ip_frames import traffic_class
from support.ovs import End, controlled, wait_until
from support.vlan_hosts import SEND, SINK, end

from controller.forwarding.pipeline import CE, ECT_1, Table
from experiments.measure.frame_sizes import UDP_FRAME_BYTES, UDP_PAYLOAD_BYTES
from experiments.ovs.ovs_vsctl import ofctl
from topologies.builders import dumbbell

LINK_BPS, CORE_BPS = 10_000_000, 3_000_000
OFFERED_BPS = 2_500_000  # by each of two senders
FABRIC = dumbbell(pns=4, link_rate_bps=LINK_BPS, vlans=(1,), core_rate_bps=CORE_BPS, receivers=2)
PAIRS = ((1, 3), (2, 4))
MARKED = {
    "algorithm": "hygenicc",
    "parameters": {"cut": 2, "slow": 0.02, "fast": 0.2},
    "send_limit": LINK_BPS,
    "receive_limit": LINK_BPS,
}
AT = FABRIC.core_links[0].interfaces[0]
RED = "limit 90000 min 6000 max 7600 avpkt 1500 burst 5 probability 1 bandwidth 3Mbit ecn"
SECONDS = 300


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    sections = {"vlans": {1: MARKED}, "ecn": {"source": "phantom+network"}, "control": {"interval_ms": 110}}
    folder = tmp_path_factory.mktemp("ecn")
    with controlled(FABRIC, {1: LINK_BPS}, folder, datapath="kernel", static_arp=True, **sections) as (ovs, app):
        subprocess.run(
            ["tc", "qdisc", "replace", "dev", AT, "parent", "1:1", "handle", "10:", "red", *RED.split()], check=True
        )
        processes = [ovs.host(FABRIC.vn(1, receiver).name).popen([sys.executable, "-c", SINK]) for _, receiver in PAIRS]
        for sender, receiver in PAIRS:
            numbers = map(str, (OFFERED_BPS, SECONDS, UDP_PAYLOAD_BYTES, UDP_FRAME_BYTES))
            command = [sys.executable, "-c", SEND, FABRIC.vn(1, receiver).ip, *numbers]
            processes.append(ovs.host(FABRIC.vn(1, sender).name).popen(command))
        try:
            app.wait_for(lambda: len(app.get("/v1/pairs")["pairs"]) >= len(PAIRS), "pairs", 60)
            yield app
        finally:
            end(*processes)


def marked_by_the_queue() -> int:
    """Return how many packets the queue has marked."""
    text = subprocess.run(["tc", "-s", "qdisc", "show", "dev", AT], capture_output=True, text=True, check=True).stdout
    found = re.search(r"qdisc red .*?\bmarked (\d+)", text, re.DOTALL)
    assert found is not None, text
    return int(found[1])


def cleared() -> list[int]:
    """Return how many packets of each receiver and code point (ECT(1), CE) its switch has cleared in its datapath.

    While a host becomes known, the sender's switch may have its flow entries earlier than the receiver's.
    """
    texts = [ofctl("dump-flows", "s2", f"table={Table.MARKS:d},ip,nw_ecn={ecn}") for ecn in (ECT_1, CE)]
    return [int(count) for text in texts for count in re.findall(r"n_packets=(\d+)", text)]


def test_hosts_see_no_mark(running: Application) -> None:
    wait_until(lambda: sum(count > 0 for count in cleared()) >= 2 * len(PAIRS), "both receivers' marks are cleared", 30)

    def mac(number: int) -> int:
        return int(FABRIC.vn(1, number).mac.replace(":", ""), 16)

    ends = [End(FABRIC.pn(there).trunk_interface, mac(here), mac(there)) for here, there in PAIRS]
    try:
        marked, got = marked_by_the_queue(), list[int]()

        def seen() -> bool:
            got.extend(traffic_class(frame) & CE for one in ends for frame in one.arrived())
            return len(got) > 500 and marked_by_the_queue() > marked + 100

        wait_until(seen, "more than 500 frames, while the queue marks", 30)
    finally:
        for one in ends:
            one.close()
    assert set(got) == {0}
