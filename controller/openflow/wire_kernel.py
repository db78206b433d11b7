"""The compiled form of meters between the wire and columns (``_wire.c``): the same bytes and bits in one pass.

``library`` is None when it was not built; callers look before they call.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controller.compiled import call, load

library = load(
    Path(__file__).parent,
    "_wire",
    {"dets_decode_meters": (ctypes.c_int64, "i**"), "dets_encode_meters": (ctypes.c_int64, "iiii" + "*" * 5)},
)
_STATS_BYTES = 56


def decode(body: memoryview, out_type: np.dtype[np.void]) -> NDArray[np.void] | None:
    """Return the records of a meter-stats reply; None unless each of its meters has one band."""
    meters, rest = divmod(len(body), _STATS_BYTES)
    if rest or not meters:
        return None
    out = np.empty(meters, out_type)
    count = call(library, "dets_decode_meters", meters, np.frombuffer(body, np.uint8), out)
    return out if count == meters else None


def encode(
    out: bytearray, xid_first: int, last_command: int, last_meter: int, columns: tuple[NDArray[np.int64], ...]
) -> bool:
    """Write meter-mods over templates; return whether all were: those that add or modify, of values that fit.

    ``columns`` are command, meter_id, rate_kbps and burst_kbits.
    """
    rows = len(columns[0])
    numbers = (rows, xid_first, last_command, last_meter)
    return call(library, "dets_encode_meters", *numbers, *columns, np.frombuffer(out, np.uint8)) == rows
