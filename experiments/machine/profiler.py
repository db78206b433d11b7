"""Run a module and report its processor time by function.

``python -m experiments.machine.profiler FILE MODULE [ARGUMENT...]``
A sampling profiler: the kernel interrupts the process after every SAMPLE_S of processor time (ITIMER_PROF), greenlets
and time inside numpy or the kernel included, and the stack is recorded. Nothing is traced, so the program runs as it
does without the profiler. Idle time does not count (py-spy samples elapsed time, and with ``--gil`` excludes numpy and
C; perf needs Python 3.12). A SIGUSR1 restarts it. FILE gets a table at a SIGUSR2, or otherwise at the end of the
module: the program's own shutdown is not to be measured.
"""

from __future__ import annotations

import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

SAMPLE_S = 0.004  # a tick of a kernel at 250 Hz, the finest resolution
MAX_ROWS = 300


class Profile:
    """Samples by function: how many were in the function itself, and how many had it anywhere on the stack."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own: Counter[str] = Counter()
        self._with_callees: Counter[str] = Counter()
        self._ended = False

    def start(self) -> None:
        """Sample from now on."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.signal(signal.SIGUSR1, lambda _signal, _frame: self.clear())
        signal.signal(signal.SIGUSR2, lambda _signal, _frame: self.end())
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)

    def clear(self) -> None:
        """Delete the samples so far."""
        self._own.clear()
        self._with_callees.clear()

    def end(self) -> None:
        """Stop sampling, and write the table unless it is written."""
        if self._ended:
            return
        self._ended = True
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        total = sum(self._own.values())
        lines = [
            f"{total} samples, one every {SAMPLE_S * 1e3:g} ms of processor time",
            "   own  with callees  function",
        ]
        for name, count in self._with_callees.most_common(MAX_ROWS):
            lines.append(f"{self._own[name] / total:6.1%}  {count / total:12.1%}  {name}")
        self._path.write_text("\n".join(lines) + "\n")

    def _sample(self, _signal: int, frame: FrameType | None) -> None:
        names, at = [], frame
        while at is not None:
            code = at.f_code
            names.append(f"{code.co_qualname} ({Path(code.co_filename).name}:{code.co_firstlineno})")
            at = at.f_back
        if names:
            self._own[names[0]] += 1
            self._with_callees.update(set(names))


def main(path: str, module: str, *arguments: str) -> None:
    """Run ``module`` as ``python -m`` would, and write the profile to ``path`` when it ends."""
    profile = Profile(Path(path))
    sys.argv = [module, *arguments]
    profile.start()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        profile.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
