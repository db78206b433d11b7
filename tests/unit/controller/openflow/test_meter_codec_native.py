"""Meters between the wire and columns: the compiled form gives the bytes, bits and errors of the numpy form."""

from __future__ import annotations

import struct
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.native_comparison import numpy_alone

from controller.errors import DetsError
from controller.openflow import meter_codec_native
from controller.openflow.constants import METER_MAX
from controller.openflow.meters import decode_meter_stats, encode_meter_mods, encode_meter_mods_batch

pytestmark = pytest.mark.skipif(
    meter_codec_native.library is None, reason="no C compiler was there when it was installed"
)

counters = st.integers(0, 2**64 - 1)
words = st.integers(0, 2**32 - 1)
meters = st.tuples(words, words, counters, counters, words, words, st.lists(st.tuples(counters, counters), max_size=2))
one_band = st.tuples(words, words, counters, counters, words, words, st.tuples(st.tuples(counters, counters)))


def body(records: Any) -> bytes:
    """Return the body of a meter-stats reply."""
    parts = []
    for meter_id, flow_count, packets, octets, seconds, nanoseconds, bands in records:
        head = (meter_id, 40 + 16 * len(bands), flow_count, packets, octets, seconds, nanoseconds)
        parts += [struct.pack("!IH6xIQQII", *head), *(struct.pack("!QQ", *band) for band in bands)]
    return b"".join(parts)


def plainly(function: Any, *arguments: Any) -> Any:
    """Return what the numpy form makes, or the text of its error."""
    with numpy_alone(meter_codec_native):
        return outcome(function, *arguments)


def outcome(function: Any, *arguments: Any) -> Any:
    """Return what a function makes, as bytes, or the text of its error."""
    try:
        made = function(*arguments)
    except DetsError as error:
        return str(error)
    return made.tobytes() if isinstance(made, np.ndarray) else made


@given(st.lists(one_band, max_size=20) | st.lists(meters, max_size=20), st.integers(0, 60))
def test_statistics_are_read_alike(records: Any, cut: int) -> None:
    data = body(records)
    assert outcome(decode_meter_stats, data) == plainly(decode_meter_stats, data)
    cut_off = data[:-cut]  # an end in the middle of a meter
    assert outcome(decode_meter_stats, cut_off) == plainly(decode_meter_stats, cut_off)


good = st.tuples(st.integers(0, 1), st.integers(1, METER_MAX), st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1))
any_value = st.integers(-2, 2**33)
odd = st.tuples(st.integers(-1, 3), any_value, any_value, any_value)
of_32_bits = st.integers(0, 2**32 - 1)
unfit = st.tuples(st.integers(0, 3), of_32_bits, of_32_bits, of_32_bits)


@given(st.lists(good, max_size=20) | st.lists(good | odd, max_size=6), st.integers(-1, 2**32))
def test_meter_mods_are_written_alike(rows: list[tuple[int, int, int, int]], xid_first: int) -> None:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    command, meter_id, rate_kbps, burst_kbits = columns
    arguments = (command, meter_id, rate_kbps, burst_kbits, xid_first)
    assert outcome(encode_meter_mods, *arguments) == plainly(encode_meter_mods, *arguments)


@given(st.lists(st.lists(good, max_size=5) | st.lists(good | unfit, max_size=2), max_size=5), st.integers(0, 2**32 - 1))
def test_meter_mods_of_all_switches_are_written_alike(
    switches: list[list[tuple[int, int, int, int]]], xid: int
) -> None:
    mods = [np.array(rows, dtype=np.uint32).reshape(-1, 4).T for rows in switches]
    xids = [(xid + 1000 * number) & 0xFFFF_FFFF for number in range(len(mods))]
    arguments = (mods, xids, b"\x04\x14\x00\x08" + bytes(4))
    made = outcome(encode_meter_mods_batch, *arguments)
    assert made == plainly(encode_meter_mods_batch, *arguments)
    for one, first, rows in zip(made if isinstance(made, list) else (), xids, mods, strict=isinstance(made, list)):
        assert int.from_bytes(one[-4:]) == (first + rows.shape[1]) & 0xFFFF_FFFF


def test_meter_mods_of_all_switches_are_written_by_the_kernel() -> None:
    """NumPy would write the same octets, switch after switch."""
    mods = [np.array([[0, meter_id, 1, 1]], dtype=np.uint32).T for meter_id in (1, 2, 3)]
    with patch("controller.openflow.meters.encode_meter_mods", side_effect=AssertionError("written by NumPy")):
        made = encode_meter_mods_batch(mods, [7, 8, 9], b"\x04\x14\x00\x08" + bytes(4))
    assert [int.from_bytes(one[-4:]) for one in made] == [8, 9, 10]


def test_ids_go_round_after_the_last() -> None:
    ones = np.ones(3, dtype=np.int64)
    made = encode_meter_mods(ones, ones, ones, ones, 2**32 - 2)
    assert [int.from_bytes(made[at + 4 : at + 8]) for at in (0, 32, 64)] == [2**32 - 2, 2**32 - 1, 0]
