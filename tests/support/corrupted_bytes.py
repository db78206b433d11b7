"""Bytes as they come when some of them are wrong."""

from typing import Any

from hypothesis import strategies as st


def corrupted(data: Any, whole: bytes) -> bytes:
    """Return a message with a few octets that are others, whole or cut off; ``data`` is hypothesis's."""
    octets = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    return bytes(octets[: data.draw(st.integers(0, len(octets)))] if data.draw(st.booleans()) else octets)
