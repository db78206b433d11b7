"""SimGrid's max-min solver on the same instances, where its library (Debian: libsimgrid-dev) and a C++ compiler are."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from controller.allocation.interface import FloatArray
from controller.allocation.max_min import FlowPaths

SOURCE = Path(__file__).with_name("simgrid_max_min.cpp")
SOLVE_TIMEOUT_S = 300


class SimGridSolver:
    """The compiled program that solves one problem at a time."""

    def __init__(self, program: Path) -> None:
        self._program = program

    @classmethod
    def build(cls, folder: Path) -> SimGridSolver | str:
        """Return the solver, or why there is none on this machine."""
        compiler = shutil.which("g++")
        if compiler is None:
            return "no g++ on this machine"
        program = folder / "simgrid_max_min"
        command = [compiler, "-std=c++17", "-O2", str(SOURCE), "-o", str(program), "-lsimgrid"]
        built = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if built.returncode != 0:
            return "libsimgrid is not installed (Debian: libsimgrid-dev)"
        return cls(program)

    def solve(
        self, paths: FlowPaths, capacity_bps: FloatArray, demand_bps: FloatArray, weight: FloatArray, repeats: int
    ) -> tuple[FloatArray, list[float]]:
        """Return the rates (flows,) and the milliseconds of each of ``repeats`` solves, the set-up not counted."""
        with tempfile.TemporaryDirectory() as folder:
            problem, rates = Path(folder) / "problem", Path(folder) / "rates"
            sizes = np.array([paths.flows, paths.constraints, len(paths.constraint)], dtype=np.int64)
            columns = (sizes, paths.offsets, paths.constraint, capacity_bps, demand_bps, weight)
            problem.write_bytes(b"".join(column.tobytes() for column in columns))
            command = [str(self._program), str(problem), str(rates), str(repeats)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=SOLVE_TIMEOUT_S, check=True)
            return np.fromfile(rates), [float(line) for line in done.stdout.split()]
