"""The agent on a real interface: HTB classes in a network namespace, control frames over a veth pair."""

from __future__ import annotations

import os
import select
import signal
import statistics
import sys
import time
from collections.abc import Iterator

import pytest
from support.agent_uplink import (
    INTERVAL_MS,
    LINK_BPS,
    NAMESPACE,
    RECEIVER,
    UPLINK,
    VNS,
    Controller,
    controller_end,
    frame,
    rates_bps,
    run,
    running,
    sending,
    start,
)
from support.agent_uplink import uplink as host_uplink
from support.paths import ROOT

from controller.agents.control_frames import CONTROLLER_MAC, Feature, FrameAddress, Opcode, ReportFlag, encode, records


@pytest.fixture
def uplink() -> Iterator[None]:
    with host_uplink():
        yield


@pytest.fixture
def controller(uplink) -> Iterator[Controller]:
    with controller_end() as one:
        yield one


@pytest.mark.rates
def test_an_agent_says_hello_shapes_and_reports(controller) -> None:
    with running():
        controller.listen(0.2)
        hello = controller.last[10, Opcode.HELLO].entries[0]
        assert hello["features"] & Feature.SHAPES
        assert hello["link_rate_kbps"] == LINK_BPS // 1000
        controller.pair(10, Opcode.INITIALIZE)
        controller.pair(10, Opcode.SET_RATE, rate_kbps=[5000])
        rates = rates_bps(controller, 2.0, 5, frame(10), meanwhile=lambda: controller.keep_alive(10))
        assert rates[10] == pytest.approx(5e6, rel=0.02)
        report = controller.report(10)
        assert statistics.median(controller.measured_kbps) == pytest.approx(5000, rel=0.1)
        assert report["limit_kbps"] == 5000
        assert report["dropped_kbps"] > 5000
        assert report["flags"] & ReportFlag.SHAPED_HERE


@pytest.mark.rates
def test_frames_are_shaped_whose_tag_stands_beside_them(controller) -> None:
    """A vswitch in the kernel, as a VLAN interface, keeps a frame's tag beside it until it is on the wire."""
    run("ip", "-n", NAMESPACE, "link", "add", "acc0", "type", "veth", "peer", "name", "vn0")
    for name in ("acc0", "vn0"):
        run("ip", "-n", NAMESPACE, "link", "set", name, "up")
    attach = f"from topologies import ebpf_vlan_switch; ebpf_vlan_switch.attach({UPLINK!r}, {{'acc0': 10}})"
    run("ip", "netns", "exec", NAMESPACE, "env", f"PYTHONPATH={ROOT}", sys.executable, "-c", attach)
    data = frame(10)
    untagged = data[:24] + data[32:]
    with running():
        controller.listen(0.2)
        controller.pair(10, Opcode.INITIALIZE)
        controller.pair(10, Opcode.SET_RATE, rate_kbps=[5000])
        rates = rates_bps(
            controller,
            2.0,
            5,
            untagged,
            meanwhile=lambda: controller.pair(10, Opcode.KEEP_ALIVE),
            interface="vn0",
        )
    assert rates[10] == pytest.approx(5e6, rel=0.03)


@pytest.mark.rates
def test_changing_a_rate_does_not_fill_its_bucket(controller) -> None:
    turns = [3500, 6500]

    def change() -> None:
        turns.reverse()
        controller.pair(10, Opcode.SET_RATE, rate_kbps=[turns[0]])

    with running():
        controller.listen(0.2)
        controller.pair(10, Opcode.INITIALIZE)
        rates = rates_bps(controller, 3.0, 5, frame(10), meanwhile=change)
    assert rates[10] == pytest.approx(5e6, rel=0.03)


@pytest.mark.rates
def test_a_vn_cannot_take_what_another_on_its_host_may_send(controller) -> None:
    with running():
        controller.listen(0.2)
        for vid, rate_kbps in ((10, 30_000), (20, 15_000)):
            controller.pair(vid, Opcode.INITIALIZE, VNS[vid])
            controller.pair(vid, Opcode.SET_RATE, VNS[vid], rate_kbps=[rate_kbps])
        frames = [frame(10, RECEIVER + number) for number in range(4)] + [frame(20)]

        def keep() -> None:
            for vid in VNS:
                controller.pair(vid, Opcode.KEEP_ALIVE, VNS[vid])

        rates = rates_bps(controller, 2.0, 12, *frames, meanwhile=keep)
    assert rates[10] == pytest.approx(30e6, rel=0.03)
    assert rates[20] == pytest.approx(15e6, rel=0.03)


@pytest.mark.parametrize("ethertype", [0x8808, 0x88B5])
def test_vns_cannot_speak_for_the_agent(controller, ethertype) -> None:
    forged = FrameAddress(CONTROLLER_MAC, VNS[10], 10, 0xBAD, ethertype)
    hello = records(Opcode.HELLO, features=[7], interval_ms=[55], most_classes=[9], link_rate_kbps=[9])
    (octets,) = encode(forged, Opcode.HELLO, hello, 1, 0)
    with running():
        controller.listen(0.1)
        sending(0.3, 5, octets.hex(), octets[:12].hex() + octets[16:].hex()).wait(10)
        controller.listen(0.5)
    assert {frame.speaker.epoch for frame in controller.last.values()} != {0xBAD}
    assert all(frame.speaker.epoch != 0xBAD for frame in controller.last.values())


@pytest.mark.rates
def test_rates_outlive_an_agent_that_is_killed_and_the_next_one_cleans_up(controller) -> None:
    with running() as process:
        controller.listen(0.2)
        controller.pair(10, Opcode.INITIALIZE)
        controller.pair(10, Opcode.SET_RATE, rate_kbps=[5000])
        controller.listen(0.1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        rates = rates_bps(controller, 1.0, 5, frame(10))
    assert rates[10] == pytest.approx(5e6, rel=0.03)
    with running():
        assert "3000" not in classes()
    assert "htb" not in run("tc", "-n", NAMESPACE, "qdisc", "show", "dev", UPLINK)


def test_rates_stay_on_request(controller) -> None:
    with running("--on-stop", "keep"):
        controller.listen(0.2)
        for _ in range(50):  # as a controller does: what is lost, or comes later than it counts, is said again
            controller.pair(10, Opcode.INITIALIZE)
            controller.pair(10, Opcode.SET_RATE, rate_kbps=[5000])
            controller.listen(0.1)
            if "ceil 5Mbit" in classes():
                break
    assert "ceil 5Mbit" in classes()


def classes() -> str:
    return run("tc", "-n", NAMESPACE, "class", "show", "dev", UPLINK)


@pytest.mark.rates
def test_a_lost_controller_is_obeyed_for_forty_intervals_and_not_for_ever(controller) -> None:
    with running():
        controller.listen(0.2)
        controller.pair(10, Opcode.INITIALIZE)
        controller.pair(10, Opcode.SET_RATE, rate_kbps=[5000])
        controller.listen(25 * INTERVAL_MS / 1000)
        assert "ceil 5Mbit" in classes()
        end_s = time.monotonic() + 20
        while "ceil 5Mbit" in classes():
            assert time.monotonic() < end_s
            controller.listen(0.1)


def test_a_root_qdisc_of_others_is_left_alone(uplink) -> None:
    run("tc", "-n", NAMESPACE, "qdisc", "add", "dev", UPLINK, "root", "handle", "1:", "htb")
    process = start()
    _, said = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "root qdisc htb 1:" in said
    with running("--replace-qdisc"):
        assert "htb de75:" in run("tc", "-n", NAMESPACE, "qdisc", "show", "dev", UPLINK)


def test_a_dry_run_shapes_nothing(controller) -> None:
    process = start("--dry-run")
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("would give agt0 an HTB root of 50 Mbit/s")
        assert process.stdout.readline() == "ready\n"
        controller.listen(0.2)
        for _ in range(50):  # as a controller does: what is lost, or comes later than it counts, is said again
            controller.pair(10, Opcode.INITIALIZE)
            controller.pair(10, Opcode.SET_RATE, rate_kbps=[5000])
            if select.select([process.stdout], [], [], 0.2)[0]:
                break
        assert process.stdout.readline() == "would shape VLAN 10 to 00:02:00:00:00:99 to 5 Mbit/s\n"
        assert "htb" not in run("tc", "-n", NAMESPACE, "qdisc", "show", "dev", UPLINK)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)


def test_the_probe_says_which_ethertype_gets_through(controller) -> None:
    process = start("--probe")
    end_s = time.monotonic() + 10
    while (10, Opcode.HELLO) not in controller.last and time.monotonic() < end_s:
        controller.listen(0.1)
        swallowed = [key for key, one in controller.last.items() if one.speaker.ethertype == 0x8808]
        for key in swallowed:
            del controller.last[key]
    answer = records(Opcode.HELLO, features=[7], interval_ms=[55], most_classes=[0], link_rate_kbps=[0])
    controller.sock.send(encode(FrameAddress(VNS[10], CONTROLLER_MAC, 10, 1, 0x88B5), Opcode.HELLO, answer, 1, 0))
    said, _ = process.communicate(timeout=20)
    assert "0x8808: no answer\n0x88b5: a controller answers\nuse --ethertype 0x88b5\n" in said
    assert process.returncode == 0
