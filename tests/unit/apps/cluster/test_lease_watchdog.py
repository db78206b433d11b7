"""What becomes of a lease when the process that holds it dies, or ends by itself."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.fake_rest_server import FakeRestServer
from support.paths import ROOT

from experiments.machine.process_runner import wait_until

NODE = """
import sys
from apps.cluster.lease_watchdog import LeaseWatchdog
will = LeaseWatchdog((sys.argv[1],), None, None, None)
for line in sys.stdin:
    will.set_lease(int(line) or None)
    print("told", flush=True)
will.close()
"""
REVOKE = "/v3/lease/revoke"


@pytest.fixture
def etcd() -> Iterator[FakeRestServer]:
    with FakeRestServer() as etcd:
        etcd.on("POST", REVOKE, {})
        yield etcd


def revoked(etcd: FakeRestServer) -> list[int]:
    return [one.body["ID"] for one in etcd.asked if one.path == REVOKE]


@pytest.fixture
def node(etcd: FakeRestServer) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", NODE, etcd.url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def tell(node: subprocess.Popen[str], lease_id: int) -> None:
    assert node.stdin is not None
    assert node.stdout is not None
    node.stdin.write(f"{lease_id}\n")
    node.stdin.flush()
    assert node.stdout.readline() == "told\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_the_last_lease_of_a_process_that_dies_is_given_up(
    etcd: FakeRestServer, node: subprocess.Popen[str], number: signal.Signals
) -> None:
    for lease_id in (2**63 - 1, 7):
        tell(node, lease_id)
    node.send_signal(number)
    wait_until(lambda: etcd.asked, "a lease is given up", 60.0)
    assert revoked(etcd) == [7]


def test_a_process_that_has_no_lease_or_ends_by_itself_has_nothing_given_up(
    etcd: FakeRestServer, node: subprocess.Popen[str]
) -> None:
    tell(node, 7)
    tell(node, 0)
    tell(node, 8)
    node.communicate(timeout=60)  # it closes its will, and waits for the process next to it
    assert node.returncode == 0
    assert revoked(etcd) == []
