"""A process without some rooms, or without compiled passes: importing them fails as if they were not installed.

``python tests/support/missing_packages.py MODULE ...`` runs a module in such a process, as ``python -m`` does.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder

VARIABLE = "DETS_TEST_WITHOUT"
"""Names the rooms, with spaces in between; ``kernels`` are the compiled passes."""
KERNELS = "kernels"


class _Missing(MetaPathFinder):
    def __init__(self, packages: Iterable[str], *, kernels: bool) -> None:
        self._packages, self._kernels = tuple(packages), kernels

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        """Find nothing, and let nobody else find what is missing."""
        top, _, name = fullname.partition(".")
        is_kernel = top in ("controller", "apps") and name.rpartition(".")[2].startswith("_") and "__" not in name
        if any(f"{fullname}.".startswith(f"{one}.") for one in self._packages) or (self._kernels and is_kernel):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def leave_out(names: str) -> None:
    """Let these rooms be missing in this process, which has not imported them."""
    if not names:
        return
    from controller.rooms import ROOMS

    wanted = set(names.split())
    packages = [package for name in wanted - {KERNELS} for package in ROOMS[name].packages]
    sys.meta_path.insert(0, _Missing(packages, kernels=KERNELS in wanted))


def leave_out_as_told() -> None:
    """Leave out what the environment says."""
    leave_out(os.environ.get(VARIABLE, ""))


if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    leave_out_as_told()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
