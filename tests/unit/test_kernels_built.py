"""Compiled functions are optional: one that does not compile would be missing without a word, and its tests skipped."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    for folder in ("controller", "apps")
    for path in (ROOT / folder).rglob("*kernel.py")
    if re.search(r"^library.* = load\(", path.read_text(), re.MULTILINE)
)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("name", KERNELS)
def test_where_there_is_a_compiler_every_kernel_was_built(name: str) -> None:
    assert importlib.import_module(name).library is not None


def test_the_kernels_were_found() -> None:
    assert len(KERNELS) >= 7
