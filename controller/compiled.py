"""Compiled functions, where they were built: ``setup.py`` builds the C files when the machine has a C compiler.

They are plain C loaded by ctypes, not Python modules, so that one build serves every Python; ctypes lets go of Python's
lock during a call. Without them numpy does the same more slowly (docs/adr/0010-allocation-kernel.md).
"""

from __future__ import annotations

import ctypes
import importlib.machinery
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

COLUMNS = "columns"
"""In place of arguments: the function takes one tuple of columns (``_columns.h``) and is called by ``call_columns``."""

ColumnsFunction = Callable[[tuple[NDArray[np.generic], ...]], int]

_NOT_SIDE_BY_SIDE = -1
_TYPES = {"i": ctypes.c_int64, "d": ctypes.c_double, "*": ctypes.c_void_p}


def load(folder: Path, name: str, functions: Mapping[str, tuple[type, str]]) -> ctypes.CDLL | None:
    """Return the library built from ``name``.c in ``folder``, or None when it was not built, or of other sources.

    ``functions`` gives each function's result and its arguments: ``i`` an int64, ``d`` a double, ``*`` a column; or
    COLUMNS. A library with such functions is None too where Python keeps tuples or arrays in another way than usual.
    """
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = folder / f"{name}{suffix}"
        if path.exists():
            library = ctypes.CDLL(str(path))
            if not all(hasattr(library, function_name) for function_name in functions):
                return None
            for function_name, (result, arguments) in functions.items():
                function = getattr(library, function_name)
                one_tuple = [ctypes.py_object]
                function.argtypes = one_tuple if arguments == COLUMNS else [_TYPES[letter] for letter in arguments]
                function.restype = result
            takes_columns = any(arguments == COLUMNS for _, arguments in functions.values())
            return None if takes_columns and not _finds_columns(library) else library
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


def call_columns(function: ColumnsFunction, columns: tuple[NDArray[np.generic], ...]) -> int:
    """Call a function that takes COLUMNS, with copies of columns whose rows are not side by side: never of results."""
    status = function(columns)
    return function(tuple(map(np.ascontiguousarray, columns))) if status == _NOT_SIDE_BY_SIDE else status


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
        plain.append(address(value))
    result: int = getattr(library, name)(*plain)
    return result


def address(column: NDArray[np.generic]) -> int:
    """Return where a column begins, whose rows are side by side; it must be kept alive."""
    where: int = _WORDS[(id(column) + _DATA - _WORD) // _WORD] if _DATA else column.ctypes.data
    return where


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
