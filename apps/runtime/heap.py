"""The heap of the process keeps the memory that it has: a round's columns are of the same sizes as the last one's."""

from __future__ import annotations

import ctypes

# From malloc.h of the GNU C library. Setting any of them also ends its own guesses about the others.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
# Freed memory at the end of the heap stays up to so much: more than the columns of a million entries.
MOST_KEPT_BYTES = 1 << 30
# The heap grows by so much more than it has to.
PAD_BYTES = 16 << 20


def keep_memory() -> bool:
    """Let freed memory be used again and not go back to the kernel; return whether the C library can do that.

    By default large columns are mapped and unmapped, and the end of the heap is given back, in every round. Each page
    is then faulted in again and filled with zeros, which costs more than what is computed in it. Call it before there
    are threads.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # not the GNU C library: its malloc is left as it is
        return False
    values = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, MOST_KEPT_BYTES), (_TOP_PAD, PAD_BYTES))
    return all(mallopt(name, value) == 1 for name, value in values)
