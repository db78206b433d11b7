"""Tests of a switch: the controller sends frames through a flow entry with a meter, and into queues.

Meters are tested when a switch connects, before anything else is sent to it. Tenants' traffic is not affected: the
test's flow entries match only frames from the controller (in_port CONTROLLER, OpenFlow 1.3.5, section 7.2.1) and send
them back to it.

1. One entry sends frames up as they are, another one through a meter far too small for them.
2. The same number of frames is sent to each, by packet-out into the tables (port TABLE); then the meter's counters are
   read. A few more frames are IPv4 packets with a congestion mark; their flow entry matches the mark and clears it.
3. Returned frames of the first kind show that the path works; those of the second kind, whether the meter limits. The
   switch may also reject these flow entries, the third one (with a queue), or the one that clears marks.
4. Flow entries and meter are deleted; an idle timeout removes the flow entries if the controller stops first.

Queues (``queue_frames``): a few short frames leave an edge port with the VLAN's tag, to an address that no bridge
forwards and no host accepts (``controller.capability.queue_monitor`` finds the queue that counted them).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from controller.capability.capabilities import Ability, Capabilities, ProbeResult
from controller.errors import ProtocolError
from controller.fabric.config_model import EdgePort
from controller.fabric.meter_bounds import UNBOUNDED, MeterBounds
from controller.forwarding.pipeline import Table
from controller.openflow import constants as ofp
from controller.openflow.actions import Action, Output, SetIpEcn, SetQueue
from controller.openflow.constants import FlowModCommand, MeterModCommand
from controller.openflow.ethernet import FrameHeader, build_frame, ip_ecn_of, parse_frame
from controller.openflow.flows import Flow, encode_flow_delete_by_cookie, encode_flow_mods
from controller.openflow.match import Match
from controller.openflow.messages import ErrorMessage, PacketIn, encode_packet_out
from controller.openflow.meters import decode_meter_stats, encode_meter_deletes, encode_meter_mods

COOKIE = 0xDE76_0000_0000_0000
COOKIE_MASK = 0xFFFF_0000_0000_0000
DESTINATION = 0x0180_C200_000E  # nearest bridge: no bridge forwards it (IEEE 802.1Q, table 8-1)
ETH_TYPE = 0x88B6  # IEEE 802: local experimental ethertype 2
_SOURCE = 0x02DE_7600_0000  # locally administered
PRIORITY = 2000
IDLE_TIMEOUT_S = 10
REPORT_BYTES = 64

# Small, but not below the minimum of switches with coarse steps; two frames fit into the bucket.
FRAMES = 20
FRAME_BYTES = 1000
RATE_KBPS = 64
BURST_KBITS = 16

QUEUE_FRAMES = MARKED_FRAMES = 3
ETH_TYPE_IPV4 = 0x0800
IP_ECN_CE = 3
# An IPv4 header of 20 bytes with a mark, protocol 253 (RFC 3692: for experiments), and its checksum.
_MARKED_PACKET = bytes.fromhex("45030014 00000000 01fd34e7 c0000201 c0000202")
_SHORTEST_FRAME = 60


class ProbeKind(IntEnum):
    """The kinds of probe frames and of their entries."""

    PLAIN = 1
    METERED = 2
    QUEUED = 3
    MARKED = 4


# The test of meters does not depend on these.
NON_METER_KINDS = frozenset({ProbeKind.QUEUED.name, ProbeKind.MARKED.name})


@dataclass
class MeterProbe:
    """One test of a switch's meters, with the unused meter ``meter_id`` and queue ``queue_id``.

    ``bounds`` are the bounds of the switch's meters.
    """

    meter_id: int
    queue_id: int
    bounds: MeterBounds = UNBOUNDED
    seen: dict[ProbeKind, int] = field(default_factory=lambda: dict.fromkeys(ProbeKind, 0))
    refused: dict[str, str] = field(default_factory=dict)
    _first_xid: int = 0
    # What each message of ``setup`` is about, in the order of their xids.
    _parts: tuple[str, ...] = ("clean", "meter", *(kind.name for kind in ProbeKind))

    @property
    def setup_messages(self) -> int:
        """Return the number of messages that ``setup`` returns."""
        return len(self._parts)

    def setup(self, xid_first: int) -> bytes:
        """Return the messages that create meter and flow entries.

        They first delete the flow entries that an earlier test may have left; the meter's id is free.
        """
        self._first_xid = xid_first
        flows = [(FlowModCommand.ADD, self._flow(kind)) for kind in ProbeKind]
        rate_kbps, burst_kbits = (int(one) for one in self.bounds.fitted(RATE_KBPS, BURST_KBITS))
        return (
            encode_flow_delete_by_cookie(COOKIE, COOKIE_MASK, xid_first)
            + encode_meter_mods(MeterModCommand.ADD, [self.meter_id], [rate_kbps], [burst_kbits], xid_first + 1)
            + encode_flow_mods(flows, xid_first + 2)
        )

    def _flow(self, kind: ProbeKind) -> Flow:
        """Return the flow entry of one probe: it sends the probe's packet back to the controller."""
        first: dict[ProbeKind, tuple[Action, ...]] = {
            ProbeKind.QUEUED: (SetQueue(self.queue_id),),
            ProbeKind.MARKED: (SetIpEcn(0),),
        }
        match = Match(in_port=ofp.PORT_CONTROLLER, eth_dst=DESTINATION, eth_src=_SOURCE | kind)
        if kind is ProbeKind.MARKED:
            match = match._replace(eth_type=ETH_TYPE_IPV4, ip_ecn=IP_ECN_CE)
        return Flow(
            Table.CLASSIFY,
            PRIORITY,
            match,
            COOKIE | kind,
            IDLE_TIMEOUT_S,
            meter_id=self.meter_id if kind is ProbeKind.METERED else None,
            actions=(*first.get(kind, ()), Output(ofp.PORT_CONTROLLER, REPORT_BYTES)),
        )

    @property
    def frame_messages(self) -> int:
        """Return the number of messages that ``frames`` returns."""
        return MARKED_FRAMES + 2 * FRAMES

    def frames(self, xid_first: int) -> bytes:
        """Return the packet-outs: those with a mark, those through the meter, then the plain ones."""
        marked = build_frame(FrameHeader(DESTINATION, _SOURCE | ProbeKind.MARKED, None, ETH_TYPE_IPV4), _MARKED_PACKET)
        frames = [marked.ljust(_SHORTEST_FRAME, b"\0")] * MARKED_FRAMES
        for kind in (ProbeKind.METERED, ProbeKind.PLAIN):
            frames += [_frame(kind, None, FRAME_BYTES)] * FRAMES
        action = (Output(ofp.PORT_TABLE),)
        return b"".join(
            encode_packet_out(xid_first + number, ofp.PORT_CONTROLLER, action, frame)
            for number, frame in enumerate(frames)
        )

    cleanup_messages = 2

    def cleanup(self, xid_first: int) -> bytes:
        """Return the messages that delete flow entries and meter."""
        clean = encode_flow_delete_by_cookie(COOKIE, COOKIE_MASK, xid_first)
        return clean + encode_meter_deletes([self.meter_id], xid_first + 1)

    def on_packet_in(self, packet: PacketIn) -> bool:
        """Return whether a packet-in is one of the test's frames; it is counted, unless it still has its mark."""
        if packet.in_port != ofp.PORT_CONTROLLER:
            return False
        try:
            header = parse_frame(packet.data)
        except ProtocolError:
            return False
        kind = header.eth_src ^ _SOURCE
        if header.eth_dst != DESTINATION or kind not in set(ProbeKind):
            return False
        self.seen[ProbeKind(kind)] += not ip_ecn_of(packet.data, header)
        return True

    def on_error(self, error: ErrorMessage) -> bool:
        """Record an error if it is about one of the test's messages; return whether it is."""
        number = error.xid - self._first_xid
        if not 0 <= number < self.setup_messages + self.frame_messages:
            return False
        part = self._parts[number] if number < self.setup_messages else "packet-out"
        self.refused.setdefault(part, error.text)
        return True

    @property
    def all_seen(self) -> bool:
        """Return whether all frames that pass no meter have returned."""
        return self.seen[ProbeKind.PLAIN] >= FRAMES

    def evaluate(self, can: Capabilities, meter_stats: bytes | None) -> None:
        """Store the result of the test in ``can``; ``meter_stats`` is the body of the reply, None without one.

        Queues and marks come first: they do not depend on meters. Meters work if they pass at most half as many frames
        as return without a meter.
        """
        if ProbeKind.QUEUED.name in self.refused:
            can.set_queue = Ability(
                ProbeResult.FAILS, f"the switch rejects set_queue: {self.refused[ProbeKind.QUEUED.name]}"
            )
        elif ProbeKind.PLAIN.name not in self.refused:
            can.set_queue = Ability(ProbeResult.WORKS)
        if ProbeKind.MARKED.name in self.refused:
            why = f"the switch rejects matching and clearing marks (ip_ecn): {self.refused[ProbeKind.MARKED.name]}"
            can.ecn = Ability(ProbeResult.FAILS, why)
        elif self.seen[ProbeKind.MARKED]:
            can.ecn = Ability(ProbeResult.WORKS)
        elif self.seen[ProbeKind.PLAIN]:
            can.ecn = Ability(ProbeResult.FAILS, "marks (ip_ecn) are not seen, or not cleared")
        # Without a meter, or flow entries with one, there is nothing else to test.
        for part, what in (("meter", "meters"), (ProbeKind.METERED.name, "entries with a meter")):
            if part in self.refused:
                can.disable_meters(f"the switch rejects {what}: {self.refused[part]}")
                return
        counted, dropped = self._counts(meter_stats)
        plain, passed = self.seen[ProbeKind.PLAIN], self.seen[ProbeKind.METERED]
        if not (plain or passed or counted):
            can.meters = Ability(why="it does not pass packet-outs through its tables")
            return
        if can.counters.finding is not ProbeResult.ABSENT and meter_stats is not None:
            silent = Ability(ProbeResult.FAILS, "its meters count nothing")
            can.counters = Ability(ProbeResult.WORKS) if counted else silent
        if not passed and not dropped:
            can.disable_meters("frames through a meter are lost")
        elif passed <= max(plain, passed) // 2:
            can.meters = Ability(ProbeResult.WORKS)
        elif counted or meter_stats is None:  # the meter counts at least, and may treat hosts' frames better than these
            can.meters = Ability(ProbeResult.FAILS, "meters pass everything")
        else:
            can.disable_meters("meters neither limit nor count")

    def _counts(self, meter_stats: bytes | None) -> tuple[int, int]:
        """Return the bytes offered and dropped by the meter's counters; an unknown counter is 0."""
        rows = decode_meter_stats(meter_stats) if meter_stats is not None else decode_meter_stats(b"")
        mine = rows[rows["meter_id"] == self.meter_id]
        return _known(mine["byte_in_count"]), _known(mine["band_byte_count"])


def _known(counts: list[int]) -> int:
    return sum(int(count) for count in counts if count != ofp.COUNTER_UNAVAILABLE)


def free_meter_id(first: int, last: int, installed: set[int]) -> int | None:
    """Return the highest id of a range that no meter in ``installed`` has; None if all are in use."""
    return next((meter_id for meter_id in range(last, first - 1, -1) if meter_id not in installed), None)


def queue_frames(port: EdgePort, xid_first: int) -> bytes:
    """Return QUEUE_FRAMES packet-outs out of an edge port, into the queue of its first VLAN."""
    vid = port.vlan_vids[0]
    frame = _frame(ProbeKind.QUEUED, port.tag_of(vid), _SHORTEST_FRAME)
    actions = (SetQueue(vid), Output(port.port_no))
    return b"".join(
        encode_packet_out(xid_first + number, ofp.PORT_CONTROLLER, actions, frame) for number in range(QUEUE_FRAMES)
    )


def _frame(kind: ProbeKind, vlan_vid: int | None, length: int) -> bytes:
    return build_frame(FrameHeader(DESTINATION, _SOURCE | kind, vlan_vid, ETH_TYPE), b"").ljust(length, b"\0")
