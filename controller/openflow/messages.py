"""The messages that are neither flow-mods, meter-mods nor multipart (OpenFlow 1.3.5, sections 7.3.7, 7.3.8 and 7.4)."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from controller.openflow import constants as ofp
from controller.openflow.actions import Action, encode_actions
from controller.openflow.bounded_reader import HEADER, Buffer, check_range, malformed, open_message, read, read_bytes
from controller.openflow.constants import ControllerRole, ErrorType, MessageType
from controller.openflow.match import Match, UnknownMatchError, match_from_oxms, read_oxms
from controller.openflow.multipart import PortDesc, decode_port_desc

_PACKET_OUT = Struct("!IIH6x")
_PACKET_IN = Struct("!IHBBQ")
_FLOW_REMOVED = Struct("!QHBBIIHHQQ")
_ERROR = Struct("!HH")
_PORT_STATUS = Struct("!B7x")
_ROLE = Struct("!I4xQ")
_ELEMENT = Struct("!HH")
_VERSION_BITMAP, _BITMAP_BYTES = 1, 4
_ERROR_TYPES = {int(error_type): error_type.name for error_type in ErrorType}


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A packet that the switch sent up: the reason, the table and flow entry, the port of arrival, and its metadata."""

    reason: int
    table_id: int
    cookie: int
    in_port: int
    data: bytes
    metadata: int = 0


@dataclass(frozen=True, slots=True)
class FlowRemoved:
    """A removed flow entry; ``match`` is None if Match cannot express it (then it is not the controller's)."""

    match: Match | None
    cookie: int
    table_id: int
    priority: int
    reason: int
    duration_s: float
    packet_count: int
    byte_count: int


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """A switch's error reply; ``data`` is the start of the rejected message, at least 64 bytes of it."""

    type: int
    code: int
    data: bytes
    xid: int

    @property
    def is_slave(self) -> bool:
        """Return whether the switch rejected a change because another controller is its master (6.3.6)."""
        return self.text == "BAD_REQUEST / IS_SLAVE"

    @property
    def text(self) -> str:
        """The names of type and code: ``METER_MOD_FAILED / OUT_OF_METERS``."""
        codes = ofp.ERROR_CODES.get(self.type, ())
        type_name = _ERROR_TYPES.get(self.type, f"error type {self.type}")
        return f"{type_name} / {codes[self.code] if self.code < len(codes) else f'code {self.code}'}"


@dataclass(frozen=True, slots=True)
class PortStatus:
    """A port that was added, deleted or modified (``reason``: PortReason)."""

    reason: int
    port: PortDesc


def supports_version(version: int, hello: Buffer) -> bool:
    """Return whether a hello's sender supports a version, if the controller supports no later one (6.3.1, 7.5.1).

    The hello's bitmap of versions decides, if it has one; otherwise its header must have that version or a later one.
    If a hello's elements are malformed, those before the error count.
    """
    view = memoryview(hello)
    offered, _type, _length, _xid = HEADER.unpack_from(view)
    offset = HEADER.size
    while offered >= version and offset + _ELEMENT.size <= len(view):
        element_type, length = _ELEMENT.unpack_from(view, offset)
        if element_type == _VERSION_BITMAP and length > _ELEMENT.size:
            bitmap = view[offset + _ELEMENT.size : offset + _ELEMENT.size + _BITMAP_BYTES]
            return bool(int.from_bytes(bitmap) >> version & 1)
        if length < _ELEMENT.size:
            break
        offset += -(-length // 8) * 8
    return bool(offered >= version)


def encode_barrier_request(xid: int) -> bytes:
    """Return the request that is answered once everything before it has been executed (7.3.8)."""
    check_range("xid", xid, 0, 2**32 - 1)
    return HEADER.pack(ofp.VERSION, MessageType.BARRIER_REQUEST, HEADER.size, xid)


def encode_role_request(xid: int, role: ControllerRole = ControllerRole.NOCHANGE, generation_id: int = 0) -> bytes:
    """Return the request for a role under a generation id (7.3.9); NOCHANGE asks for the present role."""
    check_range("xid", xid, 0, 2**32 - 1)
    check_range("generation_id", generation_id, 0, 2**64 - 1)
    body = _ROLE.pack(role, generation_id)
    return HEADER.pack(ofp.VERSION, MessageType.ROLE_REQUEST, HEADER.size + len(body), xid) + body


def decode_role(body: Buffer) -> ControllerRole:
    """Return the role in the body of a role reply (7.3.9); raises ProtocolError when malformed."""
    role, _generation = read(_ROLE, memoryview(body), 0, "ROLE_REPLY", "body")
    if role not in set(ControllerRole) - {ControllerRole.NOCHANGE}:
        raise malformed("ROLE_REPLY", "role", role, "1 to 3")
    return ControllerRole(role)


def encode_packet_out(xid: int, in_port: int, actions: tuple[Action, ...], data: bytes) -> bytes:
    """Return the packet-out of the whole frame ``data``; ``in_port`` is the pipeline's input port (PORT_CONTROLLER)."""
    check_range("xid", xid, 0, 2**32 - 1)
    check_range("in_port", in_port, 1, ofp.PORT_ANY - 1)
    encoded = encode_actions(actions)
    body = _PACKET_OUT.pack(ofp.NO_BUFFER, in_port, len(encoded)) + encoded + data
    check_range("packet_out.length", HEADER.size + len(body), 0, 0xFFFF)
    return HEADER.pack(ofp.VERSION, MessageType.PACKET_OUT, HEADER.size + len(body), xid) + body


def parse_packet_in(buf: Buffer) -> PacketIn:
    """Return one whole packet-in; raises ProtocolError when malformed or without in_port (7.4.1)."""
    name = "PACKET_IN"
    view = open_message(buf, MessageType.PACKET_IN)
    _buffer_id, _total, reason, table_id, cookie = read(_PACKET_IN, view, 0, name, "fixed part")
    oxms, offset = read_oxms(view, _PACKET_IN.size, name)
    fields = {oxm.field: oxm.value for oxm in oxms if oxm.oxm_class == ofp.OXM_CLASS_BASIC}
    in_port = fields.get(ofp.OxmField.IN_PORT)
    if in_port is None:
        raise malformed(name, "match", "no in_port", "in_port")
    read_bytes(view, offset, 2, name, "pad")
    return PacketIn(reason, table_id, cookie, in_port, bytes(view[offset + 2 :]), fields.get(ofp.OxmField.METADATA, 0))


def parse_flow_removed(buf: Buffer) -> FlowRemoved:
    """Return one whole flow-removed; raises ProtocolError when malformed (7.4.2)."""
    name = "FLOW_REMOVED"
    view = open_message(buf, MessageType.FLOW_REMOVED)
    values = read(_FLOW_REMOVED, view, 0, name, "fixed part")
    cookie, priority, reason, table_id, seconds, nanoseconds, _idle, _hard, packet_count, byte_count = values
    oxms, end = read_oxms(view, _FLOW_REMOVED.size, name)
    if end != len(view):
        raise malformed(name, "length", f"{len(view) - end} bytes after the match", "none")
    try:
        match = match_from_oxms(oxms)
    except UnknownMatchError:
        match = None
    duration_s = seconds + nanoseconds * 1e-9
    return FlowRemoved(match, cookie, table_id, priority, reason, duration_s, packet_count, byte_count)


def parse_error(buf: Buffer) -> ErrorMessage:
    """Return one whole error message; raises ProtocolError when malformed (7.4.4)."""
    view = open_message(buf, MessageType.ERROR)
    error_type, code = read(_ERROR, view, 0, "ERROR", "type and code")
    return ErrorMessage(error_type, code, bytes(view[_ERROR.size :]), HEADER.unpack_from(buf)[3])


def parse_port_status(buf: Buffer) -> PortStatus:
    """Return one whole port-status; raises ProtocolError when malformed (7.4.3)."""
    name = "PORT_STATUS"
    view = open_message(buf, MessageType.PORT_STATUS)
    reason = read(_PORT_STATUS, view, 0, name, "reason")[0]
    ports = decode_port_desc(view[_PORT_STATUS.size :], name)
    if len(ports) != 1:
        raise malformed(name, "port", f"{len(ports)} ports", "one")
    return PortStatus(reason, ports[0])
