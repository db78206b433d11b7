"""Decoding of a controller's requests; invalid requests raise OpenFlowReplyError with the right code.

OpenFlow 1.3.5, sections 7.3.4.1 (flow-mod), 7.3.4.4 (meter-mod), 7.3.7 (packet-out), 7.4.4 (which error is due when).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

import numpy as np
import numpy.typing as npt

from controller.errors import InvalidValueError, ProtocolError
from controller.openflow import constants as ofp
from controller.openflow.actions import (
    Action,
    Output,
    PopVlan,
    PushVlan,
    SetIpEcn,
    SetVlanVid,
    UnknownActionError,
    decode_actions,
)
from controller.openflow.bounded_reader import read, read_bytes
from controller.openflow.constants import ErrorType, FlowModCommand
from controller.openflow.flows import Flow, Instructions, UnknownInstructionError, decode_instructions
from controller.openflow.match import Match, Oxm, UnknownMatchError, match_from_oxms, read_oxms
from experiments.switch.openflow_errors import OpenFlowReplyError

METER_MOD = np.dtype(
    [
        ("version", "u1"),
        ("type", "u1"),
        ("length", ">u2"),
        ("xid", ">u4"),
        ("command", ">u2"),
        ("flags", ">u2"),
        ("meter_id", ">u4"),
        ("band_type", ">u2"),
        ("band_length", ">u2"),
        ("rate", ">u4"),
        ("burst_size", ">u4"),
        ("pad", "V4"),
    ]
)
"""A whole meter-mod message with one drop band."""

_FLOW_MOD = Struct("!QQBBHHHIIIH2x")
_PACKET_OUT = Struct("!IIH6x")
_COMMANDS = frozenset(FlowModCommand)
_MAX_TAGS = 2
_RESERVED = (ofp.PORT_IN_PORT, ofp.PORT_TABLE, ofp.PORT_FLOOD, ofp.PORT_ALL, ofp.PORT_CONTROLLER, ofp.PORT_LOCAL)
_FIELDS = frozenset(ofp.OxmField)
_VLAN_VALUE_BITS = 0x1FFF  # the VLAN id and OFPVID_PRESENT
# By field, the only mask that is accepted: all bits of the field.
_EXACT: dict[int, int] = {
    ofp.OxmField.ETH_TYPE: 0xFFFF,
    ofp.OxmField.IN_PORT: 2**32 - 1,
    ofp.OxmField.IP_ECN: 0xFF,
}


@dataclass(frozen=True, slots=True)
class FlowMod:
    """A flow-mod; ``match`` and ``instructions`` are empty if the command ignores them."""

    command: FlowModCommand
    table_id: int
    priority: int
    match: Match
    instructions: Instructions
    cookie: int
    cookie_mask: int
    idle_timeout_s: int
    hard_timeout_s: int
    flags: int
    out_port: int
    tail: bytes
    """Encoded match and instructions as received, which flow statistics report."""

    def flow(self) -> Flow:
        """Return the entry that this flow-mod adds."""
        return Flow(
            self.table_id,
            self.priority,
            self.match,
            self.cookie,
            self.idle_timeout_s,
            bool(self.flags & ofp.FlowModFlags.SEND_FLOW_REM),
            self.instructions.meter_id,
            self.instructions.actions,
            self.instructions.goto_table,
            self.instructions.write_metadata,
        )


@dataclass(frozen=True, slots=True)
class FlowFilter:
    """The filter of a flow-stats or aggregate request, or of a non-strict flow-mod."""

    table_id: int
    match: Match
    cookie: int
    cookie_mask: int
    out_port: int


def decode_flow_mod(body: memoryview, tables: int) -> FlowMod:
    """Return the flow-mod after its header, on a switch with ``tables`` tables; raises OpenFlowReplyError."""
    try:
        values = read(_FLOW_MOD, body, 0, "FLOW_MOD", "fixed part")
    except ProtocolError as error:
        raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_LEN") from error
    cookie, mask, table_id, command, idle_s, hard_s, priority, _buffer_id, out_port, _out_group, flags = values
    if command not in _COMMANDS:
        raise OpenFlowReplyError(ErrorType.FLOW_MOD_FAILED, "BAD_COMMAND")
    deletes = command in (FlowModCommand.DELETE, FlowModCommand.DELETE_STRICT)
    if table_id >= tables and not (deletes and table_id == ofp.TABLE_ALL):
        raise OpenFlowReplyError(ErrorType.FLOW_MOD_FAILED, "BAD_TABLE_ID")
    match, offset = decode_match(body, _FLOW_MOD.size)
    # A delete ignores instructions.
    instructions = Instructions() if deletes else _instructions(body[offset:])
    check_actions(instructions.actions, match)
    goto_table = instructions.goto_table
    if goto_table is not None and not table_id < goto_table < tables:
        raise OpenFlowReplyError(ErrorType.BAD_INSTRUCTION, "BAD_TABLE_ID")
    fixed = (FlowModCommand(command), table_id, priority, match, instructions)
    return FlowMod(*fixed, cookie, mask, idle_s, hard_s, flags, out_port, bytes(body[_FLOW_MOD.size :]))


def decode_match(body: memoryview, offset: int) -> tuple[Match, int]:
    """Return the match at ``offset`` and its end; raises OpenFlowReplyError BAD_MATCH with the code of the problem."""
    try:
        oxms, end = read_oxms(body, offset, "match")
    except ProtocolError as error:
        raise OpenFlowReplyError(ErrorType.BAD_MATCH, "BAD_LEN") from error
    try:
        return match_from_oxms(oxms), end
    except UnknownMatchError as error:
        raise OpenFlowReplyError(ErrorType.BAD_MATCH, _match_code(oxms)) from error


def decode_packet_out(body: memoryview) -> tuple[int, tuple[Action, ...], bytes]:
    """Return (in_port, actions, frame) of the packet-out after its header; raises OpenFlowReplyError."""
    try:
        buffer_id, in_port, size = read(_PACKET_OUT, body, 0, "PACKET_OUT", "fixed part")
        raw = read_bytes(body, _PACKET_OUT.size, size, "PACKET_OUT", "actions_len")
    except ProtocolError as error:
        raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_LEN") from error
    if buffer_id != ofp.NO_BUFFER:
        raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BUFFER_UNKNOWN")
    try:
        actions = decode_actions(raw, "PACKET_OUT")
    except (UnknownActionError, ProtocolError) as error:
        raise _action_refusal(error) from error
    return in_port, actions, bytes(body[_PACKET_OUT.size + size :])


def check_actions(actions: tuple[Action, ...], match: Match) -> None:
    """Raise OpenFlowReplyError unless outputs are valid and VLAN actions have a tag (as Open vSwitch checks)."""
    for action in actions:
        if isinstance(action, Output) and action.port_no > ofp.PORT_MAX and action.port_no not in _RESERVED:
            raise OpenFlowReplyError(ErrorType.BAD_ACTION, "BAD_OUT_PORT")
    tags = 1 if match.vlan_vid not in (None, ofp.VLAN_NONE) else 0
    for action in actions:
        match action:
            case PushVlan() if tags == _MAX_TAGS:
                raise OpenFlowReplyError(ErrorType.BAD_ACTION, "BAD_TAG")
            case PushVlan():
                tags += 1
            case PopVlan() | SetVlanVid() if not tags:
                raise OpenFlowReplyError(ErrorType.BAD_ACTION, "MATCH_INCONSISTENT")
            case PopVlan():
                tags -= 1
            case SetIpEcn() if match.eth_type not in ofp.ETH_TYPES_IP:
                raise OpenFlowReplyError(ErrorType.BAD_ACTION, "MATCH_INCONSISTENT")


def meter_mod_rows(data: memoryview) -> npt.NDArray[np.void]:
    """Return the whole meter-mods with one band at the beginning of ``data``, up to the first other message."""
    count = len(data) // METER_MOD.itemsize
    rows = np.frombuffer(data[: count * METER_MOD.itemsize], METER_MOD)
    is_one_band = (
        (rows["version"] == ofp.VERSION)
        & (rows["type"] == ofp.MessageType.METER_MOD)
        & (rows["length"] == METER_MOD.itemsize)
        & (rows["band_length"] == METER_MOD.itemsize - 16)  # 16: the header, command, flags and meter_id
    )
    return rows if is_one_band.all() else rows[: int(np.argmin(is_one_band))]


def _instructions(view: memoryview) -> Instructions:
    """Return the decoded instructions; OpenFlowReplyError with the code of the problem."""
    try:
        return decode_instructions(view, "FLOW_MOD")
    except UnknownInstructionError as error:
        raise OpenFlowReplyError(
            ErrorType.BAD_INSTRUCTION, "DUP_INST" if "two" in str(error) else "UNSUP_INST"
        ) from error
    except (UnknownActionError, InvalidValueError) as error:
        raise _action_refusal(error) from error
    except ProtocolError as error:
        raise OpenFlowReplyError(ErrorType.BAD_INSTRUCTION, "BAD_LEN") from error


def _action_refusal(error: Exception) -> OpenFlowReplyError:
    """Return the error reply for actions that cannot be decoded, by the text of the decoding error."""
    if isinstance(error, ProtocolError):
        return OpenFlowReplyError(ErrorType.BAD_ACTION, "BAD_LEN")
    text = str(error)
    if text.startswith("set_field"):
        return OpenFlowReplyError(ErrorType.BAD_ACTION, "BAD_SET_TYPE")
    if text.startswith(("set_vlan_vid", "set_ip_ecn")):
        return OpenFlowReplyError(ErrorType.BAD_ACTION, "BAD_SET_ARGUMENT")
    if text.startswith("output"):
        return OpenFlowReplyError(ErrorType.BAD_ACTION, "BAD_OUT_PORT")
    return OpenFlowReplyError(ErrorType.BAD_ACTION, "BAD_TYPE")


def _match_code(oxms: list[Oxm]) -> str:
    """Return the BAD_MATCH code for TLVs that are well-formed but not acceptable."""
    seen: set[int] = set()
    for oxm in oxms:
        if oxm.oxm_class != ofp.OXM_CLASS_BASIC or oxm.field not in _FIELDS:
            return "BAD_FIELD"
        if oxm.field in seen:
            return "DUP_FIELD"
        seen.add(oxm.field)
        if oxm.mask is not None and oxm.value & ~oxm.mask:
            return "BAD_WILDCARDS"
        if oxm.field in _EXACT and oxm.mask not in (None, _EXACT[oxm.field]):
            return "BAD_MASK"
        if oxm.field == ofp.OxmField.VLAN_VID and oxm.mask not in (None, _VLAN_VALUE_BITS, 0xFFFF):
            return "BAD_MASK"
    fields = {oxm.field: oxm.value for oxm in oxms}
    if ofp.OxmField.IP_ECN in fields and fields.get(ofp.OxmField.ETH_TYPE) not in ofp.ETH_TYPES_IP:
        return "BAD_PREREQ"
    return "BAD_VALUE"
