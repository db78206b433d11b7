"""Which versions a hello says that its sender speaks (OpenFlow 1.3.5, sections 6.3.1 and 7.5.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.openflow.bounded_reader import HEADER
from controller.openflow.messages import supports_version


def hello(version: int, body: bytes = b"") -> bytes:
    return HEADER.pack(version, 0, HEADER.size + len(body), 1) + body


def bitmap(*versions: int) -> bytes:
    return b"\0\1\0\x08" + sum(1 << version for version in versions).to_bytes(4)


@pytest.mark.parametrize(
    ("version", "body", "ours"),
    [
        (4, b"", True),
        (5, b"", True),
        (0x2A, b"", True),
        (3, b"", False),
        (0, b"", False),
        (4, bitmap(1, 4), True),
        (6, bitmap(1, 6), False),
        (1, bitmap(4), False),  # 1.0 has no elements: it is whatever follows
        (6, b"\0\x09\0\x05abcdabc" + bitmap(4, 6), True),  # an unknown element, padded, comes first
        (6, b"\0\x09\0\0" + bitmap(6), True),  # an element without a length is the end
        (6, b"\0\1\0\4" + bitmap(6)[4:], True),  # an empty bitmap says nothing
        (6, b"\0\1", True),
    ],
)
def test_hellos(version: int, body: bytes, ours: bool) -> None:
    assert supports_version(4, hello(version, body)) is ours


@given(st.integers(0, 255), st.binary(max_size=40))
def test_whatever_follows_it_is_read_to_an_end(version: int, body: bytes) -> None:
    assert supports_version(4, hello(version, body)) in {True, False}
    assert version >= 4 or not supports_version(4, hello(version, body))
