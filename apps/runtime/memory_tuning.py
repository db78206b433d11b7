"""The memory of the process: the heap keeps what it has, and what stays for long is not looked at again and again."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

# What a switch of fewer entries adds is looked through in a few milliseconds.
MANY_ENTRIES = 2_000
# Pieces of work that bring a few hundred entries each: so much of them is quickly looked through.
MANY_PIECES = 20
# From malloc.h of the GNU C library. Setting any of them also ends its own guesses about the others.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
# Freed memory at the end of the heap stays up to so much: more than the columns of a million entries.
MAX_KEPT_BYTES = 1 << 30
# The heap grows by so much more than it has to.
PAD_BYTES = 16 << 20


def disable_heap_trimming() -> bool:
    """Let freed memory be used again and not go back to the kernel; return whether the C library can do that.

    By default large columns are mapped and unmapped, and the end of the heap is given back, in every round. Each page
    is then faulted in again and filled with zeros, which costs more than what is computed in it. Call it before there
    are threads.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # not the GNU C library: its malloc is left as it is
        return False
    values = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, MAX_KEPT_BYTES), (_TOP_PAD, PAD_BYTES))
    return all(mallopt(name, value) == 1 for name, value in values)


def trim_heap() -> None:
    """Return to the kernel what is free within the heap, once something large has been done that is not done again.

    Taking switches over needs several times what stays. Of 100 MB it takes a few milliseconds, and rounds fault in what
    they use once.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # the GNU C library's
    if trim is not None:
        trim(0)


def freeze_gc() -> None:
    """Let the collector of reference cycles pass over all that there is now, which is to stay for long.

    With 80,000 flow entries it takes 0.7 s to look through them, and finds nothing. What is not in a cycle is freed as
    ever; a cycle that breaks off later is not, so this is for when something large was added.
    """
    gc.collect(1)
    gc.freeze()


def freeze_gc_if_large(entries: int) -> None:
    """As ``freeze_gc`` when a switch has brought ``entries`` flow entries, if they are many."""
    if entries >= MANY_ENTRIES:
        freeze_gc()


@contextmanager
def making_much() -> Iterator[None]:
    """Let the collector of reference cycles rest inside, where much is made, and not look at it again and again.

    That takes 0.2 s for a configuration of 48,000 VNs, with everybody waiting. What is in no cycle is freed as ever.
    A collector that rests already goes on resting.
    """
    if not gc.isenabled():
        yield
        return
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def keep_made(entries: int) -> None:
    """Let the collector pass over what was made, within ``making_much``, if that is of many entries."""
    if entries >= MANY_ENTRIES:
        gc.freeze()


def with_gc_freezing(yield_control: Callable[[], None]) -> Callable[[], None]:
    """Return a ``yield_control`` for long work that brings what stays: that is kept again and again on the way."""
    numbers = count(1)

    def breathe_and_keep() -> None:
        if next(numbers) % MANY_PIECES == 0:
            freeze_gc()
        yield_control()

    return breathe_and_keep
