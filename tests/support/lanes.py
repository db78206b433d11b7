"""Which tests run when, and what all of them came to: ``scripts/run-tests``.

Most tests share the processors; of the processes that run these, two begin with the wire tier, and with files marked
as long. Lanes are a pytest each, with a network and an Open vSwitch of its own (``scripts/lane``). In that of functions
are the fabric tier, the kernel tier and the web UI, which wait most of the time, beside those that share. After them
comes what compares rates in real time, in ``RATE_LANES`` lanes at once, each of which takes less than half a processor,
and one file after the other that no lane has begun. Beside them run tests that only compute, when a processor has
nothing else to do. In the last lane is what keeps the processors busy itself. Each pytest writes down what its tests
came to, so that one table tells of all.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

FUNCTIONS, RATES, ALONE = LANES = ("functions", "rates", "alone")  # the names of the marks
COMPUTED = "computed"  # the mark of tests that only compute
UNITS = "tests/unit/controller"  # where these are
LONG = "long"  # the mark of files that begin first: nothing long is left when the others are done
TALLY = "DETS_TEST_TALLY"  # the environment variable that names the file
CLAIMS = "DETS_TEST_CLAIMS"  # the environment variable that names the folder in which lanes claim files
RATE_LANES = 3
COUNTED = ("passed", "failed", "error", "skipped", "rerun")
WAITING = 2  # how many of the processes that share begin with tests that wait
FAILED, NONE_SELECTED, INTERRUPTED = 1, 5, 130
GOING_ON = (0, FAILED, NONE_SELECTED)  # otherwise interrupted, or not understood: other parts would be no better
# A pytest that is interrupted has this long to take down what it has set up.
GRACE_S = 20.0


def dealt(items: Sequence[Any], waiting: Sequence[Any], processes: int) -> list[Any]:
    """Return both in such an order that ``WAITING`` processes begin with those that wait; files stay whole.

    Each process begins with a part of its own, as large as the others'.
    """
    if processes < WAITING:
        return [*waiting, *items]
    files = list(dict.fromkeys(item.path for item in waiting))
    share = (len(items) + len(waiting)) // processes
    order = list(items)
    for number in range(WAITING):
        mine = [item for item in waiting if files.index(item.path) % WAITING == number]
        order[number * share : number * share] = mine
    return order


@functools.cache
def is_taken(path: Path) -> bool:
    """Whether another lane has begun this file; otherwise this one begins it. Without a folder of claims, never."""
    if CLAIMS not in os.environ:
        return False
    try:
        Path(os.environ[CLAIMS], path.name).mkdir()
    except FileExistsError:
        return True
    return False


def write_tally(stats: Mapping[str, Sequence[Any]]) -> None:
    """Write down what a pytest's tests came to, where the environment says."""
    if TALLY in os.environ:
        came_to = {what: [report.nodeid for report in stats.get(what, ())] for what in COUNTED}
        Path(os.environ[TALLY]).write_text(json.dumps(came_to), encoding="utf-8")


class Part:
    """A pytest with a name, which runs inside ``with`` and not afterwards, whatever happens.

    ``tests`` are, once it has ended, those that came to something, by what; one that was repeated as often as it was.
    """

    def __init__(self, name: str, command: Sequence[str], output: IO[bytes] | None = None, claims: str = "") -> None:
        self.name, self.status, self.took_s = name, INTERRUPTED, 0.0
        self.tests: dict[str, list[str]] = {what: [] for what in COUNTED}
        self._command, self._output = command, output
        self._variables = {CLAIMS: claims} if claims else {}

    def __enter__(self) -> Part:
        self._began_s = time.monotonic()
        self._folder = Path(tempfile.mkdtemp(prefix="tally-"))
        environment = {**os.environ, **self._variables, TALLY: str(self._folder / "tally.json")}
        self._process = subprocess.Popen(
            self._command, stdout=self._output, stderr=self._output, env=environment, process_group=0
        )
        return self

    def wait(self) -> int:
        """Wait until it has ended by itself; return its exit status."""
        self.status = self._process.wait()
        return self.status

    def __exit__(self, *exception: object) -> None:
        self._end()
        self.took_s = time.monotonic() - self._began_s
        tally = self._folder / "tally.json"
        if tally.exists():
            self.tests = json.loads(tally.read_text(encoding="utf-8"))
        shutil.rmtree(self._folder)

    def _end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def summary(parts: Sequence[Part]) -> str:
    """Return what all parts came to: counts, and the names of tests that were repeated or failed."""
    lines = [f"{'':10}" + "".join(f"{what:>9}" for what in (*COUNTED, "seconds"))]
    for part in parts:
        counts = "".join(f"{len(part.tests[what]):9}" for what in COUNTED)
        lines.append(f"{part.name:10}{counts}{part.took_s:9.0f}")
    for what in ("rerun", "error", "failed"):
        names = [name for part in parts for name in part.tests[what]]
        lines += [f"{what.upper()} {name} ({names.count(name)})" for name in dict.fromkeys(names)]
    return "\n".join(lines)


def status_of(statuses: Sequence[int]) -> int:
    """Return the exit status of all: the worst; that none was selected only if none was in any."""
    ran = [status for status in statuses if status != NONE_SELECTED]
    return max(ran, key=lambda status: (status not in (0, FAILED), status != 0)) if ran else NONE_SELECTED


def is_isolating() -> bool:
    """Whether a lane can have a network of its own here. Without, what needs Open vSwitch says that it is skipped."""
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "true"]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


def compile_first(root: Path, pytest: Sequence[str], *, units: bool) -> None:
    """Compile the model, and let pytest compile the ``units`` tests once.

    Each process that shares would compile all unit tests, at the same time.
    """
    model = subprocess.Popen([sys.executable, "-m", "experiments.model.native_build"], cwd=root)
    try:
        if units and not any((root / "tests/unit").rglob("*-pytest-*.pyc")):
            command = [*pytest, "--collect-only", "-qq", root / "tests/unit"]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        model.wait()
    finally:
        model.terminate()


def run_together(
    part: Part, besides: Sequence[tuple[Part, IO[bytes]]], first: Callable[[], None] = lambda: None
) -> bool:
    """Run parts at once, and before the first one, ``first``; then print the logs of the others.

    Return whether all went on to their ends.
    """
    try:
        with contextlib.ExitStack() as running:
            for beside, _ in besides:
                running.enter_context(beside)
            first()
            with part:
                part.wait()
            if part.status in GOING_ON:
                for beside, _ in besides:
                    print(f"Waiting for the lane of {beside.name}", flush=True)
                    beside.wait()
    finally:
        for _, log in besides:
            log.seek(0)
            print(log.read().decode(errors="replace"), flush=True)
    return all(beside.status in GOING_ON for beside, _ in besides)


def run_all(root: Path, arguments: Sequence[str]) -> int:
    """Run all tests, or those that pytest's arguments select; print what they came to; return the exit status."""
    pytest = [sys.executable, "-m", "pytest", *arguments]
    lane, urgent = [], []
    if is_isolating():
        subprocess.run([root / "scripts/ovs", "tune"], check=False)
        lane, urgent = [str(root / "scripts/lane")], ["nice", "-n", "-10"]
    tiers = [] if arguments else ["--ignore=tests/unit"]
    # One process more than processors: many tests wait. With the lane of functions, this keeps all processors busy.
    processes = f"--numprocesses={(os.cpu_count() or 1) + 1}"
    others = " and ".join(f"not {one}" for one in (*LANES, COMPUTED))

    def in_lane(name: str, mark: str, *words: str, log: IO[bytes] | None = None, claims: str = "") -> Part:
        return Part(name, [*lane, *words, *pytest, *tiers, "-m", mark], log, claims)

    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(RATE_LANES + 1)]
        shared = Part("shared", [*pytest, processes, "--dist=worksteal", "-m", others])
        functions = in_lane(FUNCTIONS, FUNCTIONS, log=logs[0])
        claims = stack.enter_context(tempfile.TemporaryDirectory())
        rates = [
            in_lane(f"{RATES} {number + 1}", RATES, *urgent, log=logs[number] if number else None, claims=claims)
            for number in range(RATE_LANES)
        ]
        idle = ["chrt", "--idle", "0", *pytest, *([] if arguments else [UNITS])]
        computed = Part(COMPUTED, [*idle, f"--numprocesses={os.cpu_count() or 1}", "-m", COMPUTED], logs[-1])
        alone = in_lane(ALONE, ALONE, *urgent)
        try:
            if run_together(
                shared, [(functions, logs[0])], lambda: compile_first(root, pytest, units=not arguments)
            ) and run_together(rates[0], list(zip([*rates[1:], computed], logs[1:], strict=True))):
                with alone:
                    alone.wait()
        except KeyboardInterrupt:
            print("Interrupted", flush=True)
    parts = [shared, functions, *rates, computed, alone]
    print(summary(parts), flush=True)
    return status_of([part.status for part in parts])


if __name__ == "__main__":
    # As Ctrl-C: what was started ends.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Hundreds of processes import this project: it is compiled once, whatever the environment says.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(run_all(Path(__file__).parents[2], sys.argv[1:]))
