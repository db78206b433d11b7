"""Compares what compiled functions make with what their numpy forms make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np

from controller.dets import machines_kernel
from controller.metering import measure_kernel

_KERNELS = (machines_kernel, measure_kernel)


@contextmanager
def numpy_alone() -> Iterator[None]:
    """Do without the compiled form."""
    libraries = [kernel.library for kernel in _KERNELS]
    for kernel in _KERNELS:
        kernel.library = None
    try:
        yield
    finally:
        for kernel, library in zip(_KERNELS, libraries, strict=True):
            kernel.library = library


def same(one: Any, other: Any) -> None:
    """Compare two dataclasses of columns bit for bit, NaN for NaN."""
    for field in fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)
