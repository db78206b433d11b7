"""The agent on a real interface: HTB classes in a network namespace, control frames over a veth pair."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from support.paths import ROOT

from apps.agent.frames import FrameSocket
from controller.dets.control_frames import (
    CONTROLLER_MAC,
    ControlFrame,
    Feature,
    Opcode,
    ReportFlag,
    Speaker,
    encode,
    records,
)

NAMESPACE, UPLINK, SWITCH = "dets-agent-t", "agt0", "agt1"
VNS = {10: 0x02_0000_000A, 20: 0x02_0000_0014}
RECEIVER = 0x02_0000_0099
INTERVAL_MS = 20
FRAME_OCTETS = 1514 + 4
LINK_BPS = 50_000_000


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=20).stdout


@pytest.fixture
def uplink() -> Iterator[None]:
    """A host's uplink in a namespace; the switch's end is in this one."""
    with contextlib.suppress(subprocess.CalledProcessError):
        run("ip", "netns", "del", NAMESPACE)
    run("ip", "netns", "add", NAMESPACE)
    run("ip", "link", "add", SWITCH, "type", "veth", "peer", "name", UPLINK, "netns", NAMESPACE)
    run("ip", "-n", NAMESPACE, "link", "set", UPLINK, "up")
    run("ip", "link", "set", SWITCH, "up")
    yield
    run("ip", "netns", "del", NAMESPACE)


@dataclass
class Controller:
    """The other end, as far as these tests need one."""

    sock: FrameSocket
    raw: socket.socket
    sequence: int = 0
    last: dict[tuple[int, Opcode], ControlFrame] = field(default_factory=dict)

    def say(self, vid: int, opcode: Opcode, **columns: list[int]) -> None:
        self.sequence += 1
        speaker = Speaker(VNS[vid], CONTROLLER_MAC, vid, 77)
        self.sock.send(encode(speaker, opcode, records(opcode, **columns), self.sequence, 0))

    def pair(self, vid: int, opcode: Opcode, receiver: int = RECEIVER, **columns: list[int]) -> None:
        self.say(vid, opcode, sender=[VNS[vid]], receiver=[receiver], **columns)

    def listen(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            if select.select([self.sock], [], [], left_s)[0]:
                for frame in self.sock.receive(100):
                    self.last[frame.speaker.vlan_vid or 0, frame.opcode] = frame

    def report(self, vid: int, receiver: int = RECEIVER):
        octets = receiver.to_bytes(6)
        entries = self.last[vid, Opcode.TRAFFIC_REPORT].entries
        return next(one for one in entries if one["receiver"].tobytes() == octets)

    def received(self) -> dict[int, int]:
        """Return the octets of data frames that have come since the last call, by VLAN."""
        found: dict[int, int] = {}
        while select.select([self.raw], [], [], 0)[0]:
            data, said, _, _ = self.raw.recvmsg(2048, 64)
            tci = struct.unpack_from("=H", said[0][2], 16)[0] & 0xFFF if said else 0
            if data[12:14] == b"\x08\x00":
                found[tci] = found.get(tci, 0) + len(data) + 4
        return found


@pytest.fixture
def controller(uplink) -> Iterator[Controller]:
    with FrameSocket(SWITCH, 0) as sock, socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
        raw.setsockopt(263, 8, 1)
        raw.setsockopt(263, 23, 1)
        raw.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        raw.bind((SWITCH, 3))
        yield Controller(sock, raw)


def start(*more: str) -> subprocess.Popen[str]:
    words = ["--interface", UPLINK, "--vlans", "10,20", "--link-rate", str(LINK_BPS), "--interval", str(INTERVAL_MS)]
    command = ["ip", "netns", "exec", NAMESPACE, sys.executable, "-m", "apps.cli", "agent", *words, *more]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def running(*more: str) -> Iterator[subprocess.Popen[str]]:
    process = start(*more)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "ready\n", process.communicate(timeout=10)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)


SEND = """
import socket, sys, time
seconds, per_tick, frames = float(sys.argv[2]), int(sys.argv[3]), [bytes.fromhex(one) for one in sys.argv[4:]]
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sock.bind((sys.argv[1], 0))
end = time.monotonic() + seconds
while time.monotonic() < end:
    for frame in frames:
        for _ in range(per_tick):
            try:
                sock.send(frame)
            except OSError:
                pass
    time.sleep(0.002)
"""


def frame(vid: int, receiver: int = RECEIVER, ethertype: int = 0x0800) -> str:
    head = receiver.to_bytes(6) + VNS[vid].to_bytes(6) + struct.pack("!HHH", 0x8100, vid, ethertype)
    return (head + bytes(FRAME_OCTETS - len(head))).hex()


def sending(seconds: float, per_tick: int, *frames: str, interface: str = UPLINK) -> subprocess.Popen[bytes]:
    options = [interface, str(seconds), str(per_tick)]
    command = ["ip", "netns", "exec", NAMESPACE, sys.executable, "-c", SEND, *options, *frames]
    return subprocess.Popen(command)


def rates_bps(
    controller: Controller, seconds: float, per_tick: int, *frames: str, meanwhile=lambda: None, interface: str = UPLINK
):
    """Return the rates by VLAN while so much is offered, without the first tenth of a second."""
    process = sending(seconds + 0.5, per_tick, *frames, interface=interface)
    while not controller.received():
        assert process.poll() is None
    controller.listen(0.1)
    controller.received()
    begun_s, got = time.monotonic(), dict[int, int]()
    while time.monotonic() - begun_s < seconds:
        meanwhile()
        controller.listen(0.02)
        for vid, octets in controller.received().items():
            got[vid] = got.get(vid, 0) + octets
    elapsed_s = time.monotonic() - begun_s
    process.wait(10)
    controller.received()
    return {vid: octets * 8 / elapsed_s for vid, octets in got.items()}


def test_an_agent_says_hello_shapes_and_reports(controller) -> None:
    with running():
        controller.listen(0.2)
        hello = controller.last[10, Opcode.HELLO].entries[0]
        assert hello["features"] & Feature.SHAPES
        assert hello["link_rate_kbps"] == LINK_BPS // 1000
        controller.pair(10, Opcode.INITIALIZE)
        controller.pair(10, Opcode.SET_RATE, rate_kbps=[5000])
        rates = rates_bps(controller, 2.0, 5, frame(10), meanwhile=lambda: controller.pair(10, Opcode.KEEP_ALIVE))
        assert rates[10] == pytest.approx(5e6, rel=0.02)
        report = controller.report(10)
        assert report["measured_kbps"] == pytest.approx(5000, rel=0.1)
        assert report["limit_kbps"] == 5000
        assert report["dropped_kbps"] > 5000
        assert report["flags"] & ReportFlag.SHAPED_HERE


def test_frames_are_shaped_whose_tag_stands_beside_them(controller) -> None:
    """A vswitch in the kernel, as a VLAN interface, keeps a frame's tag beside it until it is on the wire."""
    run("ip", "-n", NAMESPACE, "link", "add", "acc0", "type", "veth", "peer", "name", "vn0")
    for name in ("acc0", "vn0"):
        run("ip", "-n", NAMESPACE, "link", "set", name, "up")
    attach = f"from topologies import vlan_switch; vlan_switch.attach({UPLINK!r}, {{'acc0': 10}})"
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
    forged = Speaker(CONTROLLER_MAC, VNS[10], 10, 0xBAD, ethertype)
    hello = records(Opcode.HELLO, features=[7], interval_ms=[55], most_classes=[9], link_rate_kbps=[9])
    (octets,) = encode(forged, Opcode.HELLO, hello, 1, 0)
    with running():
        controller.listen(0.1)
        sending(0.3, 5, octets.hex(), octets[:12].hex() + octets[16:].hex()).wait(10)
        controller.listen(0.5)
    assert {frame.speaker.epoch for frame in controller.last.values()} != {0xBAD}
    assert all(frame.speaker.epoch != 0xBAD for frame in controller.last.values())


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
        assert "3000" not in run("tc", "-n", NAMESPACE, "class", "show", "dev", UPLINK)
    assert "htb" not in run("tc", "-n", NAMESPACE, "qdisc", "show", "dev", UPLINK)


def test_rates_stay_on_request(controller) -> None:
    with running("--on-stop", "keep"):
        controller.listen(0.2)
        controller.pair(10, Opcode.INITIALIZE)
        controller.pair(10, Opcode.SET_RATE, rate_kbps=[5000])
        controller.listen(0.1)
    assert "ceil 5Mbit" in run("tc", "-n", NAMESPACE, "class", "show", "dev", UPLINK)


def test_a_lost_controller_is_obeyed_for_forty_intervals_and_not_for_ever(controller) -> None:
    def classes() -> str:
        return run("tc", "-n", NAMESPACE, "class", "show", "dev", UPLINK)

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
    with running("--replace"):
        assert "htb de75:" in run("tc", "-n", NAMESPACE, "qdisc", "show", "dev", UPLINK)


def test_a_dry_run_shapes_nothing(controller) -> None:
    process = start("--dry-run")
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("would give agt0 an HTB root of 50 Mbit/s")
        assert process.stdout.readline() == "ready\n"
        controller.listen(0.2)
        controller.pair(10, Opcode.INITIALIZE)
        controller.pair(10, Opcode.SET_RATE, rate_kbps=[5000])
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
    controller.sock.send(encode(Speaker(VNS[10], CONTROLLER_MAC, 10, 1, 0x88B5), Opcode.HELLO, answer, 1, 0))
    said, _ = process.communicate(timeout=20)
    assert "0x8808: no answer\n0x88b5: a controller answers\nuse --ethertype 0x88b5\n" in said
    assert process.returncode == 0
