"""Splits long work into batches; other greenlets run between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def batches(items: Iterable[Item], batch_size: int) -> Iterator[list[Item]]:
    """Yield all items in order, ``batch_size`` of them at a time."""
    rest = iter(items)
    while some := list(islice(rest, batch_size)):
        yield some
