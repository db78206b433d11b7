"""The command that runs a module of this project in a process of its own."""

from __future__ import annotations

import os
import sys


def module_command(module: str) -> list[str]:
    """Return the command, without arguments, that runs ``module`` from the packages that this process uses.

    No file of the current folder hides a module (``-P``), unless these packages are there themselves: then they are a
    copy of the project that may not be the installed one.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    hidden = [] if os.path.samefile(root, os.curdir) else ["-P"]
    return [sys.executable, *hidden, "-m", module]
