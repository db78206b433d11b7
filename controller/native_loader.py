"""Loader of the native modules: ``setup.py`` builds the C files when the machine has a C compiler.

Each library is a Python module (``_module.h``); a function takes a tuple of columns and then its numbers, and releases
the GIL. Without it numpy computes the same more slowly (docs/adr/0010-native-passes.md).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Kernel(Protocol):
    """A module with native functions; ``library`` is None if it was not built."""

    library: Any


def load_native(module: str, *passes: str) -> Any:
    """Return a native module; None if it was not built, or lacks one of these ``passes`` (older sources)."""
    try:
        library = importlib.import_module(module)
    except ImportError:
        return None
    return library if all(hasattr(library, name) for name in passes) else None


def choose(kernel: Kernel, compiled: Callable[P, R], plain: Callable[P, R]) -> Callable[P, R]:
    """Return a function that calls the native form if it was built, otherwise the plain form; both give identical bits.

    It checks for the library at each call, so that tests can remove it.
    """

    @functools.wraps(plain)
    def chosen(*args: P.args, **kwargs: P.kwargs) -> R:
        return (plain if kernel.library is None else compiled)(*args, **kwargs)

    return chosen
