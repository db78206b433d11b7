"""What becomes of a lease when the process that holds it dies, or ends by itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Empty, Queue

import pytest
from support.paths import ROOT

NODE = """
import sys
from apps.cluster.lease_watchdog import LeaseWatchdog
will = LeaseWatchdog((sys.argv[1],), None, None, None)
for line in sys.stdin:
    will.set_lease(int(line) or None)
    print("told", flush=True)
will.close()
"""


class Etcd:
    """Takes requests to revoke leases, and keeps their ids."""

    def __init__(self) -> None:
        self.revoked: Queue[int] = Queue()
        revoked = self.revoked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")
                if self.path == "/v3/lease/revoke":
                    revoked.put(body["ID"])

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def etcd() -> Iterator[Etcd]:
    etcd = Etcd()
    yield etcd
    etcd.close()


@pytest.fixture
def node(etcd: Etcd) -> Iterator[subprocess.Popen[str]]:
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
    etcd: Etcd, node: subprocess.Popen[str], number: signal.Signals
) -> None:
    for lease_id in (2**63 - 1, 7):
        tell(node, lease_id)
    node.send_signal(number)
    assert etcd.revoked.get(timeout=60) == 7


def test_a_process_that_has_no_lease_or_ends_by_itself_has_nothing_given_up(
    etcd: Etcd, node: subprocess.Popen[str]
) -> None:
    tell(node, 7)
    tell(node, 0)
    tell(node, 8)
    node.communicate(timeout=60)  # it closes its will, and waits for the process next to it
    assert node.returncode == 0
    with pytest.raises(Empty):
        etcd.revoked.get_nowait()
