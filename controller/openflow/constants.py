"""The numbers of OpenFlow 1.3.5 that this project uses, under the specification's own names less the ``OFP`` prefixes.

Sections in comments are those of the OpenFlow Switch Specification 1.3.5.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

VERSION: Final = 0x04
HEADER_BYTES: Final = 8


class MessageType(IntEnum):
    """ofp_type (7.1)."""

    HELLO = 0
    ERROR = 1
    ECHO_REQUEST = 2
    ECHO_REPLY = 3
    EXPERIMENTER = 4
    FEATURES_REQUEST = 5
    FEATURES_REPLY = 6
    GET_CONFIG_REQUEST = 7
    GET_CONFIG_REPLY = 8
    SET_CONFIG = 9
    PACKET_IN = 10
    FLOW_REMOVED = 11
    PORT_STATUS = 12
    PACKET_OUT = 13
    FLOW_MOD = 14
    GROUP_MOD = 15
    PORT_MOD = 16
    TABLE_MOD = 17
    MULTIPART_REQUEST = 18
    MULTIPART_REPLY = 19
    BARRIER_REQUEST = 20
    BARRIER_REPLY = 21
    QUEUE_GET_CONFIG_REQUEST = 22
    QUEUE_GET_CONFIG_REPLY = 23
    ROLE_REQUEST = 24
    ROLE_REPLY = 25
    GET_ASYNC_REQUEST = 26
    GET_ASYNC_REPLY = 27
    SET_ASYNC = 28
    METER_MOD = 29


class MultipartType(IntEnum):
    """ofp_multipart_type (7.3.5)."""

    DESC = 0
    FLOW = 1
    AGGREGATE = 2
    TABLE = 3
    PORT_STATS = 4
    QUEUE = 5
    GROUP = 6
    GROUP_DESC = 7
    GROUP_FEATURES = 8
    METER = 9
    METER_CONFIG = 10
    METER_FEATURES = 11
    TABLE_FEATURES = 12
    PORT_DESC = 13
    EXPERIMENTER = 0xFFFF


MULTIPART_REPLY_MORE: Final = 1

# Ports (7.2.1), queues, groups, meters, tables: "any" and reserved values.
PORT_MAX: Final = 0xFFFFFF00
PORT_IN_PORT: Final = 0xFFFFFFF8
PORT_TABLE: Final = 0xFFFFFFF9
PORT_FLOOD: Final = 0xFFFFFFFB
PORT_ALL: Final = 0xFFFFFFFC
PORT_CONTROLLER: Final = 0xFFFFFFFD
PORT_LOCAL: Final = 0xFFFFFFFE
PORT_ANY: Final = 0xFFFFFFFF
QUEUE_ALL: Final = 0xFFFFFFFF
GROUP_ANY: Final = 0xFFFFFFFF
METER_MAX: Final = 0xFFFF0000
METER_ALL: Final = 0xFFFFFFFF
TABLE_MAX: Final = 0xFE
TABLE_ALL: Final = 0xFF
NO_BUFFER: Final = 0xFFFFFFFF
MAX_LEN_NO_BUFFER: Final = 0xFFFF

# A 64-bit counter that the switch does not keep reads all ones (7.3.5: "field value of -1").
COUNTER_UNAVAILABLE: Final = 0xFFFFFFFFFFFFFFFF


class FlowModCommand(IntEnum):
    """ofp_flow_mod_command (7.3.4.1)."""

    ADD = 0
    MODIFY = 1
    MODIFY_STRICT = 2
    DELETE = 3
    DELETE_STRICT = 4


class FlowModFlags(IntFlag):
    """ofp_flow_mod_flags (7.3.4.1)."""

    SEND_FLOW_REM = 1
    CHECK_OVERLAP = 2
    RESET_COUNTS = 4
    NO_PKT_COUNTS = 8
    NO_BYT_COUNTS = 16


class FlowRemovedReason(IntEnum):
    """ofp_flow_removed_reason (7.4.2)."""

    IDLE_TIMEOUT = 0
    HARD_TIMEOUT = 1
    DELETE = 2
    GROUP_DELETE = 3


class PacketInReason(IntEnum):
    """ofp_packet_in_reason (7.4.1)."""

    NO_MATCH = 0
    ACTION = 1
    INVALID_TTL = 2


class PortReason(IntEnum):
    """ofp_port_reason (7.4.3)."""

    ADD = 0
    DELETE = 1
    MODIFY = 2


PORT_CONFIG_DOWN: Final = 1
PORT_STATE_LINK_DOWN: Final = 1


class MeterModCommand(IntEnum):
    """ofp_meter_mod_command (7.3.4.4)."""

    ADD = 0
    MODIFY = 1
    DELETE = 2


class MeterFlags(IntFlag):
    """ofp_meter_flags (7.3.4.4)."""

    KBPS = 1
    PKTPS = 2
    BURST = 4
    STATS = 8


METER_BAND_DROP: Final = 1


class InstructionType(IntEnum):
    """ofp_instruction_type (7.2.4)."""

    GOTO_TABLE = 1
    WRITE_METADATA = 2
    WRITE_ACTIONS = 3
    APPLY_ACTIONS = 4
    CLEAR_ACTIONS = 5
    METER = 6


class ActionType(IntEnum):
    """ofp_action_type (7.2.5)."""

    OUTPUT = 0
    PUSH_VLAN = 17
    POP_VLAN = 18
    SET_QUEUE = 21
    GROUP = 22
    SET_FIELD = 25


MATCH_TYPE_OXM: Final = 1
OXM_CLASS_BASIC: Final = 0x8000


class OxmField(IntEnum):
    """oxm_ofb_match_fields (7.2.3.7)."""

    IN_PORT = 0
    METADATA = 2
    ETH_DST = 3
    ETH_SRC = 4
    ETH_TYPE = 5
    VLAN_VID = 6
    IP_ECN = 9


ETH_TYPES_IP: Final = (0x0800, 0x86DD)
IP_ECN_MAX: Final = 3
VID_PRESENT: Final = 0x1000  # OFPVID_PRESENT: the packet is tagged
VLAN_NONE: Final = 0  # OFPVID_NONE: the packet is untagged
VLAN_PRIORITY: Final = VID_PRESENT  # tagged with VLAN id 0: a priority and no VLAN (IEEE 802.1Q, 6.9)
VLAN_MAX: Final = 4094


class ControllerRole(IntEnum):
    """ofp_controller_role (7.3.9)."""

    NOCHANGE = 0
    EQUAL = 1
    MASTER = 2
    SLAVE = 3


class ErrorType(IntEnum):
    """ofp_error_type (7.4.4)."""

    HELLO_FAILED = 0
    BAD_REQUEST = 1
    BAD_ACTION = 2
    BAD_INSTRUCTION = 3
    BAD_MATCH = 4
    FLOW_MOD_FAILED = 5
    GROUP_MOD_FAILED = 6
    PORT_MOD_FAILED = 7
    TABLE_MOD_FAILED = 8
    QUEUE_OP_FAILED = 9
    SWITCH_CONFIG_FAILED = 10
    ROLE_REQUEST_FAILED = 11
    METER_MOD_FAILED = 12
    TABLE_FEATURES_FAILED = 13
    EXPERIMENTER = 0xFFFF


_CODE_NAMES = {
    ErrorType.HELLO_FAILED: "INCOMPATIBLE EPERM",
    ErrorType.BAD_REQUEST: (
        "BAD_VERSION BAD_TYPE BAD_MULTIPART BAD_EXPERIMENTER BAD_EXP_TYPE EPERM BAD_LEN BUFFER_EMPTY "
        "BUFFER_UNKNOWN BAD_TABLE_ID IS_SLAVE BAD_PORT BAD_PACKET MULTIPART_BUFFER_OVERFLOW"
    ),
    ErrorType.BAD_ACTION: (
        "BAD_TYPE BAD_LEN BAD_EXPERIMENTER BAD_EXP_TYPE BAD_OUT_PORT BAD_ARGUMENT EPERM TOO_MANY BAD_QUEUE "
        "BAD_OUT_GROUP MATCH_INCONSISTENT UNSUPPORTED_ORDER BAD_TAG BAD_SET_TYPE BAD_SET_LEN BAD_SET_ARGUMENT"
    ),
    ErrorType.BAD_INSTRUCTION: (
        "UNKNOWN_INST UNSUP_INST BAD_TABLE_ID UNSUP_METADATA UNSUP_METADATA_MASK BAD_EXPERIMENTER BAD_EXP_TYPE "
        "BAD_LEN EPERM DUP_INST"
    ),
    ErrorType.BAD_MATCH: (
        "BAD_TYPE BAD_LEN BAD_TAG BAD_DL_ADDR_MASK BAD_NW_ADDR_MASK BAD_WILDCARDS BAD_FIELD BAD_VALUE BAD_MASK "
        "BAD_PREREQ DUP_FIELD EPERM"
    ),
    ErrorType.FLOW_MOD_FAILED: "UNKNOWN TABLE_FULL BAD_TABLE_ID OVERLAP EPERM BAD_TIMEOUT BAD_COMMAND BAD_FLAGS",
    ErrorType.GROUP_MOD_FAILED: (
        "GROUP_EXISTS INVALID_GROUP WEIGHT_UNSUPPORTED OUT_OF_GROUPS OUT_OF_BUCKETS CHAINING_UNSUPPORTED "
        "WATCH_UNSUPPORTED LOOP UNKNOWN_GROUP CHAINED_GROUP BAD_TYPE BAD_COMMAND BAD_BUCKET BAD_WATCH EPERM"
    ),
    ErrorType.PORT_MOD_FAILED: "BAD_PORT BAD_HW_ADDR BAD_CONFIG BAD_ADVERTISE EPERM",
    ErrorType.TABLE_MOD_FAILED: "BAD_TABLE BAD_CONFIG EPERM",
    ErrorType.QUEUE_OP_FAILED: "BAD_PORT BAD_QUEUE EPERM",
    ErrorType.SWITCH_CONFIG_FAILED: "BAD_FLAGS BAD_LEN EPERM",
    ErrorType.ROLE_REQUEST_FAILED: "STALE UNSUP BAD_ROLE",
    ErrorType.METER_MOD_FAILED: (
        "UNKNOWN METER_EXISTS INVALID_METER UNKNOWN_METER BAD_COMMAND BAD_FLAGS BAD_RATE BAD_BURST BAD_BAND "
        "BAD_BAND_VALUE OUT_OF_METERS OUT_OF_BANDS"
    ),
    ErrorType.TABLE_FEATURES_FAILED: "BAD_TABLE BAD_METADATA BAD_TYPE BAD_LEN BAD_ARGUMENT EPERM",
}
ERROR_CODES: Final = {int(kind): tuple(names.split()) for kind, names in _CODE_NAMES.items()}
"""The codes of each error type, in the order of their numbers from 0 (7.4.4)."""


def error_code(error_type: ErrorType, name: str) -> int:
    """Return the number of the code ``name`` of ``error_type``; raises KeyError or ValueError for one unknown."""
    return ERROR_CODES[error_type].index(name)
