"""The native form of masking a flow-stats reply for comparison (``_flow_stats.c``): identical bytes in one pass.

``library`` is None if it was not built; callers check that first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.native_loader import load_native

library = load_native("controller.openflow._flow_stats", "dets_still")
_MAX_BYTES = 1 << 18  # per call: more than four of the longest flow entries


def mask_counters(body: bytes, offset: int, entries: int) -> NDArray[np.uint8] | None:
    """Return at most ``entries`` flow entries of a flow-stats reply from ``offset`` on, with ages and counters zeroed.

    None if a length is wrong.
    """
    room = np.empty(min(len(body) - offset, _MAX_BYTES), np.uint8)
    octets = library.dets_still((np.frombuffer(body, np.uint8), room), offset, entries)
    return None if octets <= 0 else room[:octets]
