"""Read interface counters at a steady pace, in a separate process so that nothing else delays it.

``python -m experiments.measure.sampler --interval-ms 55 --duration 30 --output FILE INTERFACE...`` writes one CSV line
per sample: time in ns (CLOCK_MONOTONIC, the same clock in every process), then transmitted bytes and packets of each
interface. What the switch's end of a VN's link has transmitted is what the VN has received. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType

READY = b"ready\n"


def sample(interfaces: Sequence[str], interval_s: float, duration_s: float, output: Path) -> int:
    """Sample until ``duration_s`` has passed or SIGTERM comes; return the number of samples.

    The n-th sample is due n intervals after the first, however late the previous one was.
    """
    stopped = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    with contextlib.suppress(PermissionError):
        os.nice(-5)  # late samples blur the series
    files = [_open_counter(interface, name) for interface in interfaces for name in ("tx_bytes", "tx_packets")]
    lines = ["time_ns," + ",".join(f"{i}_bytes,{i}_packets" for i in interfaces)]
    os.write(sys.stdout.fileno(), READY)
    start = time.monotonic()
    count = 0
    while not stopped and count * interval_s <= duration_s:
        pause_s = start + count * interval_s - time.monotonic()
        if pause_s > 0:
            time.sleep(pause_s)
        values = [int(os.pread(file, 32, 0)) for file in files]
        lines.append(f"{time.monotonic_ns()}," + ",".join(map(str, values)))
        count += 1
    output.write_text("\n".join(lines) + "\n")
    return count


class Sampler:
    """The sampling process of one run: a context manager, inside which it runs; its file is complete afterwards."""

    def __init__(self, interfaces: Sequence[str], interval_s: float, max_duration_s: float, output: Path) -> None:
        self.output = output
        self._command = [sys.executable, "-m", "experiments.measure.sampler", "--interval-ms", f"{interval_s * 1000:g}"]
        self._command += ["--duration", f"{max_duration_s:g}", "--output", str(output), *interfaces]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Sampler:
        root = Path(__file__).resolve().parents[2]
        self._process = subprocess.Popen(self._command, cwd=root, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != READY:
            raise RuntimeError(f"the sampler did not start: exit status {self._process.wait(timeout=5)}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        status = self._process.wait(timeout=10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        if status != 0 and error is None:
            raise RuntimeError(f"the sampler failed: exit status {status}")


def _open_counter(interface: str, name: str) -> int:
    return os.open(f"/sys/class/net/{interface}/statistics/{name}", os.O_RDONLY)


def main(arguments: list[str]) -> int:
    """Parse the command line and sample."""
    parser = argparse.ArgumentParser(prog="experiments.measure.sampler", description=__doc__)
    parser.add_argument("--interval-ms", type=float, required=True)
    parser.add_argument("--duration", type=float, required=True, help="seconds, at most")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("interfaces", nargs="+")
    options = parser.parse_args(arguments)
    sample(options.interfaces, options.interval_ms / 1000, options.duration, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
