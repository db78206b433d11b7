"""The controller as a process: what is said when it does not come up, and that it is ended."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading

# Not "import http.server": eventlet leaves its own copy of the module as an attribute of the package, and that copy
# waits on greenlets' locks.
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from apps.cli.support.rest_client import RequestError
from experiments.machine.controller_process import FIRST_PORT, ControllerProcess, free_ports
from experiments.machine.process_runner import ControllerError

BROKEN_OFF = b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"switches"'


def test_a_refused_configuration_is_told_with_the_controllers_own_words(tmp_path, monkeypatch) -> None:
    config = {"rest": {"listen": "127.0.0.1:1"}, "vlans": {}, "switches": {}, "nonsense": 1}
    monkeypatch.chdir(tmp_path)  # the process runs in another folder
    with ControllerProcess(config, Path()) as controller, pytest.raises(ControllerError, match="nonsense"):
        controller.wait_ready({"s1"}, timeout_s=30)
    assert (tmp_path / "controller.yaml").exists()


class Health(BaseHTTPRequestHandler):
    states: dict[str, str] = {}  # noqa: RUF012 - set by the test

    def do_GET(self) -> None:
        body = json.dumps({"switches": self.states}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def fake(tmp_path):
    """A process that just lives, and a REST server that answers for it."""
    [port] = free_ports(1)
    server = HTTPServer(("127.0.0.1", port), Health)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    process = ControllerProcess({"rest": {"listen": f"127.0.0.1:{port}"}}, tmp_path)
    process._command = ["sleep", "60"]
    yield process
    server.shutdown()
    thread.join()
    server.server_close()


def test_ports_are_given_once_and_none_that_somebody_listens_on_or_may_connect_from(tmp_path, monkeypatch) -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    first, second = free_ports(5), free_ports(5)
    assert len({*first, *second}) == 10
    assert all(FIRST_PORT <= port < lowest for port in first + second)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    last = tmp_path / f"dets-ports-{os.getuid()}"
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", second[0]))
        last.write_text(str(second[0] - 1))
        assert second[0] not in free_ports(3)
    last.write_text(str(lowest - 1))
    assert FIRST_PORT <= free_ports(1)[0] < FIRST_PORT + 100


def test_readiness_is_every_switch_ready(fake, monkeypatch) -> None:
    monkeypatch.setattr(Health, "states", {"s1": "ready", "s2": "connecting"})
    with fake:
        fake.wait_ready({"s1"}, timeout_s=5)
        with pytest.raises(ControllerError, match=r"s2: connecting, s3: unknown"):
            fake.wait_ready({"s1", "s2", "s3"}, timeout_s=0.3)
        running = fake._process
    assert running.returncode is not None


@pytest.mark.parametrize("said", [b"", b"nonsense\r\n\r\n", BROKEN_OFF, BROKEN_OFF.replace(b"200", b"503")])
def test_an_answer_that_breaks_off_is_none(tmp_path, said: bytes) -> None:
    """A controller that is killed may end within an answer; who waits for another one goes on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = ControllerProcess({"rest": {"listen": f"127.0.0.1:{listener.getsockname()[1]}"}}, tmp_path)

        def answer() -> None:
            for _ in range(3):
                with listener.accept()[0] as connection:
                    connection.recv(1 << 16)
                    connection.sendall(said)

        server = threading.Thread(target=answer)
        server.start()
        assert process.health() == {}
        with pytest.raises(RequestError):
            process.get("/v1/loop")
        with pytest.raises(RequestError):
            process.patch("/v1/vns/10/s1/1", send_limit_bps=1)
        server.join()
