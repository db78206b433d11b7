"""Compiled functions are optional: one that does not compile would be missing without a word, and its tests skipped."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTENSIONS = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    for folder in ("controller", "apps")
    for path in (ROOT / folder).rglob("*native.py")
    if re.search(r"^library.* = load_native\(", path.read_text(), re.MULTILINE)
)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("name", EXTENSIONS)
def test_where_there_is_a_compiler_every_extension_was_built(name: str) -> None:
    assert importlib.import_module(name).library is not None


def test_the_extensions_were_found() -> None:
    assert len(EXTENSIONS) >= 7
