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

_NOT_SIDE_BY_SIDE = -1
_TYPES = {"i": ctypes.c_int64, "d": ctypes.c_double}


def load(folder: Path, name: str, functions: Mapping[str, str]) -> ctypes.CDLL | None:
    """Return the library built from ``name``.c in ``folder``, or None when it was not built, or of other sources.

    ``functions`` gives the numbers that each function takes, ``i`` an int64 and ``d`` a double; after these comes one
    tuple of columns (``_columns.h``). All return an int64. None too where Python keeps tuples or arrays in another way
    than usual.
    """
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = folder / f"{name}{suffix}"
        if path.exists():
            library = ctypes.CDLL(str(path))
            if not all(hasattr(library, function_name) for function_name in functions):
                return None
            for function_name, numbers in functions.items():
                function = getattr(library, function_name)
                function.argtypes = [*(_TYPES[letter] for letter in numbers), ctypes.py_object]
                function.restype = ctypes.c_int64
            return library if _finds_columns(library) else None
    return None


def _finds_columns(library: ctypes.CDLL) -> bool:
    """Set where the library looks for the items of tuples and the fields of arrays; return whether it finds them there.

    CPython has the items behind the fixed part of a tuple, numpy its own fields behind those of any object. A Python
    with a longer head of objects (without the global lock) is not asked.
    """
    if object.__basicsize__ != 2 * _WORD:
        return False
    ctypes.c_size_t.in_dll(library, "dets_items_at").value = tuple.__basicsize__
    ctypes.c_size_t.in_dll(library, "dets_fields_at").value = object.__basicsize__
    find = library.dets_find_column
    find.argtypes = [ctypes.py_object, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)]
    address, rows = ctypes.c_void_p(), ctypes.c_int64()
    column, apart = np.zeros((3, 2)), np.zeros((5, 2))[:, 1]
    finds_whole = find((column,), address, rows) == 0 and (address.value, rows.value) == (column.ctypes.data, 3)
    finds_apart = find((apart,), address, rows) == _NOT_SIDE_BY_SIDE and rows.value == 5
    return finds_whole and finds_apart


def call(library: ctypes.CDLL | None, name: str, columns: tuple[NDArray[np.generic], ...], *numbers: float) -> int:
    """Call a function with copies of columns whose rows are not side by side: never of those that it writes."""
    function = getattr(library, name)
    status: int = function(*numbers, columns)
    if status == _NOT_SIDE_BY_SIDE:
        status = function(*numbers, tuple(map(np.ascontiguousarray, columns)))
    return status


_WORD = ctypes.sizeof(ctypes.c_size_t)
