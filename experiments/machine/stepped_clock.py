"""A wall clock of one process that can be stepped while it runs; its monotonic clocks are unaffected."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
_WORD_BYTES = 8


class SteppedClock:
    """Compiles the library (gcc) into ``folder``. ``environment`` is what the process needs to use this clock."""

    def __init__(self, folder: Path) -> None:
        library, self._file = folder / "stepped_clock.so", folder / "clock_step"
        command = ["gcc", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        self._file.write_bytes(bytes(_WORD_BYTES))
        self.environment = {"LD_PRELOAD": str(library), "DETS_CLOCK_STEP_FILE": str(self._file)}

    def step(self, seconds: int) -> None:
        """Set the wall clock ``seconds`` ahead of the machine's from now on; behind it, if negative."""
        with self._file.open("r+b", buffering=0) as file:
            file.write(seconds.to_bytes(_WORD_BYTES, "little", signed=True))
