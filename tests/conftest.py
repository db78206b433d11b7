"""What all tiers share: the fabric tier runs where it can, and says so loudly where it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Shared builders are imported as ``support.x`` (tests/support).
sys.path.insert(0, str(Path(__file__).parent))

from support import lanes

HERE = Path(__file__).parent
FABRIC_FOLDER, WIRE_FOLDER = HERE / "fabric", HERE / "wire"
# Here time is real. A machine that is taken away from them for a moment (a virtual one, by its host) makes them fail:
# what fails is repeated, twice at most; "-rR" tells which.
REAL_TIME = (FABRIC_FOLDER, HERE / "kernel", HERE / "ui", WIRE_FOLDER)
REPEATS = 2
# These wait most of the time, but for those of them that are marked otherwise (support/lanes.py).
IN_LANES = (FABRIC_FOLDER, HERE / "kernel", HERE / "ui")
# Properties are tried on the same examples in every run, and none fails because a machine is slow.
settings.register_profile("tests", derandomize=True, deadline=None)
settings.load_profile("tests")


def _missing_for_fabric() -> str | None:
    if os.geteuid() != 0:
        return "not root"
    if shutil.which("ovs-vsctl") is None or shutil.which("mn") is None:
        return "Open vSwitch or Mininet is not installed"
    command = ["ovs-vsctl", "--timeout=5", "--no-wait", "show"]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        return "Open vSwitch does not run (scripts/ovs start)"
    return None


@pytest.fixture(autouse=True, scope="module")
def forked_controllers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let controllers of experiments begin with everything imported where time is real: a second less for each."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent in REAL_TIME:
            from support.application import spawn

            patch.setattr("experiments.machine.controller_process.ControllerProcess._spawn", spawn)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark what stands in tests/fabric, and skip it where it cannot run; repeat what fails in real time.

    The wire tier, which waits most, and files marked as long come first: they are not left when the others are done.
    """
    # A file at a time: there are twenty times as many tests.
    paths = {item.path for item in items}
    real_time = {path for path in paths if any(path.is_relative_to(folder) for folder in REAL_TIME)}
    computed = {path for path in paths if path.is_relative_to(HERE.parent / lanes.UNITS)}
    for item in items:
        if item.path in real_time:
            item.add_marker(pytest.mark.flaky(reruns=REPEATS, reruns_delay=1))
        if item.path.parent in IN_LANES and not any(map(item.get_closest_marker, lanes.LANES)):
            item.add_marker(lanes.FUNCTIONS)
        if item.path in computed:
            item.add_marker(lanes.COMPUTED)
    fabric = [item for item in items if item.path.parent == FABRIC_FOLDER or item.get_closest_marker("fabric")]
    missing = _missing_for_fabric() if fabric else None
    for item in fabric:
        item.add_marker(pytest.mark.fabric)
        if missing is not None:
            item.add_marker(pytest.mark.skip(reason=f"fabric: {missing}"))
    yield
    is_long = {item: item.get_closest_marker(lanes.LONG) is not None for item in items}
    first = [item for item in items if is_long[item] or item.path.parent == WIRE_FOLDER]
    first.sort(key=lambda item: not is_long[item])
    others = [item for item in items if not is_long[item] and item.path.parent != WIRE_FOLDER]
    items[:] = lanes.dealt(others, first, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Leave out what another lane runs, after taking down what only this test would have used of what stands."""
    if not lanes.is_taken(item.path):
        return None
    item.session._setupstate.teardown_exact(nextitem)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shout if a part of a tier did not run, say why tests were repeated, and write down what the tests came to."""
    lanes.write_tally(terminalreporter.stats)
    for report in terminalreporter.stats.get("rerun", []):
        reason = getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longreprtext)
        terminalreporter.write_line(f"REPEATED {report.nodeid} after: {reason[:2000]}")
    for tier, what in (
        ("fabric", "real Open vSwitch"),
        ("kernel", "Open vSwitch's kernel datapath"),
        ("ui", "the web UI in a browser"),
    ):
        skipped = [report for report in terminalreporter.stats.get("skipped", []) if tier in report.keywords]
        if not skipped:
            continue
        reasons = sorted({report.longrepr[2] for report in skipped})
        terminalreporter.write_sep("!", f"{tier.upper()} TIER SKIPPED", red=True, bold=True)
        terminalreporter.write_line(f"{len(skipped)} tests on {what} did NOT run: {'; '.join(reasons)}", red=True)
        terminalreporter.write_line(
            "Nothing here shows that traffic is really limited. Run as root: make test", red=True
        )
        terminalreporter.write_sep("!", red=True, bold=True)
