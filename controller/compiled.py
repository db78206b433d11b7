"""Compiled functions, where they were built: ``setup.py`` builds the C files when the machine has a C compiler.

They are plain C loaded by ctypes, not Python modules, so that one build serves every Python; ctypes lets go of Python's
lock during a call. Without them numpy does the same more slowly (docs/adr/0010-allocation-kernel.md).
"""

from __future__ import annotations

import ctypes
import importlib.machinery
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_TYPES = {"i": ctypes.c_int64, "d": ctypes.c_double, "*": ctypes.c_void_p}


def load(folder: Path, name: str, functions: Mapping[str, tuple[type, str]]) -> ctypes.CDLL | None:
    """Return the library built from ``name``.c in ``folder``, or None when it was not built, or of other sources.

    ``functions`` gives each function's result and its arguments: ``i`` an int64, ``d`` a double, ``*`` a column.
    """
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = folder / f"{name}{suffix}"
        if path.exists():
            library = ctypes.CDLL(str(path))
            if not all(hasattr(library, function_name) for function_name in functions):
                return None
            for function_name, (result, arguments) in functions.items():
                function = getattr(library, function_name)
                function.restype, function.argtypes = result, [_TYPES[letter] for letter in arguments]
            return library
    return None


def call(library: ctypes.CDLL | None, name: str, *arguments: NDArray[np.generic] | float | int) -> int:
    """Call a function of a library with columns and numbers."""
    kept: list[NDArray[np.generic]] = []
    plain: list[float | int] = []
    for value in arguments:
        if not isinstance(value, np.ndarray):
            plain.append(value)
            continue
        if not value.flags.c_contiguous:  # its rows are not side by side: a copy, kept alive for the call
            kept.append(value := np.ascontiguousarray(value))
        plain.append(_WORDS[(id(value) + _DATA - _WORD) // _WORD] if _DATA else value.ctypes.data)
    result: int = getattr(library, name)(*plain)
    return result


_WORD = ctypes.sizeof(ctypes.c_size_t)
# The memory of the process as words, from the second on: a pointer to the first would be the null pointer.
_WORDS = ctypes.cast(_WORD, ctypes.POINTER(ctypes.c_size_t))


def _data_field() -> int:
    """Return how far into an array object its data pointer lies, or 0 if it is not where numpy documents it.

    ``column.ctypes.data`` takes 1 to 4 us a column, as long as the allocation of hundreds of entries. The pointer is
    the first field of PyArrayObject after the object header (numpy C API, "Python types and C-structures").
    """
    probe = np.zeros(1)
    field = object.__basicsize__
    return field if _WORDS[(id(probe) + field - _WORD) // _WORD] == probe.ctypes.data else 0


_DATA = _data_field()
