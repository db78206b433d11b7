"""The native form of encoding and decoding meters (``_meter_codec.c``): identical bytes and bits in one pass.

``library`` is None if it was not built; callers check that first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from controller.native_loader import load_native
from controller.openflow.bounded_reader import Buffer

_PASSES = "dets_decode_meters", "dets_modify_meters", "dets_encode_meters"
library = load_native("controller.openflow._meter_codec", *_PASSES)
_STATS_BYTES = 56


def decode(body: Buffer, out_type: np.dtype[np.void]) -> NDArray[np.void] | None:
    """Return the records of a meter-stats reply; None unless all are complete, and all meters have one band."""
    meters, rest = divmod(len(body), _STATS_BYTES)
    if rest or not meters:
        return None
    out = np.empty(meters, out_type)
    return out if library.dets_decode_meters((np.frombuffer(body, np.uint8), out)) == meters else None


def pack_modifications(
    command: int, columns: Sequence[NDArray[np.generic]], switches: int
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the rows command, meter_id, rate_kbps and burst_kbits (4, meters) by switch, and each switch's end.

    ``columns`` are the pairs to modify, the rates (kb/s) and bursts (kb) of all pairs, each pair's sender and meter,
    and the number of each sender's switch.
    """
    mods, ends = np.empty((len(columns[0]), 4), np.uint32), np.zeros(switches, np.int64)
    library.dets_modify_meters((*columns, ends, mods), command)
    return mods.T, ends


def encode(
    template: bytes,
    tail: bytes,
    last: tuple[int, int],
    mods: Sequence[NDArray[np.uint32]],
    xid_first: NDArray[np.int64],
) -> list[memoryview] | None:
    """Return the meter-mods of each switch, followed by ``tail``, each in a buffer of its own.

    ``mods`` are each switch's rows command, meter_id, rate_kbps and burst_kbits (4, meters), with xids from its
    ``xid_first`` on. ``last`` are the highest command and meter. None unless all rows add or modify, and their values
    fit.
    """
    counts = [piece.shape[1] for piece in mods]
    out = [np.empty(count * len(template) + len(tail), np.uint8) for count in counts]
    octets = np.frombuffer(template, np.uint8), np.frombuffer(tail or b"\0", np.uint8)
    columns: list[NDArray[np.generic]] = [xid_first, *octets, *(piece.T for piece in mods), *out]
    if library.dets_encode_meters(tuple(columns), *last, len(tail)) != sum(counts):
        return None
    return [memoryview(one) for one in out]  # type: ignore[arg-type]  # an array is a buffer
