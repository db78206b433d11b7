"""The parts that all tests run in: their order, their sum, and that nothing of them is left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from support import lanes
from support.lanes import FAILED, INTERRUPTED, NONE_SELECTED, Part, dealt, run_together, status_of, summary
from support.ovs import wait_until
from support.paths import ROOT


class Item(NamedTuple):
    path: str
    number: int = 0


def test_two_of_the_processes_begin_with_what_waits_and_files_stay_whole() -> None:
    waiting = [Item(path, number) for path in "abc" for number in range(2)]
    items = [Item("z", number) for number in range(14)]
    order = dealt(items, waiting, 4)
    assert sorted(order) == sorted(items + waiting)
    assert [item.path for item in order[:5]] == [*"aacc", "z"]
    assert [item.path for item in order[5:8]] == [*"bb", "z"]
    assert [item.path for item in dealt(items, [], 4)] == ["z"] * 14
    assert dealt(items, waiting, 1) == waiting + items


def test_lanes_run_each_file_once(tmp_path: Path) -> None:
    """Each lane takes the next file that no other has begun, as a whole."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (tmp_path / "support").symlink_to(ROOT / "tests/support")
    log, claims = tmp_path / "log", tmp_path / "claims"
    claims.mkdir()
    body = f"import os, time\nLOG = {str(log)!r}\n"
    for name in "ab":
        body += (
            f"def test_{name}():\n    time.sleep(0.1)\n    open(LOG, 'a').write(f'{{__name__}} {{os.getpid()}}\\n')\n"
        )
    for name in "wxyz":  # two in each folder: what a folder needs is taken down before the next one's
        folder = tmp_path / ("one" if name in "wx" else "two")
        folder.mkdir(exist_ok=True)
        (folder / f"test_{name}.py").write_text(body)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", tmp_path]
    parts = [Part(name, [*map(str, command), str(tmp_path)], claims=str(claims)) for name in "12"]
    with parts[0], parts[1]:
        assert [part.wait() for part in parts] == [0, 0]
    ran = [line.split() for line in log.read_text().splitlines()]
    assert sorted(name for name, _ in ran) == sorted(f"test_{name}" for name in "wxyz" * 2)
    assert len({(name, pid) for name, pid in ran}) == 4


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([0, 0, NONE_SELECTED], 0),
        ([0, FAILED, 0], FAILED),
        ([FAILED, INTERRUPTED, 0], INTERRUPTED),
        ([NONE_SELECTED] * 3, NONE_SELECTED),
    ],
)
def test_the_worst_status_is_that_of_all(statuses: list[int], expected: int) -> None:
    assert status_of(statuses) == expected


def test_each_part_tells_what_its_tests_came_to() -> None:
    write = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); from support.lanes import write_tally\n"
    write += "class R: nodeid = 'a.py::b'\nwrite_tally({'rerun': [R, R], 'passed': [R], '': [R]})"
    parts = [Part("one", [sys.executable, "-c", write]), Part("two", ["false"])]
    for part in parts:
        with part:
            part.wait()
    assert [part.status for part in parts] == [0, 1]
    table, repeated = summary(parts).splitlines()[:-1], summary(parts).splitlines()[-1]
    assert [line.split()[:-1] for line in table[1:]] == [["one", *"10002"], ["two", *"00000"]]
    assert repeated == "RERUN a.py::b (2)"


@pytest.mark.parametrize("ignored", [False, True])
def test_a_part_that_is_left_has_ended_with_its_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ignored: bool
) -> None:
    monkeypatch.setattr(lanes, "GRACE_S", 1.0)
    script = f"{'trap : INT; ' if ignored else ''}sleep 60 & echo $! >{tmp_path}/pid; while :; do sleep 60; done"
    pid = tmp_path / "pid"
    with Part("part", ["sh", "-c", script]) as part:
        wait_until(lambda: pid.exists() and pid.read_text(), "started")
    assert part.status == INTERRUPTED
    wait_until(lambda: state(int(pid.read_text())) in ("", "Z"), "ended")


@pytest.mark.parametrize(("status", "goes_on"), [(FAILED, True), (4, False)])
def test_what_runs_beside_is_shown_when_both_have_ended(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], status: int, goes_on: bool
) -> None:
    """If the one was not understood, the other is ended."""
    monkeypatch.setattr(lanes, "GRACE_S", 1.0)
    with tempfile.TemporaryFile() as log:
        beside = Part("beside", ["sh", "-c", f"echo beside; {'' if goes_on else 'sleep 60'}"], log)
        part = Part("part", ["sh", "-c", f"sleep 0.3; echo part; exit {status}"])
        assert run_together(part, [(beside, log)], lambda: print("first", flush=True)) == goes_on
    said = capfd.readouterr().out.split("\n")
    assert [line for line in said if line in ("first", "part", "beside")] == ["first", "part", "beside"]
    assert [part.status, beside.status] == [status, 0 if goes_on else INTERRUPTED]


def state(pid: int) -> str:
    """The letter of a process's state in /proc, "" if it has none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.skipif(not lanes.is_isolating(), reason="not root, or no namespaces: no lane has a network of its own")
def test_a_lane_has_processes_a_network_and_folders_of_its_own(tmp_path: Path) -> None:
    script = f"ls /sys/class/net >{tmp_path}/net; readlink /proc/self/ns/pid; (sleep 60 &) ; touch /run/here; exit 3"
    done = subprocess.run([ROOT / "scripts/lane", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert (tmp_path / "net").read_text() == "lo\n"
    assert done.stdout.strip() != os.readlink("/proc/self/ns/pid")
    assert not Path("/run/here").exists()
