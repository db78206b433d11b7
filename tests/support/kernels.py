"""Compares what compiled functions make with what their numpy forms make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np

from controller.metering import measure_kernel


@contextmanager
def numpy_alone() -> Iterator[None]:
    """Do without the compiled form."""
    library, measure_kernel.library = measure_kernel.library, None
    try:
        yield
    finally:
        measure_kernel.library = library


def same(one: Any, other: Any) -> None:
    """Compare two dataclasses of columns bit for bit, NaN for NaN."""
    for field in fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)
