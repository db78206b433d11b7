"""A host's uplink in a network namespace, an agent on it, and a controller's end of its control frames."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from support.paths import ROOT

from apps.agent.frame_socket import FrameSocket
from controller.agents.control_frames import CONTROLLER_MAC, ControlFrame, FrameAddress, Opcode, encode, records

NAMESPACE, UPLINK, SWITCH = "dets-agent-t", "agt0", "agt1"
VNS = {10: 0x02_0000_000A, 20: 0x02_0000_0014}
RECEIVER = 0x02_0000_0099
INTERVAL_MS = 20
FRAME_BYTES = 1514 + 4
LINK_BPS = 50_000_000


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=20).stdout


@contextlib.contextmanager
def uplink() -> Iterator[None]:
    """A host's uplink in a namespace; the switch's end is in this one."""
    _remove_uplink()
    run("ip", "netns", "add", NAMESPACE)
    run("ip", "link", "add", SWITCH, "type", "veth", "peer", "name", UPLINK, "netns", NAMESPACE)
    run("ip", "-n", NAMESPACE, "link", "set", UPLINK, "up")
    run("ip", "link", "set", SWITCH, "up")
    yield
    _remove_uplink()


def _remove_uplink() -> None:
    """Take away what is there. The link goes first, at once: with its namespace it would go some time later."""
    for kind, name in (("link", SWITCH), ("netns", NAMESPACE)):
        with contextlib.suppress(subprocess.CalledProcessError):
            run("ip", kind, "del", name)


@dataclass
class Controller:
    """The other end, as far as these tests need one."""

    sock: FrameSocket
    raw: socket.socket
    sequence: int = 0
    last: dict[tuple[int, Opcode], ControlFrame] = field(default_factory=dict)
    measured_kbps: list[int] = field(default_factory=list)  # as reported before each keep-alive

    def say(self, vid: int, opcode: Opcode, **columns: list[int]) -> None:
        self.sequence += 1
        speaker = FrameAddress(VNS[vid], CONTROLLER_MAC, vid, 77)
        self.sock.send(encode(speaker, opcode, records(opcode, **columns), self.sequence, 0))

    def pair(self, vid: int, opcode: Opcode, receiver: int = RECEIVER, **columns: list[int]) -> None:
        self.say(vid, opcode, sender=[VNS[vid]], receiver=[receiver], **columns)

    def keep_alive(self, vid: int) -> None:
        """Keep a pair alive, and note what its agent has measured last."""
        if (vid, Opcode.TRAFFIC_REPORT) in self.last:
            self.measured_kbps.append(int(self.report(vid)["measured_kbps"]))
        self.pair(vid, Opcode.KEEP_ALIVE)

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


@contextlib.contextmanager
def controller_end() -> Iterator[Controller]:
    """The switch's end of the uplink."""
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
    return (head + bytes(FRAME_BYTES - len(head))).hex()


def sending(seconds: float, per_tick: int, *frames: str, interface: str = UPLINK) -> subprocess.Popen[bytes]:
    options = [interface, str(seconds), str(per_tick)]
    command = ["ip", "netns", "exec", NAMESPACE, sys.executable, "-c", SEND, *options, *frames]
    return subprocess.Popen(command)


def rates_bps(
    controller: Controller, seconds: float, per_tick: int, *frames: str, meanwhile=lambda: None, interface: str = UPLINK
):
    """Return the rates by VLAN while so much is offered, without the first tenth of a second.

    ``meanwhile`` is called until then too: a sender takes longer to start than an agent obeys who says nothing.
    """
    process = sending(seconds + 0.5, per_tick, *frames, interface=interface)
    while not controller.received():
        assert process.poll() is None
        meanwhile()
        controller.listen(0.02)
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
