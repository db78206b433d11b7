"""Writing and reading frames: the compiled form gives the bytes and refusals of the numpy form."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.node_protocol import codec_native
from controller.node_protocol.decoder import PreviousMessage, decode
from controller.node_protocol.encoder import encode
from controller.node_protocol.header import MAX_BPS, Header
from controller.node_protocol.message_types import GrantMessage, GrantRecord, ReportMessage
from controller.node_protocol.rejection import MessageRejectedError

pytestmark = pytest.mark.skipif(codec_native.library is None, reason="no C compiler was there when it was installed")

VNS, FABRIC, HEAD = 100, b"12345678", Header(1, 2, 3)
MAX_PAIRS = 700  # entries: more than the kernel's blocks
ODD = (np.nan, -np.nan, np.inf, -np.inf, -1.0, -0.0, 5e-324, MAX_BPS, np.nextafter(MAX_BPS, np.inf))
seeds, counts = st.integers(0, 2**32 - 1), st.integers(0, 20) | st.integers(0, MAX_PAIRS)


def plainly(function: Any, *arguments: Any) -> Any:
    with patch.object(codec_native, "library", None):
        return function(*arguments)


def pairs(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    receiver, sender = np.divmod(np.sort(rng.permutation(VNS * VNS)[:count]), VNS)
    return sender, receiver


def report(rng: np.random.Generator, count: int) -> ReportMessage:
    sender, receiver = pairs(rng, count)
    measured, refused, limit, available, last = (rng.random(count) * 1e9 for _ in range(5))
    limit[rng.random(count) < 0.1] = np.inf
    unread, (drops, active) = rng.integers(0, 2**32, count), rng.random((2, count)) < 0.5
    loaded = np.arange(count % 4)  # so that entries begin at octets of all kinds
    loads = (np.ones(len(loaded)) for _ in range(3))
    rates = measured, refused, limit, available, last
    return ReportMessage(loaded, *loads, sender, receiver, *rates, unread, drops, active)


def grants(rng: np.random.Generator, count: int) -> GrantMessage:
    sender, receiver = pairs(rng, count)
    decided = np.arange(count % 4)
    about = decided, decided + 1, decided > 1
    return GrantMessage(*about, sender, receiver, rng.random(count) * 1e9, rng.random(count) < 0.5)


def read(data: bytes, known: Any, given: Any = None) -> Any:
    try:
        head, frame = decode(data, FABRIC, VNS, 0, known, given)
    except MessageRejectedError as error:
        return error.cause, str(error)
    return head, encode(head, FABRIC, frame)


@settings(max_examples=200)
@given(seed=seeds, count=counts, make=st.sampled_from((report, grants)))
def test_rows_of_entries_are_written_alike(seed: int, count: int, make: Any) -> None:
    rng = np.random.default_rng(seed)
    frame, lengths = make(rng, count), rng.integers(1, 1 + rng.choice((1, 40, 400)), count)  # of rows side by side
    said = np.flatnonzero(np.repeat(rng.random(count) < 0.7, lengths)[:count])
    data = encode(HEAD, FABRIC, frame, said)
    assert data == plainly(encode, HEAD, FABRIC, frame, said)
    assert encode(HEAD, FABRIC, frame, np.arange(count)) == encode(HEAD, FABRIC, frame)


@settings(max_examples=200)
@given(seed=seeds, count=counts, make=st.sampled_from((report, grants)), damage=st.integers(0, 4), other=st.booleans())
def test_frames_are_read_and_refused_alike_after_others(
    seed: int, count: int, make: Any, damage: int, other: bool
) -> None:
    rng = np.random.default_rng(seed)
    frame = make(rng, count)
    _, before = decode(encode(HEAD, FABRIC, make(rng, count) if other else frame), FABRIC, VNS)
    whole = bytearray(encode(HEAD, FABRIC, frame))
    others = len(whole) - count * (13 if make is report else 9)  # where the columns begin that are no rates
    for _ in range(damage):
        if rng.random() < 0.5 and count:
            whole[rng.integers(others, len(whole))] ^= 1 << rng.integers(0, 8)
        else:
            whole[rng.integers(80, max(len(whole), 81)) % len(whole)] = rng.integers(0, 256)
    known = {type(before): PreviousMessage(HEAD.incarnation, 1, HEAD.number, before)}
    assert read(bytes(whole), known) == plainly(read, bytes(whole), known) == plainly(read, bytes(whole), None)


@settings(max_examples=200)
@given(seed=seeds, count=counts, make=st.sampled_from((report, grants)), damage=st.integers(0, 3))
def test_frames_without_pairs_are_read_and_refused_alike(seed: int, count: int, make: Any, damage: int) -> None:
    rng = np.random.default_rng(seed)
    frame, said = make(rng, count), np.arange(count)
    _, before = decode(encode(HEAD, FABRIC, frame), FABRIC, VNS)
    left = int(rng.choice([0, 1, 2, 11] if make is report else [0, 4]))
    limits = 5 if make is report and rng.random() < 0.5 else 0
    known = {type(before): PreviousMessage(HEAD.incarnation, 1, HEAD.number, before)}
    head = HEAD._replace(number=9, pairs_ref=2, omitted=left, limits_ref=limits)
    given = {5: GrantRecord(before.sender, rng.random(count), rng.permutation(count))}
    whole = bytearray(encode(head, FABRIC, frame, said))
    assert whole == plainly(encode, head, FABRIC, frame, said)
    for _ in range(damage):
        whole[rng.integers(80, max(len(whole), 81)) % len(whole)] = rng.integers(0, 256)
    assert read(bytes(whole), known, given) == plainly(read, bytes(whole), known, given)


@pytest.mark.parametrize("make", [report, grants])
@pytest.mark.parametrize("at", [0, 1, 511, 512, MAX_PAIRS - 1])
@pytest.mark.parametrize("value", ODD)
def test_odd_rates_are_taken_or_refused_alike(make: Any, at: int, value: float) -> None:
    frame = make(np.random.default_rng(at), MAX_PAIRS)
    _, before = decode(encode(HEAD, FABRIC, frame), FABRIC, VNS)
    known = {type(before): PreviousMessage(HEAD.incarnation, 1, HEAD.number, before)}
    for name in ("measured_bps", "limit_bps", "last_bps") if make is report else ("rate_bps",):
        column = getattr(frame, name)
        was, column[at] = column[at], value
        data = encode(HEAD, FABRIC, frame)
        found = read(data, known)
        assert found == plainly(read, data, known)
        good = bool(0.0 <= value <= MAX_BPS or (name == "limit_bps" and value == np.inf))
        assert (found == (HEAD, data)) is good
        column[at] = was


@pytest.mark.parametrize("at", [0, 511, 512, MAX_PAIRS - 1])
@pytest.mark.parametrize("make", [report, grants])
def test_another_pair_or_flag_anywhere_is_noticed(make: Any, at: int) -> None:
    frame = make(np.random.default_rng(at), MAX_PAIRS)
    data = encode(HEAD, FABRIC, frame)
    _, before = decode(data, FABRIC, VNS)
    known = {type(before): PreviousMessage(HEAD.incarnation, 1, HEAD.number, before)}
    assert decode(data, FABRIC, VNS, 0, known)[1].sender is before.sender  # which is not looked through again
    flags = len(data) - MAX_PAIRS
    rows = flags - (5 if make is report else 0) * MAX_PAIRS  # behind receivers, which are behind senders
    of_flags = [flags + at, flags - MAX_PAIRS + at][: 2 if make is report else 1]
    for octet in (*of_flags, rows - 4 * MAX_PAIRS + 4 * at + 3, rows - 8 * MAX_PAIRS + 4 * at + 3):
        whole = bytearray(data)
        whole[octet] |= 0x80
        found = read(bytes(whole), known)
        assert found == plainly(read, bytes(whole), known)
        assert isinstance(found[1], str)
    fewer = encode(HEAD, FABRIC, frame, np.delete(np.arange(MAX_PAIRS), at))
    assert read(fewer, known) == (HEAD, fewer)


def test_a_column_of_another_width_is_refused() -> None:
    """It would be read beyond its end."""
    rows, short, wide = np.arange(3), np.zeros(3, np.int16), np.zeros(3)
    with pytest.raises(TypeError, match="int16"):
        codec_native.write_columns(np.zeros(99, np.uint8), rows, [wide], [short], [])
