"""``dets bench agent``: processor time of an agent and of the codec, and HTB classes whose rates change constantly.

HTB is on a veth pair in its own network namespace; a process offers each class more than its rate. A meter's bucket is
filled at every modify, so a meter that is modified repeatedly passes more than its rate. A class must not.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np

from apps.agent.agent import Agent, AgentOptions
from apps.agent.htb import HtbShaper
from apps.agent.shaper import VN_AGGREGATE, ShapedPair
from controller.agents.control_frames import (
    CONTROLLER_MAC,
    LONG_PARAMETER_BYTES,
    ControlFrame,
    FrameAddress,
    FrameRejection,
    Opcode,
    decode,
    encode,
    records,
)
from experiments.bench.harness import Target, best_s, check_bounds, finished
from experiments.machine.namespaces import Namespaces

PAIRS, SECONDS = 1000, 5.0
INTERVAL_S = 0.055
RATE_BPS = 5_000_000
ALTERNATING_BPS = (3_500_000, 6_500_000)
# The rates that a class is set to in turn, one in each interval. Without any it keeps RATE_BPS.
SCHEDULES_BPS: dict[str, tuple[int, ...]] = {"constant": (), "set again": (RATE_BPS,), "by turns": ALTERNATING_BPS}
VLAN = 10
UPLINK = "eth0"  # of a namespace
SENDER = 0x02_0000_0000_01
FRAME_BYTES = 1518
LINK_BPS = 1_000_000_000
BUDGET_S, CALLS = 1.0, 20  # of calls of which the best counts


def run(
    pairs: Annotated[int, "Pairs of one agent."] = PAIRS,
    seconds: Annotated[float, "How long each rate is measured."] = SECONDS,
) -> dict[str, Any]:
    """Cost of an agent for its host, and error of its rates (root).

    Raises PermissionError without root.
    """
    check_bounds(pairs=(pairs, 1, 50_000), seconds=(seconds, 0.5, 600))
    if os.geteuid() != 0:
        raise PermissionError("bench agent needs root: it makes a network namespace with HTB classes")
    codec_us = codec_us_per_pair()
    with Namespaces(1) as spaces, spaces.inside(0):
        rates = {name: passed_bps(rates_bps, seconds) / 1e6 for name, rates_bps in SCHEDULES_BPS.items()}
        batch_ms = batch_of_changes_ms()
        cpu_percent = agent_cost(pairs)
    figures = {
        "passed_mbps": rates,
        "hundred_changes_ms": batch_ms,
        "agent_cpu_percent_per_1000_pairs": cpu_percent * 1000 / pairs,
        "codec_us_per_pair": codec_us,
    }
    deviation = max(abs(rate / 5.0 - 1.0) for rate in rates.values())  # from RATE_BPS, 5 Mb/s
    targets = [
        Target("rates that change, off their mean", round(100 * deviation, 2), "%", 1.0),
        Target("100 changes of rates", round(batch_ms, 2), "ms", 5.0),
        Target("encode and decode, a pair", codec_us, "us", 0.2),
    ]
    return finished("agent", figures, targets, {"pairs": pairs, "seconds": seconds})


def _entries(count: int) -> Any:
    """Return the records of a Traffic Report on ``count`` pairs."""
    numbers = np.arange(count)
    return records(
        Opcode.TRAFFIC_REPORT,
        sender=np.full(count, SENDER),
        receiver=SENDER + 1 + numbers,
        measured_kbps=numbers,
        dropped_kbps=numbers,
        limit_kbps=numbers + 1,
        available_kbps=numbers,
        flags=np.full(count, 3),
    )


def codec_us_per_pair() -> float:
    """Return the time of encoding and decoding a Traffic Report in long frames, per pair in us."""
    address, entries = FrameAddress(CONTROLLER_MAC, SENDER, VLAN, 1), _entries(46 * 40)  # 40 frames, each of 46

    def there_and_back() -> None:
        frames = encode(address, Opcode.TRAFFIC_REPORT, entries, 1, 0, LONG_PARAMETER_BYTES)
        decoded = [frame for frame in map(decode, frames) if isinstance(frame, ControlFrame)]
        assert sum(len(frame.entries) for frame in decoded) == len(entries)

    return round(best_s(there_and_back, BUDGET_S, CALLS) / len(entries) * 1e6, 4)


def passed_bps(rates_bps: Sequence[int], seconds: float) -> float:
    """Return the rate in bit/s that a class passes under overload, while it is set to ``rates_bps`` in turn."""
    shaper, pair = HtbShaper(UPLINK, [VLAN], LINK_BPS), ShapedPair(VLAN, (SENDER + 1).to_bytes(6))
    try:
        shaper.set_rates([(pair, RATE_BPS)])
        with offering(pair):
            while not shaper.counters([pair]).dropped_octets[0]:
                time.sleep(0.01)
            intervals = 2 * round(seconds / INTERVAL_S / 2)  # even: both of two alternating rates apply equally often
            begun_s, before = time.monotonic(), shaper.counters([pair]).sent_octets[0]
            for number in range(intervals):
                if rates_bps:
                    shaper.set_rates([(pair, rates_bps[number % len(rates_bps)])])
                time.sleep(max(begun_s + (number + 1) * INTERVAL_S - time.monotonic(), 0.0))
            passed = shaper.counters([pair]).sent_octets[0] - before
            return float(passed * 8 / (time.monotonic() - begun_s))
    finally:
        shaper.close(keep=False)


def batch_of_changes_ms() -> float:
    """Return the time of setting a hundred rates in one call in ms: the best of several."""
    shaper, rates_bps = HtbShaper(UPLINK, [VLAN], LINK_BPS), itertools.cycle(ALTERNATING_BPS)
    pairs = [ShapedPair(VLAN, (SENDER + 1 + number).to_bytes(6)) for number in range(100)]

    def set_rates() -> None:
        rate_bps = next(rates_bps)
        shaper.set_rates([(pair, rate_bps) for pair in pairs])

    try:
        set_rates()
        return best_s(set_rates, BUDGET_S, CALLS) * 1e3
    finally:
        shaper.close(keep=False)


class _LoopbackController:
    """A controller in the process: in every interval it sends Keep Alive, or another rate for a tenth of the pairs."""

    address = SENDER

    def __init__(self, pairs: int) -> None:
        self._pairs, self._sequence, self._number = pairs, 0, 0
        self._waiting: list[bytes] = []

    def fileno(self) -> int:
        raise OSError("there is no file")

    def send(self, frames: list[bytes]) -> None:
        pass

    def receive(self, max_frames: int) -> list[ControlFrame]:
        received, self._waiting = self._waiting, []
        return [frame for frame in map(decode, received) if not isinstance(frame, FrameRejection)]

    def queue_frames(self, opcode: Opcode, receivers: np.ndarray[Any, Any], **columns: Any) -> None:
        """Queue frames of an opcode."""
        address = FrameAddress(SENDER, CONTROLLER_MAC, VLAN, 1)
        entries = records(opcode, sender=np.full(len(receivers), SENDER), receiver=receivers, **columns)
        frames = encode(address, opcode, entries, self._sequence + 1, 0, LONG_PARAMETER_BYTES)
        self._sequence = (self._sequence + len(frames)) % 2**16
        self._waiting += frames

    def interval(self) -> None:
        """Queue one interval's frames: Set Rate for the next tenth of the pairs, Keep Alive for the other pairs."""
        self._number += 1
        receivers = SENDER + 1 + np.arange(self._pairs)  # MACs as numbers
        changed = (np.arange(self._pairs) + self._number) % 10 == 0
        self.queue_frames(
            Opcode.SET_RATE, receivers[changed], rate_kbps=np.full(changed.sum(), 4000 + self._number % 100)
        )
        self.queue_frames(Opcode.KEEP_ALIVE, receivers[~changed])


def agent_cost(pairs: int) -> float:
    """Return the processor time of an agent with ``pairs`` pairs, in percent of one processor.

    In every interval a tenth of the rates changes, all counters are read and all pairs are reported.
    """
    shaper, controller = HtbShaper(UPLINK, [VLAN], LINK_BPS), _LoopbackController(pairs)
    try:
        agent = Agent(AgentOptions((VLAN,), LINK_BPS), shaper, controller)
        receivers = SENDER + 1 + np.arange(pairs)
        controller.queue_frames(Opcode.INITIALIZE, receivers)
        controller.queue_frames(Opcode.SET_RATE, receivers, rate_kbps=np.full(pairs, 4000))
        agent.receive_frames()
        assert ShapedPair(VLAN, VN_AGGREGATE) not in agent.pairs.rate_kbps
        used_s, intervals = 0.0, 40
        for _ in range(intervals):
            controller.interval()
            before_s = time.process_time()
            agent.receive_frames()
            agent.run_interval()
            used_s += time.process_time() - before_s
        return used_s / (intervals * INTERVAL_S) * 100
    finally:
        shaper.close(keep=False)


_OFFER = """
import socket, sys, time
frame, sock = bytes.fromhex(sys.argv[1]), socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sock.bind((sys.argv[2], 0))
while True:
    for _ in range(6):
        try:
            sock.send(frame)
        except OSError:
            pass
    time.sleep(0.002)
"""


@contextlib.contextmanager
def offering(pair: ShapedPair) -> Iterator[None]:
    """Run a process that offers a pair several times its rate."""
    head = pair.destination + SENDER.to_bytes(6) + b"\x81\x00" + pair.vlan_vid.to_bytes(2) + b"\x08\x00"
    command = [sys.executable, "-c", _OFFER, head.hex() + bytes(FRAME_BYTES - len(head)).hex(), UPLINK]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.kill()
        process.wait(10)
