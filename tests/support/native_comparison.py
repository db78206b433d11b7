"""Compares what compiled functions make with what their numpy forms make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np

from controller.metering import measurement_native


@contextmanager
def numpy_alone(native: Any = measurement_native) -> Iterator[None]:
    """Do without the compiled form that a module has loaded."""
    library, native.library = native.library, None
    try:
        yield
    finally:
        native.library = library


def names(table: Any) -> list[str]:
    """Return the names of the columns of a table, a named tuple or a dataclass."""
    return list(table._fields) if isinstance(table, tuple) else [field.name for field in fields(table)]


def same(one: Any, other: Any) -> None:
    """Compare two tables bit for bit, NaN for NaN."""
    for name in names(one):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
