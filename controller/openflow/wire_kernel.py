"""The compiled form of meters between the wire and columns (``_wire.c``): the same bytes and bits in one pass.

``library`` is None when it was not built; callers look before they call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controller.compiled import address, call, load
from controller.openflow.buffers import Buffer

library = load(
    Path(__file__).parent,
    "_wire",
    {"dets_decode_meters": (ctypes.c_int64, "i***"), "dets_encode_meters": (ctypes.c_int64, "i**ii*****i**")},
)
_STATS_BYTES = 56


def decode(parts: Sequence[Buffer], out_type: np.dtype[np.void]) -> NDArray[np.void] | None:
    """Return the records of meter-stats replies in parts; None unless all are whole, and meters of one band."""
    columns = [np.frombuffer(part, np.uint8) for part in parts if len(part)]
    octets = np.array(list(map(len, columns)), dtype=np.int64)
    if (octets % _STATS_BYTES).any():
        return None
    meters = octets // _STATS_BYTES
    out = np.empty(int(meters.sum()), out_type)
    places = np.array(list(map(address, columns)), dtype=np.int64)
    return out if call(library, "dets_decode_meters", len(columns), places, meters, out) == len(out) else None


def encode(
    template: bytes,
    tail: bytes,
    last: tuple[int, int],
    columns: Sequence[NDArray[np.int64]],
    ends: NDArray[np.int64],
    xid_first: NDArray[np.int64],
) -> bytes | None:
    """Return the meter-mods of one switch after the other, each switch's followed by ``tail``.

    ``columns`` are command, meter_id, rate_kbps and burst_kbits; the rows of a switch end at its ``ends`` and have xids
    from its ``xid_first`` on. ``last`` are the highest command and meter. None unless all rows add or modify, and
    their values fit.
    """
    rows = len(columns[0])
    out = np.empty(rows * len(template) + len(ends) * len(tail), np.uint8)
    octets = np.frombuffer(template, np.uint8), len(tail), np.frombuffer(tail or b"\0", np.uint8)
    done = call(library, "dets_encode_meters", len(ends), ends, xid_first, *last, *columns, *octets, out)
    return out.tobytes() if done == rows else None
