"""The compiled form of what a listing is told apart by (``_flow_stats.c``): the same bytes in one pass.

``library`` is None when it was not built; callers look before they call.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.native_loader import load_native

library = load_native("controller.openflow._flow_stats", "dets_still")
_MAX_BYTES = 1 << 18  # at once: more than four of the longest entries


def mask_counters(body: bytes, offset: int, entries: int) -> NDArray[np.uint8] | None:
    """Return the next entries of a flow-stats reply from ``offset`` on, so many at most, ages and counters as zeros.

    None where a length is wrong.
    """
    room = np.empty(min(len(body) - offset, _MAX_BYTES), np.uint8)
    octets = library.dets_still((np.frombuffer(body, np.uint8), room), offset, entries)
    return None if octets <= 0 else room[:octets]
