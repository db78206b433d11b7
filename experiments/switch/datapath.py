"""One OpenFlow 1.3 switch without its socket: bytes and frames go in with the time, bytes and frames come out.

OpenFlow 1.3.5, sections 6 and 7. Where the specification leaves a choice, the switch behaves as Open vSwitch 3.1 did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import ClassVar

from controller.openflow import constants as ofp
from controller.openflow.bounded_reader import HEADER
from controller.openflow.constants import ControllerRole, ErrorType, FlowModFlags, MessageType, MeterModCommand
from controller.openflow.match import Match
from experiments.switch import replies, requests
from experiments.switch.flow_tables import FlowTableEntry, FlowTables
from experiments.switch.meter_table import MeterAbilities, MeterTable
from experiments.switch.multipart import Multipart
from experiments.switch.openflow_channel import OpenFlowChannel
from experiments.switch.openflow_errors import OpenFlowReplyError
from experiments.switch.options import DatapathOptions
from experiments.switch.pipeline import Pipeline
from experiments.switch.ports import SwitchPort

_FEATURES = Struct("!QIBB2xII")
_CONFIG = Struct("!HH")
_ROLE = Struct("!I4xQ")
_GROUP_MOD = Struct("!HBxI")
_METER_MOD_HEAD = Struct("!HHI")
_CAPABILITIES = 1 | 2 | 4 | 64  # flow, table, port and queue statistics
_GROUP_ADD, _GROUP_MODIFY = 0, 1


@dataclass(slots=True)
class FaultInjection:
    """Faults that the switch shows from now on."""

    lag_s: float = 0.0
    """Delay of all message handling, as if the switch's processor were busy."""
    barrier_delay_s: float = 0.0
    lose_barriers: int = 0
    """Number of further barriers without a reply (-1: all)."""
    lose_replies: set[int] = field(default_factory=set)
    """Multipart types without replies."""
    blank_errors: bool = False
    """Errors have unknown xids, and no data of the rejected message."""
    error_delay_s: float = 0.0
    rename_ports: dict[int, str] = field(default_factory=dict)
    """Names that the interfaces of these port numbers will have."""
    corrupt: Callable[[bytes], bytes] | None = None
    """Applied to every message to the controller."""


class Datapath:
    """An OpenFlow switch. Calls that depend on time get ``now_s``, which must never decrease.

    Its output collects in two lists that the caller empties: ``drain_messages`` and ``drain_frames``. It may have
    several controllers, an ``OpenFlowChannel`` each (``conversations``); calls without a channel are about the first
    one. ``writers`` records changes of the writing controller: the number of its channel, its role and the generation
    id at that time.
    """

    def __init__(self, dpid: int, options: DatapathOptions | None = None) -> None:
        self.dpid = dpid
        self.options = options or DatapathOptions()
        self.faults = FaultInjection()
        self.ports: dict[int, SwitchPort] = {}
        self.refused: list[tuple[int, OpenFlowReplyError]] = []  # (message type, error), for tests
        self.handled: dict[int, int] = {}  # messages by type, for tests
        self.conversations = [OpenFlowChannel()]
        self.writers: list[tuple[int, ControllerRole, int | None]] = []
        self.current = self.conversations[0]  # the channel whose messages are handled
        self._frames: list[tuple[int, bytes]] = []
        self.abilities = MeterAbilities(self.options.max_meters, self.options.meter_limits)
        self.clear_tables()
        self.start_connection()

    def clear_tables(self) -> None:
        """Delete all flows, meters and the generation id, as a restart does."""
        self._generation: int | None = None
        self.tables = FlowTables(self.options.tables, self.options.entries_per_table)
        self.meters = MeterTable(self.abilities)
        self.pipeline = Pipeline(self.tables, self.ports, self.options.ignores_set_queue)
        self.multipart = Multipart(self.options, self.tables, self.meters, self.ports)

    def add_controller(self) -> OpenFlowChannel:
        """Add a controller; return its channel."""
        self.conversations.append(OpenFlowChannel())
        return self.conversations[-1]

    def start_connection(self, conversation: OpenFlowChannel | None = None) -> None:
        """Begin a new connection with a controller: HELLO first, nothing left over from the last one."""
        (conversation or self.conversations[0]).start()

    def add_port(self, port_no: int, rate_bps: float, now_s: float, name: str = "") -> SwitchPort:
        """Add a port that is up, and report it to the controller; return it."""
        hw_addr = 0x02 << 40 | (self.dpid & 0xFFFF) << 16 | port_no & 0xFFFF
        port = SwitchPort(port_no, name or f"eth{port_no}", hw_addr, rate_bps, added_s=now_s)
        self.ports[port_no] = port
        self._port_status(port, ofp.PortReason.ADD)
        self.tables.touch()
        return port

    def remove_port(self, port_no: int) -> None:
        """Remove a port, and report it to the controller."""
        self._port_status(self.ports.pop(port_no), ofp.PortReason.DELETE)
        self.tables.touch()

    def renumber_ports(self, number_of: Mapping[int, int], *, modify: bool = False) -> None:
        """Give ports other numbers, all at once, and report it as Open vSwitch does: by deletes and adds.

        With ``modify`` it is reported instead that ports of these numbers have changed, including their names.
        """
        moved = {number_of[port_no]: self.ports.pop(port_no) for port_no in number_of}
        if not modify:
            for port in moved.values():
                self._port_status(port, ofp.PortReason.DELETE)
        for port_no, port in moved.items():
            port.port_no = port_no
            self.ports[port_no] = port
        for port in moved.values():
            self._port_status(port, ofp.PortReason.MODIFY if modify else ofp.PortReason.ADD)
        self.tables.touch()

    def rename_port(self, port_no: int, name: str) -> None:
        """Give a port's number to an interface of another name, and report it to the controller."""
        self.ports[port_no].name = name
        self._port_status(self.ports[port_no], ofp.PortReason.MODIFY)

    def set_port_up(self, port_no: int, up: bool) -> None:
        """Set a port's link up or down, and report a change to the controller."""
        port = self.ports[port_no]
        if port.up != up:
            port.up = up
            self._port_status(port, ofp.PortReason.MODIFY)
            self.tables.touch()

    def drain_messages(self, conversation: OpenFlowChannel | None = None) -> bytes:
        """Return and delete the bytes for a controller."""
        corrupt, messages = self.faults.corrupt, (conversation or self.conversations[0]).messages
        out = b"".join(messages if corrupt is None else map(corrupt, messages))
        messages.clear()
        return out

    def drain_frames(self) -> list[tuple[int, bytes]]:
        """Return and delete the frames that leave, as (port_no, frame)."""
        frames, self._frames = self._frames, []
        return frames

    def send_raw(self, data: bytes) -> None:
        """Send the first controller any bytes."""
        self.conversations[0].messages.append(data)

    def receive(self, data: bytes, now_s: float, conversation: OpenFlowChannel | None = None) -> None:
        """Receive bytes from a controller: handle every whole message in order, keep the rest for the next call."""
        conversation = conversation or self.conversations[0]
        if self.faults.lag_s or conversation.lagging:
            conversation.lagging.append((now_s + self.faults.lag_s, data))
        else:
            self._process(conversation, data, now_s)

    def _process(self, conversation: OpenFlowChannel, data: bytes, now_s: float) -> None:
        """Handle the complete messages in a connection's bytes, and keep an incomplete one for the next call."""
        self.current = conversation
        buf = conversation.rest + data
        view = memoryview(buf)
        offset = 0
        while len(view) - offset >= HEADER.size and not conversation.broken:
            if buf[offset + 1] == MessageType.METER_MOD:
                handled_bytes = self._one_band_meter_mods(view[offset:], now_s)
                if handled_bytes:
                    offset += handled_bytes
                    continue
            _version, _type, length, _xid = HEADER.unpack_from(view, offset)
            if length < HEADER.size:
                self._refuse(
                    OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_LEN"),
                    bytes(view[offset : offset + HEADER.size]),
                    now_s,
                )
                conversation.broken = True
                break
            if len(view) - offset < length:
                break
            self._handle(view[offset : offset + length], now_s)
            offset += length
        conversation.rest = bytes(view[offset:])

    def inject(self, port_no: int, frame: bytes, now_s: float) -> None:
        """Receive a frame at a port."""
        port = self.ports[port_no]
        if not port.up:
            return
        port.receive(len(frame), 1)
        self.pipeline.run(port_no, frame, _Packet(self, now_s))

    def advance(self, now_s: float) -> None:
        """Advance the time: expire flow entries, send late replies, and handle lagging messages that are due."""
        while self.faults.rename_ports:
            self.rename_port(*self.faults.rename_ports.popitem())
        for conversation in self.conversations:
            while conversation.lagging and conversation.lagging[0][0] <= now_s:
                self._process(conversation, conversation.lagging.popleft()[1], now_s)
        for entry, reason in self.tables.expired(now_s):
            self._flow_removed(entry, reason, now_s)
        self.multipart.revalidate(now_s)
        for conversation in self.conversations:
            late = conversation.late
            conversation.messages += [buf for due_s, buf in late if due_s <= now_s]
            conversation.late = [(due_s, buf) for due_s, buf in late if due_s > now_s]

    def packet_in(
        self, entry: FlowTableEntry | None, in_port: int, frame: bytes, max_len: int, metadata: int = 0
    ) -> None:
        """Send a packet-in; the reason is NO_MATCH if the table-miss entry sent it (section 5.4).

        ``entry`` is the flow table entry that sent it, None for a packet-out; the cookie of -1 then means no entry.
        """
        is_table_miss = entry is not None and entry.flow.priority == 0 and entry.flow.match == _ANY
        reason = ofp.PacketInReason.NO_MATCH if is_table_miss else ofp.PacketInReason.ACTION
        table_id, cookie = (entry.flow.table_id, entry.flow.cookie) if entry else (0, 2**64 - 1)
        self._send_async(replies.packet_in(reason, table_id, cookie, in_port, frame, max_len, metadata))

    def emit(self, port_no: int, queue_id: int | None, frame: bytes) -> None:
        """Send a frame by a port, if the port exists and is up."""
        port = self.ports.get(port_no)
        if port is None or not port.up:
            return
        port.send(queue_id, len(frame), 1)  # counts the frame; ``_frames`` takes it to its receiver
        self._frames.append((port_no, frame))

    def _handle(self, raw: memoryview, now_s: float) -> None:
        """Handle one message; an invalid one is answered with an error reply."""
        version, message_type, _length, xid = HEADER.unpack_from(raw)
        self.handled[message_type] = self.handled.get(message_type, 0) + 1
        try:
            if message_type == MessageType.HELLO:
                if version < ofp.VERSION:
                    raise OpenFlowReplyError(ErrorType.HELLO_FAILED, "INCOMPATIBLE")
                return
            if version != ofp.VERSION:
                raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_VERSION")
            handler = self._HANDLERS.get(message_type)
            if handler is None:
                raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_TYPE")
            if message_type in _CHANGES:
                if self.current.role == ControllerRole.SLAVE:
                    raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "IS_SLAVE")
                self._note_writer()
            handler(self, xid, raw[HEADER.size :], now_s)
        except OpenFlowReplyError as refusal:
            self._refuse(refusal, bytes(raw), now_s)

    def _echo(self, xid: int, body: memoryview, now_s: float) -> None:
        """Reply with the body of the echo request."""
        self._reply(MessageType.ECHO_REPLY, xid, bytes(body))

    def _features(self, xid: int, body: memoryview, now_s: float) -> None:
        fixed = (self.dpid, 0, self.options.tables, 0, _CAPABILITIES, 0)
        self._reply(MessageType.FEATURES_REPLY, xid, _FEATURES.pack(*fixed))

    def _get_config(self, xid: int, body: memoryview, now_s: float) -> None:
        self._reply(MessageType.GET_CONFIG_REPLY, xid, _CONFIG.pack(0, self.current.miss_send_len))

    def _set_config(self, xid: int, body: memoryview, now_s: float) -> None:
        if len(body) != _CONFIG.size:
            raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_LEN")
        self.current.miss_send_len = _CONFIG.unpack(body)[1]

    def _flow_mod(self, xid: int, body: memoryview, now_s: float) -> None:
        """Apply a flow-mod, and send a flow-removed for each entry that it deletes."""
        mod = requests.decode_flow_mod(body, self.options.tables)
        for entry, reason in self.tables.apply(mod, now_s, self.meters.exists):
            self._flow_removed(entry, reason, now_s)

    def _group_mod(self, xid: int, body: memoryview, now_s: float) -> None:
        """Reject groups: the switch has none. Deletes succeed, as there is nothing to delete."""
        if len(body) < _GROUP_MOD.size:
            raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_LEN")
        command = _GROUP_MOD.unpack_from(body)[0]
        if command in (_GROUP_ADD, _GROUP_MODIFY):
            code = "OUT_OF_GROUPS" if command == _GROUP_ADD else "UNKNOWN_GROUP"
            raise OpenFlowReplyError(ErrorType.GROUP_MOD_FAILED, code)

    def _meter_mod(self, xid: int, body: memoryview, now_s: float) -> None:
        """Handle a meter-mod that ``_one_band_meter_mods`` does not: delete the meter, or reject the message.

        An add or a modify that comes here has no band, several, or one of a wrong length.
        """
        if len(body) < _METER_MOD_HEAD.size:
            raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_LEN")
        command, _flags, meter_id = _METER_MOD_HEAD.unpack_from(body)
        if command == MeterModCommand.DELETE:
            for deleted in self.meters.delete(meter_id):
                for entry in self.tables.remove_users_of(deleted):
                    self._flow_removed(entry, int(ofp.FlowRemovedReason.DELETE), now_s)
            return
        if command not in set(MeterModCommand):
            raise OpenFlowReplyError(ErrorType.METER_MOD_FAILED, "BAD_COMMAND")
        bands = len(body) - _METER_MOD_HEAD.size  # bytes; a drop band has 16
        raise OpenFlowReplyError(ErrorType.METER_MOD_FAILED, "OUT_OF_BANDS" if bands > 16 else "BAD_BAND")

    def _one_band_meter_mods(self, view: memoryview, now_s: float) -> int:
        """Handle the meter-mods with one band at the start of ``view`` together; return their length in bytes.

        Only those before the first other message, and before the first delete. 0: none.
        """
        rows = requests.meter_mod_rows(view)
        deletes = rows["command"] == MeterModCommand.DELETE
        if deletes.any():
            rows = rows[: int(deletes.argmax())]
        if not len(rows):
            return 0
        message_bytes = rows.dtype.itemsize
        meter_mod = int(MessageType.METER_MOD)
        self.handled[meter_mod] = self.handled.get(meter_mod, 0) + len(rows)
        if self.current.role == ControllerRole.SLAVE:
            refusals = [(number, OpenFlowReplyError(ErrorType.BAD_REQUEST, "IS_SLAVE")) for number in range(len(rows))]
        else:
            self._note_writer()
            refusals = self.meters.apply_rows(rows, now_s)
        for number, refusal in refusals:
            self._refuse(refusal, bytes(view[number * message_bytes : (number + 1) * message_bytes]), now_s)
        return len(rows) * message_bytes

    def _packet_out(self, xid: int, body: memoryview, now_s: float) -> None:
        """Apply the actions of a packet-out to its frame."""
        in_port, actions, frame = requests.decode_packet_out(body)
        self.pipeline.act(actions, in_port, frame, _Packet(self, now_s))

    def _multipart(self, xid: int, body: memoryview, now_s: float) -> None:
        """Send the parts of a multipart reply, unless a fault suppresses them."""
        parts = self.multipart.reply(xid, body, now_s)
        if int.from_bytes(body[:2]) not in self.faults.lose_replies:
            self.current.messages += parts

    def _barrier(self, xid: int, body: memoryview, now_s: float) -> None:
        """Send a barrier reply; at once or late, or not at all, as the faults demand."""
        if self.faults.lose_barriers:
            self.faults.lose_barriers -= self.faults.lose_barriers > 0
            return
        reply = replies.message(MessageType.BARRIER_REPLY, xid)
        if self.faults.barrier_delay_s:
            self.current.late.append((now_s + self.faults.barrier_delay_s, reply))
        else:
            self.current.messages.append(reply)

    def _role_request(self, xid: int, body: memoryview, now_s: float) -> None:
        """Set the role of the current controller, and reply; a stale generation id gets an error (section 6.3.4)."""
        if len(body) != _ROLE.size:
            raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_LEN")
        role, generation = _ROLE.unpack(body)
        if role not in set(ControllerRole):
            raise OpenFlowReplyError(ErrorType.ROLE_REQUEST_FAILED, "BAD_ROLE")
        if role in (ControllerRole.MASTER, ControllerRole.SLAVE):
            # Stale: the difference, as a signed number of 64 bits, is negative.
            if self._generation is not None and (generation - self._generation) % 2**64 >= 2**63:
                raise OpenFlowReplyError(ErrorType.ROLE_REQUEST_FAILED, "STALE")
            self._generation = generation
        if role == ControllerRole.MASTER:
            for conversation in self.conversations:
                if conversation.role == ControllerRole.MASTER:
                    conversation.role = ControllerRole.SLAVE
        if role != ControllerRole.NOCHANGE:
            self.current.role = ControllerRole(role)
        reported_generation = 2**64 - 1 if self._generation is None else self._generation
        self._reply(MessageType.ROLE_REPLY, xid, _ROLE.pack(self.current.role, reported_generation))

    def _ignore(self, xid: int, body: memoryview, now_s: float) -> None:
        """Do nothing: echo replies, errors and set-async need no reply. All asynchronous messages are sent anyway."""

    def _reply(self, message_type: MessageType, xid: int, body: bytes) -> None:
        self.current.messages.append(replies.message(message_type, xid, body))

    def _note_writer(self) -> None:
        """Record the current controller as the writer, if writer, role or generation id differ from the last record."""
        writer = self.conversations.index(self.current), self.current.role, self._generation
        if self.writers[-1:] != [writer]:
            self.writers.append(writer)

    def _send_async(self, message: bytes) -> None:
        """Send a packet-in or flow-removed to all controllers except slaves."""
        for conversation in self.conversations:
            if conversation.role != ControllerRole.SLAVE:
                conversation.messages.append(message)

    def _refuse(self, refusal: OpenFlowReplyError, raw: bytes, now_s: float) -> None:
        """Send the error reply to the rejected message ``raw``, changed or delayed as the faults demand."""
        self.refused.append((raw[1], refusal))
        error = replies.error(refusal, raw)
        if self.faults.blank_errors:  # with xids from the highest one down, which no request has
            error = replies.message(MessageType.ERROR, 2**32 - len(self.refused), error[HEADER.size : HEADER.size + 4])
        if self.faults.error_delay_s:
            self.current.late.append((now_s + self.faults.error_delay_s, error))
        else:
            self.current.messages.append(error)

    def _flow_removed(self, entry: FlowTableEntry, reason: int, now_s: float) -> None:
        """Send a flow-removed message if the flow entry asks for it."""
        if not entry.flags & FlowModFlags.SEND_FLOW_REM:
            return
        flow, counters = entry.flow, self.tables.counters[entry.row]
        buf = replies.flow_removed(
            flow.match,
            (flow.cookie, flow.table_id, flow.priority),
            reason,
            (flow.idle_timeout_s, entry.hard_timeout_s),
            now_s - float(counters["created_s"]),
            (int(counters["packets"]), int(counters["bytes"])),
        )
        self._send_async(buf)

    def _port_status(self, port: SwitchPort, reason: ofp.PortReason) -> None:
        """Send a port-status to every controller."""
        body = bytes([reason]) + bytes(7) + port.description()
        for conversation in self.conversations:
            conversation.messages.append(replies.message(MessageType.PORT_STATUS, 0, body))

    _HANDLERS: ClassVar[dict[int, Callable[[Datapath, int, memoryview, float], None]]] = {
        MessageType.ERROR: _ignore,
        MessageType.ECHO_REQUEST: _echo,
        MessageType.ECHO_REPLY: _ignore,
        MessageType.FEATURES_REQUEST: _features,
        MessageType.GET_CONFIG_REQUEST: _get_config,
        MessageType.SET_CONFIG: _set_config,
        MessageType.PACKET_OUT: _packet_out,
        MessageType.FLOW_MOD: _flow_mod,
        MessageType.GROUP_MOD: _group_mod,
        MessageType.METER_MOD: _meter_mod,
        MessageType.MULTIPART_REQUEST: _multipart,
        MessageType.BARRIER_REQUEST: _barrier,
        MessageType.ROLE_REQUEST: _role_request,
        MessageType.SET_ASYNC: _ignore,
    }


_CHANGES = {MessageType.FLOW_MOD, MessageType.GROUP_MOD, MessageType.METER_MOD, MessageType.PACKET_OUT}
_ANY = Match()


@dataclass(frozen=True, slots=True)
class _Packet:
    """The visitor of a real frame: it counts, polices and sends."""

    datapath: Datapath
    now_s: float

    def hit(self, entry: FlowTableEntry, octets: int) -> None:
        self.datapath.tables.hit(entry, octets, self.now_s)

    def police(self, meter_id: int, octets: int) -> bool:
        return self.datapath.meters.police(meter_id, octets, self.now_s)

    def output(self, port_no: int, queue_id: int | None, frame: bytes) -> None:
        self.datapath.emit(port_no, queue_id, frame)

    def to_controller(
        self, entry: FlowTableEntry | None, in_port: int, frame: bytes, max_len: int, metadata: int
    ) -> None:
        self.datapath.packet_in(entry, in_port, frame, max_len, metadata)
