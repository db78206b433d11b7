"""Memory tuning of the process: the heap keeps freed memory, and the garbage collector skips long-lived objects."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

# The collector examines the objects of a switch with fewer flow entries within a few milliseconds.
MANY_ENTRIES = 2_000
# The collector examines the objects of so many slices, each with a few hundred flow entries, quickly.
MANY_PIECES = 20
# From malloc.h of the GNU C library. Setting any of them also stops its automatic tuning of the others.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
# Freed memory that remains at the end of the heap: more than the columns of a million pairs.
MAX_KEPT_BYTES = 1 << 30
# Additional memory at each growth of the heap.
PAD_BYTES = 16 << 20


def disable_heap_trimming() -> bool:
    """Let freed memory be reused instead of returned to the kernel; return whether the C library supports that.

    By default large columns are mapped and unmapped, and the end of the heap is trimmed, in every round. Each page is
    then faulted in again and zeroed, which costs more than the computation in it. Call it before there are threads.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # not the GNU C library: its malloc is not tuned
        return False
    values = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, MAX_KEPT_BYTES), (_TOP_PAD, PAD_BYTES))
    return all(mallopt(name, value) == 1 for name, value in values)


def trim_heap() -> None:
    """Return free heap memory to the kernel, after large work that is not repeated.

    Bringing up switches needs several times the memory that is used afterwards. Trimming 100 MB takes a few
    milliseconds; later rounds fault the pages that they use in again, once.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library
    if trim is not None:
        trim(0)


def freeze_gc() -> None:
    """Let the garbage collector skip all present objects, which are long-lived.

    With 80,000 flow entries a collection takes 0.7 s, and finds nothing. Frozen objects are still freed by their
    reference counts; only cycles of them are never freed. Call it after creating many objects.
    """
    gc.collect(1)  # the young objects only: what is garbage now would never be freed
    gc.freeze()


def freeze_gc_if_large(entries: int) -> None:
    """Call ``freeze_gc`` if a new switch has many flow entries; ``entries`` is their number."""
    if entries >= MANY_ENTRIES:
        freeze_gc()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable the garbage collector while many objects are created.

    Otherwise collections take 0.2 s for a configuration of 48,000 VNs, and block all greenlets. Objects outside of
    cycles are freed as usual. A collector that was disabled before stays disabled.
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
    """Exclude all present objects from garbage collection, if many were created within ``gc_paused``.

    ``entries`` is the number of VNs or flow entries that were created.
    """
    if entries >= MANY_ENTRIES:
        gc.freeze()


def with_gc_freezing(yield_control: Callable[[], None]) -> Callable[[], None]:
    """Return a function that does ``yield_control``, and every MANY_PIECES calls also ``freeze_gc``.

    It is for long work in slices that creates long-lived objects.
    """
    numbers = count(1)

    def yield_and_freeze() -> None:
        if next(numbers) % MANY_PIECES == 0:
            freeze_gc()
        yield_control()

    return yield_and_freeze
