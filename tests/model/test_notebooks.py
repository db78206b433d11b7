"""The notebooks of docs/ run from their first cell to the last, and show what their words say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.paths import ROOT

FOLDER = ROOT / "docs" / "notebooks"
RUN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=300).execute()
nbformat.write(notebook, sys.argv[2])
"""


def executed(name: str, folder: Path) -> dict[str, list[dict]]:
    """Run a notebook of docs/ in a process of its own, in an empty folder; return the outputs of its cells by id."""
    command = [sys.executable, "-c", RUN, FOLDER / name, folder / name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads((folder / name).read_text())["cells"]
    return {cell["id"]: cell.get("outputs", []) for cell in cells}


def shown(outputs: list[dict], kind: str) -> str:
    """Return what a cell shows in a form."""
    (found,) = [one["data"][kind] for one in outputs if kind in one.get("data", {})]
    return found if isinstance(found, str) else "".join(found)


def test_figure_5_and_the_comparison_are_made(tmp_path: Path) -> None:
    cells = executed("figure-5.ipynb", tmp_path)
    assert (tmp_path / "figure-5.png").read_bytes().startswith(b"\x89PNG")
    assert shown(cells["run-fig5"], "image/png")
    rows = dict(line.split(maxsplit=1) for line in shown(cells["table-fig5"], "text/plain").splitlines())
    (without, kept), (_, limit) = (
        [float(number) for number in rows[f"victim_goodput_{key}"].split()] for key in ("bps_during", "limit_bps")
    )
    assert without < 0.35 * limit < 0.95 * limit < kept
    means = shown(cells["run-own"], "text/plain").splitlines()[-3:]
    assert [line.split()[0] for line in means] == ["fp", "level", "max-min"]
    assert all(float(line.split()[1]) > 0.9 for line in means)
    assert shown(cells["plot-own"], "image/png")


def test_notebooks_are_kept_without_outputs() -> None:
    for path in FOLDER.glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        assert not any(cell.get("outputs") for cell in cells), path
