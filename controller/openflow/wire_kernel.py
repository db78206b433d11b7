"""The compiled form of meters between the wire and columns (``_wire.c``): the same bytes and bits in one pass.

``library`` is None when it was not built; callers look before they call.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controller.compiled import call, load
from controller.openflow.buffers import Buffer

library = load(Path(__file__).parent, "_wire", {"dets_decode_meters": "i", "dets_encode_meters": "iii"})
_STATS_BYTES = 56


def decode(parts: Sequence[Buffer], out_type: np.dtype[np.void]) -> NDArray[np.void] | None:
    """Return the records of meter-stats replies in parts; None unless all are whole, and meters of one band."""
    columns = [np.frombuffer(part, np.uint8) for part in parts if len(part)]
    out = np.empty(sum(map(len, columns)) // _STATS_BYTES, out_type)
    return out if call(library, "dets_decode_meters", (*columns, out), len(columns)) == len(out) else None


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
    octets = np.frombuffer(template, np.uint8), np.frombuffer(tail or b"\0", np.uint8)
    done = call(library, "dets_encode_meters", (ends, xid_first, *columns, *octets, out), *last, len(tail))
    return out.tobytes() if done == rows else None
