"""Compiled passes, where they were built: ``setup.py`` builds the C files when the machine has a C compiler.

Each library is a Python module (``_module.h``); a pass takes a tuple of columns and then its numbers, and lets go of
Python's lock. Without them numpy does the same more slowly (docs/adr/0010-allocation-kernel.md).
"""

from __future__ import annotations

import importlib
from typing import Any


def load(module: str, *passes: str) -> Any:
    """Return a compiled module, or None when it was not built, or of other sources: it must have these ``passes``."""
    try:
        library = importlib.import_module(module)
    except ImportError:
        return None
    return library if all(hasattr(library, name) for name in passes) else None
