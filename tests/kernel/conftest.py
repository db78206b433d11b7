"""The kernel tier: Open vSwitch's kernel datapath, here where this kernel has it, else inside user-mode-linux.

Inside means: once all tests are known it is booted, and starts a pytest there with these, which runs beside the tests
that come before them here. Its reports are written down one by one, and told here as if the tests had run here.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.machine.kernel_datapath import UserModeLinux, is_native, why_not_emulated
from experiments.ovs.ovs_vsctl import OvsError, vsctl

HERE = Path(__file__).parent
REPORTS = "DETS_KERNEL_REPORTS"  # the environment variable that names the file of reports, inside
RUN_TIMEOUT_S = 1200.0  # seen: 196 s on two processors that seven processes wanted
# What is tested of user-mode-linux from outside is of no use where it is not needed.
collect_ignore = ["host"] if is_native() else []


def _why_not() -> str | None:
    if os.geteuid() != 0:
        return "not root"
    if not is_native():
        return why_not_emulated()
    try:
        vsctl("get", "Open_vSwitch", ".", "_uuid")
    except OvsError as error:
        return f"needs a running Open vSwitch: {error}"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items = [item for item in items if item.path.is_relative_to(HERE)]
    reason = _why_not() if items else None
    for item in items:
        item.add_marker(pytest.mark.kernel)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"kernel: {reason}"))


def pytest_configure(config: pytest.Config) -> None:
    if REPORTS in os.environ:
        config.pluginmanager.register(_Writer(config, Path(os.environ[REPORTS])))


class _Writer:
    """Inside: writes every report down."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with self._path.open("a") as file:
            file.write(json.dumps(data, default=str) + "\n")


class _Reader:
    """Outside: boots the machine for some tests, and reads their reports as they come."""

    def __init__(self, config: pytest.Config, items: list[pytest.Item], folder: Path) -> None:
        self._config = config
        self._log = folder / "pytest.log"
        reports = folder / "reports.jsonl"
        reports.touch()
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *(item.nodeid for item in items)]
        with self._log.open("wb") as log:
            self._machine = UserModeLinux(command, folder, {REPORTS: str(reports)}, log.fileno())
            self._machine.__enter__()
        self._deadline_s = time.monotonic() + RUN_TIMEOUT_S
        self._file = reports.open()
        self._rest = ""

    def reports_of(self, item: pytest.Item) -> Iterator[pytest.TestReport]:
        """Return the reports of one test, up to its last teardown; one that reports the machine's end instead.

        A test that fails is repeated inside: each time has a teardown.
        """
        repeated = False
        while True:
            ended = self._machine.ended or time.monotonic() > self._deadline_s
            line = self._next_line()
            if line is not None:
                report = self._config.hook.pytest_report_from_serializable(config=self._config, data=json.loads(line))
                if report.nodeid == item.nodeid:
                    yield report
                    repeated = repeated or report.outcome == "rerun"
                    if report.when == "teardown":
                        if not repeated:
                            return
                        repeated = False
            elif ended:
                yield self._lost(item)
                return
            else:
                time.sleep(0.05)

    def _next_line(self) -> str | None:
        self._rest += self._file.readline()
        if not self._rest.endswith("\n"):
            return None
        line, self._rest = self._rest, ""
        return line

    def _lost(self, item: pytest.Item) -> pytest.TestReport:
        why = "has ended" if self._machine.ended else f"is not done after {RUN_TIMEOUT_S:g} s"
        console = self._machine.folder / "console.log"
        said = "\n".join(path.read_text(errors="replace")[-3000:] for path in (self._log, console))
        text = f"user-mode-linux {why} without this test's report\n{said}"
        return pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call", start=0, stop=0)

    def close(self) -> None:
        """Take the machine down."""
        self._file.close()
        self._machine.stop()


def _is_for_inside(item: pytest.Item) -> bool:
    """Whether a test is to run inside, and this is not inside: those of tests/kernel itself, not of folders below."""
    if item.path.parent != HERE or item.get_closest_marker("skip") is not None:
        return False
    return REPORTS not in os.environ and not is_native()


_READER = pytest.StashKey[_Reader]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Boot the machine if there are tests for it, and let them run inside."""
    config, items = session.config, [item for item in session.items if _is_for_inside(item)]
    if items and not config.option.collectonly:
        folder = config._tmp_path_factory.mktemp("kernel")  # type: ignore[attr-defined]
        config.stash[_READER] = _Reader(config, items, folder)
        config.add_cleanup(config.stash[_READER].close)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Let the test run inside, and tell its reports; natively, inside, and when it is skipped: as any test."""
    if not _is_for_inside(item):
        return None
    config = item.config
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in config.stash[_READER].reports_of(item):
        report.keywords["kernel"] = 1
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    # What an earlier test kept set up because this one stands in the same folder is taken down for the next one.
    item.session._setupstate.teardown_exact(nextitem)
    return True
