"""What stays for long is not looked at again and again: a full collection of garbage stops everything else."""

from __future__ import annotations

import gc

# What a switch of fewer entries adds is looked through in a few milliseconds.
MANY_ENTRIES = 2_000


def keep_all() -> None:
    """Let the collector of reference cycles pass over all that there is now, which is to stay for long.

    With 80,000 flow entries it takes 0.7 s to look through them, and finds nothing. What is not in a cycle is freed as
    ever; a cycle that breaks off later is not, so this is for when something large was added.
    """
    gc.collect(1)
    gc.freeze()


def keep_entries(count: int) -> None:
    """As ``keep_all`` when a switch has brought ``count`` flow entries, if they are many."""
    if count >= MANY_ENTRIES:
        keep_all()
