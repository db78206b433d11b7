"""The actions in use (OpenFlow 1.3.5, section 7.2.5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

from controller.errors import InvalidValueError
from controller.openflow import constants as ofp
from controller.openflow.bounded_reader import check_range, malformed, read, read_bytes
from controller.openflow.match import walk_oxms

ETH_TYPE_VLAN = 0x8100

_HEADER = Struct("!HH")
_OUTPUT = Struct("!HHIH6x")
_WORD = Struct("!HHI")
_PUSH = Struct("!HHH2x")
_SET_FIELD = Struct("!HHHBBH6x")
_SET_BYTE = Struct("!HHHBBB7x")
_OXM_VLAN_VID = ofp.OxmField.VLAN_VID << 1
_OXM_IP_ECN = ofp.OxmField.IP_ECN << 1


class UnknownActionError(Exception):
    """Well-formed bytes of an action that this module does not support."""


@dataclass(frozen=True, slots=True)
class Output:
    """Send the packet out of ``port_no``; ``max_len`` bytes of it if that is PORT_CONTROLLER, 0 for every other port.

    Switches report 0 there, so any other value would never compare equal to what is installed.
    """

    port_no: int
    max_len: int = 0

    def __post_init__(self) -> None:
        check_range("output.port_no", self.port_no, 1, ofp.PORT_ANY - 1)
        check_range("output.max_len", self.max_len, 0, 0xFFFF)
        if self.max_len and self.port_no != ofp.PORT_CONTROLLER:
            raise InvalidValueError(
                "output.max_len", self.max_len, "means nothing for a port other than CONTROLLER: use 0"
            )


@dataclass(frozen=True, slots=True)
class SetQueue:
    """Use queue ``queue_id`` of the port that the packet leaves by."""

    queue_id: int

    def __post_init__(self) -> None:
        check_range("set_queue.queue_id", self.queue_id, 0, ofp.QUEUE_ALL - 1)


@dataclass(frozen=True, slots=True)
class PushVlan:
    """Put an 802.1Q tag on the packet; SetVlanVid after it gives the tag its VLAN."""


@dataclass(frozen=True, slots=True)
class SetVlanVid:
    """Write VLAN id ``vlan_vid`` (1..4094) into the outer tag."""

    vlan_vid: int

    def __post_init__(self) -> None:
        check_range("set_vlan_vid.vlan_vid", self.vlan_vid, 1, ofp.VLAN_MAX)


@dataclass(frozen=True, slots=True)
class PopVlan:
    """Take the outer 802.1Q tag off the packet."""


@dataclass(frozen=True, slots=True)
class SetIpEcn:
    """Write ``ip_ecn`` (0..3) into the ECN field of an IP packet; the flow entry must match on the EtherType of IP.

    The switch keeps the DSCP and corrects IPv4's checksum (RFC 3168; OpenFlow 1.3.5, section 7.2.3.8).
    """

    ip_ecn: int

    def __post_init__(self) -> None:
        check_range("set_ip_ecn.ip_ecn", self.ip_ecn, 0, ofp.IP_ECN_MAX)


Action: TypeAlias = Output | SetQueue | PushVlan | SetVlanVid | PopVlan | SetIpEcn


def encode_actions(actions: Iterable[Action]) -> bytes:
    """Return the actions one after the other, each padded to 8 bytes as the specification requires."""
    return b"".join(map(_encode_action, actions))


def decode_actions(view: memoryview, message: str) -> tuple[Action, ...]:
    """Return the actions that fill ``view``; ProtocolError if malformed, UnknownActionError for an unsupported one."""
    actions: list[Action] = []
    unknown: UnknownActionError | None = None
    offset = 0
    while offset < len(view):
        action_type, length = read(_HEADER, view, offset, message, "action")
        if length < 8 or length % 8:
            raise malformed(message, "action.len", length, "a multiple of 8 from 8 on")
        raw = read_bytes(view, offset, length, message, "action.len")
        try:
            actions.append(_decode_action(action_type, raw, message))
        except UnknownActionError as error:
            unknown = error  # raised only if the rest is well-formed
        offset += length
    if unknown is not None:
        raise unknown
    return tuple(actions)


def _encode_action(action: Action) -> bytes:
    """Return the action's bytes, padded to a multiple of 8."""
    match action:
        case Output(port_no, max_len):
            return _OUTPUT.pack(ofp.ActionType.OUTPUT, _OUTPUT.size, port_no, max_len)
        case SetQueue(queue_id):
            return _WORD.pack(ofp.ActionType.SET_QUEUE, _WORD.size, queue_id)
        case PushVlan():
            return _PUSH.pack(ofp.ActionType.PUSH_VLAN, _PUSH.size, ETH_TYPE_VLAN)
        case SetVlanVid(vlan_vid):
            oxm = (ofp.OXM_CLASS_BASIC, _OXM_VLAN_VID, 2, vlan_vid | ofp.VID_PRESENT)
            return _SET_FIELD.pack(ofp.ActionType.SET_FIELD, _SET_FIELD.size, *oxm)
        case PopVlan():
            return _WORD.pack(ofp.ActionType.POP_VLAN, _WORD.size, 0)
        case SetIpEcn(ip_ecn):
            fixed = (ofp.ActionType.SET_FIELD, _SET_BYTE.size, ofp.OXM_CLASS_BASIC, _OXM_IP_ECN, 1)
            return _SET_BYTE.pack(*fixed, ip_ecn)


def _decode_action(action_type: int, raw: memoryview, message: str) -> Action:
    """Return the one action in ``raw``, whose length has been checked to be a multiple of 8."""
    try:
        match action_type:
            case ofp.ActionType.OUTPUT:
                _sized(raw, _OUTPUT, message, "output.len")
                port_no, max_len = _OUTPUT.unpack(raw)[2:]
                return Output(port_no, max_len if port_no == ofp.PORT_CONTROLLER else 0)
            case ofp.ActionType.SET_QUEUE:
                _sized(raw, _WORD, message, "set_queue.len")
                return SetQueue(_WORD.unpack(raw)[2])
            case ofp.ActionType.PUSH_VLAN:
                _sized(raw, _PUSH, message, "push_vlan.len")
                if _PUSH.unpack(raw)[2] != ETH_TYPE_VLAN:
                    raise UnknownActionError("push_vlan of another ethertype")
                return PushVlan()
            case ofp.ActionType.POP_VLAN:
                _sized(raw, _WORD, message, "pop_vlan.len")
                return PopVlan()
            case ofp.ActionType.SET_FIELD:
                return _decode_set_field(raw, message)
    except InvalidValueError as error:
        raise UnknownActionError(str(error)) from error
    raise UnknownActionError(f"action type {action_type}")


def _decode_set_field(raw: memoryview, message: str) -> Action:
    """Return the set-field action in ``raw``; UnknownActionError for other fields than this controller sets."""
    size = read(Struct("!7xB"), raw, 0, message, "set_field")[0]
    oxm = next(walk_oxms(read_bytes(raw, 4, 4 + size, message, "set_field.oxm_length"), message))
    if (oxm.oxm_class, oxm.field, oxm.mask) == (ofp.OXM_CLASS_BASIC, ofp.OxmField.IP_ECN, None):
        return SetIpEcn(oxm.value)
    if (oxm.oxm_class, oxm.field, oxm.mask) != (ofp.OXM_CLASS_BASIC, ofp.OxmField.VLAN_VID, None):
        raise UnknownActionError(f"set_field of field {oxm.field}")
    if not oxm.value & ofp.VID_PRESENT:
        raise UnknownActionError("set_field of a vlan_vid without OFPVID_PRESENT")
    return SetVlanVid(oxm.value ^ ofp.VID_PRESENT)


def _sized(raw: memoryview, layout: Struct, message: str, field: str) -> None:
    if len(raw) != layout.size:
        raise malformed(message, field, len(raw), str(layout.size))
