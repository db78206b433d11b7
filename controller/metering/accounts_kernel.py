"""The compiled form of ``ReceiverAccounts.rooms`` (``_accounts.c``): the same bits in one pass.

``library`` is None when it was not built; callers look before they call.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from controller.columns import FloatArray
from controller.compiled import call, load

library = load(Path(__file__).parent, "_accounts", {"dets_rooms": ""})


def rooms(
    settings: FloatArray, slot_bits: FloatArray, since_s: FloatArray, limit_bps: FloatArray, later: int
) -> tuple[FloatArray, FloatArray]:
    """Return what is free until the next reading and until each of the ``later`` newest slots has left the window,
    (later + 1, vns), and what may have been saved (vns,).

    ``settings`` are what is allowed of the limit, the window and what may be saved in seconds of the limit;
    ``slot_bits`` are (slots * vns,), ``since_s`` (slots,), ``limit_bps`` (vns,).
    """
    free_bits, saved_bits = np.empty((later + 1, len(limit_bps))), np.empty(len(limit_bps))
    call(library, "dets_rooms", (settings, slot_bits, since_s, limit_bps, free_bits, saved_bits))
    return free_bits, saved_bits
