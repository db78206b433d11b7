"""Compiled functions are optional: one that does not compile would be missing without a word, and its tests skipped."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.model import compiled_folder, warn_if_not_compiled
from experiments.model.native_build import build

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


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_model_runs_compiled_where_make_setup_has_compiled_just_these_sources() -> None:
    build()
    command = "from experiments.model import tcp; print(tcp.__file__)"
    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parent == compiled_folder() / "modules"


def test_a_changed_source_has_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    before, read = compiled_folder(), Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + (b"#" if path.name == "tcp.py" else b""))
    assert compiled_folder() != before


def test_a_model_that_is_not_compiled_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("experiments.model.compiled_folder", lambda: tmp_path)
    warn_if_not_compiled()
    assert not capsys.readouterr().err
    monkeypatch.setattr("experiments.model.compiled_folder", lambda: tmp_path / "missing")
    warn_if_not_compiled()
    assert "make environment compiles it" in capsys.readouterr().err


def test_the_extensions_were_found() -> None:
    assert len(EXTENSIONS) >= 7
