"""What stays for long is not looked at again and again: a full collection of garbage stops everything else."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import count

# What a switch of fewer entries adds is looked through in a few milliseconds.
MANY_ENTRIES = 2_000
# Pieces of work that bring a few hundred entries each: so much of them is quickly looked through.
MANY_PIECES = 20


def keep_all() -> None:
    """Let the collector of reference cycles pass over all that there is now, which is to stay for long.

    With 80,000 flow entries it takes 0.7 s to look through them, and finds nothing. What is not in a cycle is freed as
    ever; a cycle that breaks off later is not, so this is for when something large was added.
    """
    gc.collect(1)
    gc.freeze()


def keep_entries(entries: int) -> None:
    """As ``keep_all`` when a switch has brought ``entries`` flow entries, if they are many."""
    if entries >= MANY_ENTRIES:
        keep_all()


def keeping(breathe: Callable[[], None]) -> Callable[[], None]:
    """Return a ``breathe`` for long work that brings what stays: that is kept again and again on the way."""
    numbers = count(1)

    def breathe_and_keep() -> None:
        if next(numbers) % MANY_PIECES == 0:
            keep_all()
        breathe()

    return breathe_and_keep
