"""Compiled passes, where they were built: ``setup.py`` builds the C files when the machine has a C compiler.

Each library is a Python module (``_module.h``); a pass takes a tuple of columns and then its numbers, and lets go of
Python's lock. Without them numpy does the same more slowly (docs/adr/0010-native-passes.md).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Kernel(Protocol):
    """A module with compiled passes; ``library`` is None where they were not built."""

    library: Any


def load_native(module: str, *passes: str) -> Any:
    """Return a compiled module, or None when it was not built, or of other sources: it must have these ``passes``."""
    try:
        library = importlib.import_module(module)
    except ImportError:
        return None
    return library if all(hasattr(library, name) for name in passes) else None


def choose(kernel: Kernel, compiled: Callable[P, R], plain: Callable[P, R]) -> Callable[P, R]:
    """Return one function of a compiled pass and its plain form, which gives the same bits.

    It looks for the library when it is called, so that tests can take that away.
    """

    @functools.wraps(plain)
    def chosen(*args: P.args, **kwargs: P.kwargs) -> R:
        return (plain if kernel.library is None else compiled)(*args, **kwargs)

    return chosen
