"""Databases that connect to the controller, each a real ovsdb-server, and those that only claim to be one."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.ovs import wait_until
from support.ovsdb import Server, needs_ovsdb
from support.wire import WireRun

from apps.cli.support.certificates import create_authority, issue
from apps.ovsdb.ovsdb_client import OvsdbError
from apps.ovsdb.ovsdb_listener import MAX_UNKNOWN_OF_HOST, OvsdbListener
from controller.switch.desired_queues import PortQueues, port_queues
from experiments.machine.controller_process import free_ports

DPID = 0xA1
PORTS = ("p1", "p2")


def queues(limit_bps: int) -> dict[str, PortQueues]:
    return {"p1": port_queues(1, 100_000_000, {10: limit_bps}, False)}


class Listening:
    """A listener for one switch, and how often its database has connected."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self.connected = 0
        self.listener = OvsdbListener(f"ptcp:{self.port}:127.0.0.1", None, self._count, timeout_s=2.0)
        self.listener.dpids = frozenset({DPID})

    def _count(self) -> None:
        self.connected += 1

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10.0)


@pytest.fixture
def at() -> Iterator[Listening]:
    at = Listening()
    yield at
    at.listener.close()


@contextlib.contextmanager
def database(folder: Path, at: Listening) -> Iterator[Server]:
    folder.mkdir(exist_ok=True)
    server = Server(folder, DPID, PORTS, f"--remote=tcp:127.0.0.1:{at.port}")
    try:
        yield server
    finally:
        server.stop()


def answer(sock: socket.socket, reply: Callable[[dict[str, object]], object]) -> None:
    """Be a database that answers whatever it is asked."""
    decoder = json.JSONDecoder()
    with contextlib.suppress(OSError):
        while data := sock.recv(1 << 16).decode():
            request, _ = decoder.raw_decode(data)
            result = {"id": request["id"], "error": None, "result": reply(request)}
            sock.sendall(json.dumps(result).encode())


def bridge(dpid: int) -> list[object]:
    return [{"rows": [{"datapath_id": f"{dpid:016x}"}]}]


@needs_ovsdb
def test_a_database_that_connects_is_written_and_comes_back(tmp_path: Path, at: Listening) -> None:
    with pytest.raises(OvsdbError, match=f"no database with a bridge of dpid {DPID:016x} has connected"):
        at.listener.apply(DPID, queues(40_000_000))
    with database(tmp_path, at) as server:
        wait_until(lambda: at.connected == 1, "connected")
        assert at.listener.apply(DPID, queues(40_000_000)) == []
        assert "40000000" in server.vsctl("list", "Queue")
        assert at.listener.apply(DPID, queues(40_000_000)) == []
        assert at.listener.writes == 1
        time.sleep(12.0)  # for longer than it waits for the answer to its probe
        assert at.connected == 1
        server.stop()
        with pytest.raises(OvsdbError, match=r"has connected|closed|reset"):
            at.listener.apply(DPID, queues(30_000_000))
        server.start()
        server.be_vswitchd()
        wait_until(lambda: at.connected == 2, "back", 30.0)
        assert at.listener.apply(DPID, queues(30_000_000)) == []
        assert "30000000" in server.vsctl("list", "Queue")


@needs_ovsdb
def test_who_claims_a_connected_switch_gets_nothing_while_its_database_answers(tmp_path: Path, at: Listening) -> None:
    asked: list[object] = []
    with database(tmp_path, at) as server:
        wait_until(lambda: at.connected == 1, "connected")
        with at.connect() as liar:

            def lie(request: dict[str, object]) -> object:
                asked.append(request["params"])
                return bridge(DPID)

            answer(liar, lie)  # until it is hung up on
        assert len(asked) == 1
        assert at.connected == 1
        server.process.send_signal(signal.SIGSTOP)
        try:
            with at.connect() as other:
                threading.Thread(target=answer, args=(other, lambda request: bridge(DPID)), daemon=True).start()
                wait_until(lambda: at.connected == 2, "taken over", 20.0)
        finally:
            server.process.send_signal(signal.SIGCONT)


def test_strangers_are_few_and_make_no_work(at: Listening) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(at.connect()) for _ in range(MAX_UNKNOWN_OF_HOST + 4)]
        for sock in silent[:4]:
            while sock.recv(1 << 16):  # the question for its bridges, and then the end
                pass
        asked = threading.Event()
        threading.Thread(
            target=answer, args=(silent[-1], lambda request: asked.set() or bridge(DPID)), daemon=True
        ).start()
        assert asked.wait(10.0)
        wait_until(lambda: at.connected == 1, "known")


@pytest.mark.parametrize(
    "data",
    [
        b'{"method":"update","id":null,"params":[]}' * 101,
        b'{"id":1,"error":null,"result":["' + b"x" * (1 << 17),
        b'{"id":1,"error":null,"result":[{"rows":[{"datapath_id":"zz"}]}]}',
        b'{"id":1,"error":null,"result":[]}',
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_nonsense_ends_a_connection_and_the_listener_goes_on(at: Listening, data: bytes) -> None:
    with at.connect() as sock:
        sock.sendall(data)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(1 << 16):
                pass
    with at.connect() as sock:
        threading.Thread(target=answer, args=(sock, lambda request: bridge(DPID)), daemon=True).start()
        wait_until(lambda: at.connected == 1, "known")


@needs_ovsdb
def test_the_application_writes_queues_over_pssl_and_follows_a_reload(tmp_path: Path) -> None:
    create_authority(tmp_path, "test CA", 30)
    issue(tmp_path, "controller", 30, ["127.0.0.1"])
    issue(tmp_path, "switch", 30, None)
    ports = free_ports(2)
    files = {"ca": "ca.pem", "certificate": "controller.pem", "key": "controller.key"}
    options = [f"--remote=ssl:127.0.0.1:{port}" for port in ports]
    options += [f"--private-key={tmp_path / 'switch.key'}", f"--certificate={tmp_path / 'switch.pem'}"]
    server = Server(tmp_path, 1, ["eth1", "eth2"], *options, f"--ca-cert={tmp_path / 'ca.pem'}")
    try:
        address = [f"pssl:{port}:127.0.0.1" for port in ports]
        with WireRun(tmp_path, {1: [1, 2]}, switch={"ovsdb": address[0]}, well=False, ovsdb_tls=files) as run:
            run.app.wait_for(lambda: "max-rate" in server.vsctl("list", "Queue"), "queues", 30.0)
            config = run.app.config()
            config["switches"]["s1"]["ovsdb"] = address[1]
            run.app.configure(config)
            assert run.app.request("POST", "/v1/reload")[0] == 200
            run.app.patch("/v1/vns/10/s1/1", receive_limit_bps=123_000_000)
            run.app.wait_for(lambda: "123000000" in server.vsctl("list", "Queue"), "written at the other address", 30.0)
            run.app.patch("/v1/vns/10/s1/1", receive_limit_bps=124_000_000)  # a round more
            run.app.wait_for(lambda: "124000000" in server.vsctl("list", "Queue"), "written again", 30.0)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", ports[0]), timeout=5.0)
            (tmp_path / "controller.key").write_bytes((tmp_path / "switch.key").read_bytes())
            status, _, problem = run.app.request("POST", "/v1/reload")
            assert (status, problem["errors"][0]["field"]) == (422, "ovsdb_tls.certificate")
            assert "Traceback" not in run.app.log()
    finally:
        server.stop()
