"""What goes out of a connection before the switch has confirmed the role, and after it was lost."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.write_gate import WriteGate, is_read_only
from controller.openflow.bounded_reader import HEADER
from controller.openflow.constants import VERSION, ControllerRole, MessageType, MultipartType
from controller.openflow.messages import encode_barrier_request, encode_role_request
from controller.openflow.meters import encode_meter_deletes
from controller.openflow.multipart import (
    encode_meter_stats_request,
    encode_port_desc_request,
    encode_table_stats_request,
)

READS = (
    encode_barrier_request(1),
    encode_role_request(2, ControllerRole.MASTER, 5),
    encode_meter_stats_request(3),
    encode_port_desc_request(4),
    encode_table_stats_request(5),
    HEADER.pack(VERSION, MessageType.ECHO_REQUEST, HEADER.size, 6),
)
WRITE = encode_meter_deletes([1], 7)


def message(kind: int, body: bytes = b"") -> bytes:
    return HEADER.pack(VERSION, kind, HEADER.size + len(body), 1) + body


@given(st.lists(st.sampled_from(READS), min_size=1), st.integers(0, 5))
def test_one_write_among_reads_is_enough(reads: list[bytes], at: int) -> None:
    assert is_read_only(b"".join(reads))
    assert not is_read_only(b"".join([*reads[:at], WRITE, *reads[at:]]))


@pytest.mark.parametrize(
    "kind",
    [
        *(MessageType.FLOW_MOD, MessageType.METER_MOD, MessageType.GROUP_MOD, MessageType.PORT_MOD),
        *(MessageType.TABLE_MOD, MessageType.PACKET_OUT, MessageType.SET_CONFIG, MessageType.SET_ASYNC),
        *(MessageType.EXPERIMENTER, 99),
    ],
)
def test_whatever_may_change_a_switch_is_a_write(kind: int) -> None:
    assert not is_read_only(message(kind))


def test_table_features_with_a_body_are_a_write_and_without_one_a_read() -> None:
    ask = struct.pack("!HH4x", MultipartType.TABLE_FEATURES, 0)
    assert is_read_only(message(MessageType.MULTIPART_REQUEST, ask))
    assert not is_read_only(message(MessageType.MULTIPART_REQUEST, ask + bytes(64)))


@given(st.binary(max_size=40))
def test_bytes_that_are_no_whole_messages_are_a_write(data: bytes) -> None:
    if is_read_only(data):
        offset = 0
        while offset < len(data):
            offset += HEADER.unpack_from(data, offset)[2]
        assert offset == len(data)
    assert not is_read_only(READS[0][:-1])


def test_the_gate_opens_for_the_generation_that_was_confirmed_until_a_message_is_withheld() -> None:
    held: list[int | None] = [None]
    gate = WriteGate(lambda: held[0])
    assert not gate.allows(WRITE)
    held[0] = 5
    assert not gate.allows(WRITE)  # the switch has confirmed nothing
    gate.confirm(4)
    assert not gate.allows(WRITE)  # an older one
    gate.confirm(5)
    assert gate.allows(WRITE)
    held[0] = None
    assert gate.allows(READS[0])
    assert not gate.allows(WRITE)
    held[0] = 5  # the lease was refreshed late: what was withheld is missing on the switch
    assert not gate.allows(WRITE)
    gate.confirm(5)
    assert gate.allows(WRITE)
