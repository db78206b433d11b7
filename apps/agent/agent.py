"""The agent's loop: read counters, report, process the controller's frames, apply rates.

The loop never blocks. A frame that the interface does not accept is lost, and the next interval repeats its content. At
most MAX_FRAMES are read at once. The loop continues without a controller (``pair_state``).
"""

from __future__ import annotations

import logging
import random
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from apps.agent.pair_state import AgentPairs
from apps.agent.shaper import Shaper
from controller.agents.control_frames import (
    CONTROLLER_MAC,
    LONG_PARAMETER_BYTES,
    NO_RATE,
    SHORT_PARAMETER_BYTES,
    ControlFrame,
    Feature,
    FrameAddress,
    Opcode,
    SequenceWindow,
    encode,
    records,
)
from controller.openflow.ethernet import ETH_TYPE_MAC_CONTROL

LOG = logging.getLogger("dets.agent")
HELLO_INTERVALS = 5  # an agent without pairs sends nothing else, and counts as lost after 20 intervals
MAX_FRAMES = 1024  # per interval
MIN_INTERVAL_MS, MAX_INTERVAL_MS = 10, 10_000


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The options of an agent: ``vlans`` (0: untagged frames), the link's rate, and how control frames are sent."""

    vlans: tuple[int, ...]
    link_rate_bps: int
    ethertype: int = ETH_TYPE_MAC_CONTROL
    interval_ms: int = 55
    long_frames: bool = True


class FramePort(Protocol):
    """A port that sends and receives control frames; ``address`` is the host's MAC address there."""

    address: int

    def fileno(self) -> int:
        """Return the file descriptor, to wait on."""

    def send(self, frames: list[bytes]) -> None:
        """Send frames; those that cannot be sent now are lost."""

    def receive(self, max_frames: int) -> list[ControlFrame]:
        """Return the received frames, at most ``max_frames``."""


class Agent:
    """The agent of one interface. ``clock`` is monotonic, in seconds."""

    def __init__(
        self,
        options: AgentOptions,
        shaper: Shaper,
        sock: FramePort,
        clock: Callable[[], float] = time.monotonic,
        epoch: int | None = None,
    ) -> None:
        self.options, self.interval_s = options, options.interval_ms / 1000
        self.pairs = AgentPairs(options.vlans, shaper.most_pairs)
        self.intervals = self.refusals = 0
        self._shaper, self._socket, self._clock = shaper, sock, clock
        self._epoch = random.getrandbits(32) if epoch is None else epoch
        self._sequence = dict.fromkeys(options.vlans, 0)
        self._received = {vid: SequenceWindow() for vid in options.vlans}  # by VLAN: which frames are new
        self._controller_epoch: int | None = None
        self._longest_octets = SHORT_PARAMETER_BYTES
        self._read_s = clock()
        self._errors: list[str] = []  # the kernel's, for the last changes
        self._stopped = False

    def stop(self) -> None:
        """Let ``run`` end soon; may be called from a signal handler."""
        self._stopped = True

    def run(self) -> None:
        """Run the loop until ``stop``."""
        due_s = self._clock()
        while not self._stopped:
            remaining_s = due_s - self._clock()
            if remaining_s > 0:
                if select.select([self._socket], [], [], remaining_s)[0]:
                    self.receive_frames()
                continue
            self.run_interval()
            # After a delay no report is of a moment: its rate would be by chance.
            due_s = max(due_s + self.interval_s, self._clock() + self.interval_s / 2)

    def receive_frames(self) -> None:
        """Process received frames, and apply the rates that they set at once."""
        for frame in self._socket.receive(MAX_FRAMES):
            self._apply_frame(frame)
        self._apply()

    def run_interval(self) -> None:
        """Read counters, send Traffic Reports, apply rates, and send Hello every HELLO_INTERVALS."""
        now_s = self._clock()
        counters = self._shaper.counters(self.pairs.pairs)
        elapsed_s, self._read_s = max(now_s - self._read_s, 1e-3), now_s
        reports = self.pairs.interval(counters, elapsed_s)
        if self.intervals % HELLO_INTERVALS == 0:
            self._hello()
        self.intervals += 1
        for vid, entries in reports.items():
            self._send(vid, Opcode.TRAFFIC_REPORT, entries)
        self._apply()

    def _apply_frame(self, frame: ControlFrame) -> None:
        """Process a control frame; count it as refused if it is old, not the controller's, or of another VLAN.

        The first frame of a new epoch, that is of a new run of the controller, is answered with Hello. The controller's
        Hello sets the length of frames and the interval.
        """
        vid = frame.speaker.vlan_vid or 0
        window = self._received.get(vid)
        if window is None or frame.speaker.source != CONTROLLER_MAC or not window.accept(frame):
            self.refusals += 1
            return
        if frame.speaker.epoch != self._controller_epoch:
            self._controller_epoch = frame.speaker.epoch
            LOG.info("controller found, epoch %08x", frame.speaker.epoch)
            self._hello()
        if frame.opcode is Opcode.HELLO:
            hello = frame.entries[0]
            both_long = self.options.long_frames and hello["features"] & Feature.LONG_FRAMES
            self._longest_octets = LONG_PARAMETER_BYTES if both_long else SHORT_PARAMETER_BYTES
            self.interval_s = min(max(int(hello["interval_ms"]), MIN_INTERVAL_MS), MAX_INTERVAL_MS) / 1000
        self.pairs.on_frame(frame)

    def _apply(self) -> None:
        """Let the shaper apply the changed rates; an error of the kernel is logged, and rejected rates are repeated."""
        rates, removed = self.pairs.drain_changes()
        errors = []
        try:
            if removed:
                self._shaper.remove(removed)
        except OSError as error:
            errors.append(str(error))
        try:
            if rates:
                self._shaper.set_rates(rates)
        except OSError as error:
            errors.append(str(error))
            self.pairs.restore_rates(rates)
        if errors and errors != self._errors:  # once, not in every interval
            LOG.error("the kernel rejected a change: %s", "; ".join(errors))
        self._errors = errors

    def _hello(self) -> None:
        """Send Hello with this agent's features, in its first VLAN."""
        features = Feature.SHAPES | Feature.REPORTS | (Feature.LONG_FRAMES if self.options.long_frames else 0)
        max_classes = min(self._shaper.most_pairs, 0xFFFF)
        link_kbps = min(self.options.link_rate_bps // 1000, NO_RATE - 1)
        entry = records(
            Opcode.HELLO,
            features=[int(features)],
            interval_ms=[round(self.interval_s * 1000)],
            most_classes=[max_classes],
            link_rate_kbps=[link_kbps],
        )
        self._send(self.options.vlans[0], Opcode.HELLO, entry)

    def _send(self, vid: int, opcode: Opcode, entries: object) -> None:
        """Send records of one opcode in as many frames as they need, in a VLAN (0: untagged)."""
        speaker = FrameAddress(CONTROLLER_MAC, self._socket.address, vid or None, self._epoch, self.options.ethertype)
        clock_ms = int(self._read_s * 1000)
        frames = encode(speaker, opcode, entries, self._sequence[vid] + 1, clock_ms, self._longest_octets)  # type: ignore[arg-type]
        self._sequence[vid] = (self._sequence[vid] + len(frames)) % 2**16
        self._socket.send(frames)
