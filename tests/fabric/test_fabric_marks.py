"""What policies on congestion marks need of real Open vSwitch: counted, cleared, and phantom meters."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from support.ip_frames import IPV4, IPV6, ip_frame, traffic_class
from support.ovs import End, wait_until

from experiments.ovs.fabric import OvsFabric
from experiments.ovs.ovs_vsctl import ofctl

FRAMES = 500
SOURCE, TARGET = 0x0200_0000_AA01, 0x0200_0000_AA03
VLAN = 1
FIRST_TABLE = 100
COUNTS, PHANTOM = 900_001, 900_002
EF_CE, EF = 0xBB, 0xB8  # DSCP 46, with and without the mark


@pytest.fixture
def ends(three_pns: OvsFabric) -> Iterator[tuple[End, End]]:
    """The first and the third PN, and a pipeline of its own for the test's frames, before anything else."""
    flows = [
        f"table=0,priority=60000,dl_src={SOURCE.to_bytes(6).hex(':')},actions=goto_table:{FIRST_TABLE}",
        *(
            f"table={FIRST_TABLE},priority=120,dl_vlan={VLAN},{kind},nw_ecn=3,"
            f"actions=meter:{COUNTS},set_field:0->{field},goto_table:{FIRST_TABLE + 1}"
            for kind, field in (("ip", "ip_ecn"), ("ipv6", "ip_ecn"))
        ),
        f"table={FIRST_TABLE},priority=0,actions=goto_table:{FIRST_TABLE + 1}",
        f"table={FIRST_TABLE + 1},dl_vlan={VLAN},actions=pop_vlan,output:3,push_vlan:0x8100,"
        f"set_field:{0x1000 | VLAN}->vlan_vid,goto_table:{FIRST_TABLE + 2}",
        f"table={FIRST_TABLE + 2},dl_vlan={VLAN},actions=meter:{PHANTOM}",
    ]
    ofctl("add-meter", "s1", f"meter={COUNTS},kbps,burst,stats,band=type=drop,rate=4294967295,burst_size=4294967295")
    ofctl("add-meter", "s1", f"meter={PHANTOM},kbps,burst,stats,band=type=drop,rate=100,burst_size=40")
    for flow in flows:
        ofctl("add-flow", "s1", f"cookie=0x77,{flow}")
    interfaces = [pn.trunk_interface for pn in three_pns.fabric.pns if pn.number in (1, 3)]
    sender, receiver = (End(interface, SOURCE, TARGET) for interface in interfaces)
    yield sender, receiver
    sender.close()
    receiver.close()
    ofctl("del-flows", "s1", "cookie=0x77/-1")
    for meter in (COUNTS, PHANTOM):
        ofctl("del-meters", "s1", f"meter={meter}")


def counts(meter_id: int) -> tuple[int, int]:
    """Return how many packets a meter saw, and how many its band dropped."""
    text = ofctl("meter-stats", "s1", f"meter={meter_id}")
    (found,) = re.findall(r"packet_in_count:(\d+).*?bands:\s*0: packet_count:(\d+)", text, re.DOTALL)
    return int(found[0]), int(found[1])


def blast(ends: tuple[End, End], eth_type: int, marks: int) -> list[bytes]:
    sender, receiver = ends
    receiver.arrived()
    for _ in range(FRAMES):
        sender.send(ip_frame(eth_type, marks, SOURCE, TARGET, VLAN, size=200))
        time.sleep(0.0005)
    got: list[bytes] = []

    def all_there() -> bool:
        got.extend(receiver.arrived())
        return len(got) >= FRAMES

    wait_until(all_there, f"{FRAMES} frames there")
    return got


@pytest.mark.parametrize("eth_type", [IPV4, IPV6])
def test_marks_are_counted_and_cleared(ends: tuple[End, End], eth_type: int) -> None:
    got = blast(ends, eth_type, EF_CE)
    assert len(got) == FRAMES
    assert {traffic_class(frame) for frame in got} == {EF}  # checksums are looked at there
    assert counts(COUNTS) == (FRAMES, 0)


@pytest.mark.parametrize("marks", [0xB8, 0xB9, 0xBA])
def test_frames_without_the_mark_pass_as_they_are(ends: tuple[End, End], marks: int) -> None:
    got = blast(ends, IPV4, marks)
    assert {traffic_class(frame) for frame in got} == {marks}
    assert counts(COUNTS) == (0, 0)


def test_a_phantom_meter_counts_what_is_beyond_its_rate_and_takes_nothing_away(ends: tuple[End, End]) -> None:
    """100 kb/s and 40 kb: of 500 frames of 242 bytes most are beyond, however slowly they are sent."""
    began_s = time.monotonic()
    got = blast(ends, IPV4, EF)
    took_s = time.monotonic() - began_s
    assert len(got) == FRAMES
    seen, beyond = counts(PHANTOM)
    assert seen == FRAMES
    passed_bits = (seen - beyond) * (len(got[0]) + 4) * 8
    assert beyond > 0
    assert passed_bits <= 1e5 * took_s + 40_000 + 8 * (len(got[0]) + 4)
