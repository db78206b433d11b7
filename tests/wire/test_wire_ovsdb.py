"""The queue writer against a real ovsdb-server of its own (no root, no ovs-vswitchd) and against bad servers."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.ovsdb import Server, needs_ovsdb
from support.paths import ROOT

from apps.cli.support.certificates import create_authority, issue
from apps.ovsdb import ovsdb_client
from apps.ovsdb.ovsdb_client import OvsdbError, OvsdbQueueWriter
from apps.runtime.tls import renewable_client
from controller.errors import InvalidValueError
from controller.switch.desired_queues import PortQueues, port_queues

DPID = 0xA1
PORTS = ("p1", "p2")


def queues(**limits_bps: int) -> dict[str, PortQueues]:
    """Port pN with a queue of VLAN 10 at each of these limits."""
    return {name: port_queues(int(name[1:]), 100_000_000, {10: limit}, False) for name, limit in limits_bps.items()}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, DPID, PORTS)
    yield server
    server.stop()


@needs_ovsdb
def test_only_rows_that_differ_are_written(server: Server) -> None:
    writer = OvsdbQueueWriter(server.address)
    assert writer.apply(DPID, queues(p1=40_000_000, p2=50_000_000)) == []
    first = server.versions()
    assert len(first) == 3 + 2 + 4  # Port (with the bridge's own), QoS, Queue
    writer.apply(DPID, queues(p1=40_000_000, p2=50_000_000))
    assert server.versions() == first
    writer.apply(DPID, queues(p1=30_000_000, p2=50_000_000))
    second = server.versions()
    assert set(second) == set(first)
    assert len([uuid for uuid in first if first[uuid] != second[uuid]]) == 1
    found = server.vsctl(
        "--bare", "--columns=external_ids,other_config", "find", "Queue", "other_config:max-rate=30000000"
    )
    assert found.split() == [
        *(f"dets={DPID:016x}", "dets-port=1", "dets-vlan=10"),
        *("burst=900000", "max-rate=30000000", "min-rate=30000000"),
    ]


@needs_ovsdb
def test_remove_leaves_only_what_others_have(server: Server) -> None:
    server.vsctl("set", "port", "p2", "qos=@q", "--", "--id=@q", "create", "QoS", "type=linux-htb")
    foreign = server.vsctl("get", "port", "p2", "qos")
    writer = OvsdbQueueWriter(server.address)
    problems = writer.apply(DPID, queues(p1=40_000_000, p2=50_000_000, p3=60_000_000))
    assert [problem.split(":")[0] for problem in problems] == ["p3", "p2"]
    assert writer.remove(DPID) == []
    assert server.vsctl("get", "port", "p2", "qos") == foreign
    assert server.vsctl("--bare", "--columns=_uuid", "list", "QoS") == foreign
    assert server.vsctl("list", "Queue") == ""


@needs_ovsdb
def test_a_server_that_comes_back_is_used_again(server: Server) -> None:
    writer = OvsdbQueueWriter(server.address)
    writer.apply(DPID, queues(p1=40_000_000))
    server.stop()
    with pytest.raises(OvsdbError, match=r"refused|No such file"):
        writer.apply(DPID, queues(p1=30_000_000))
    server.start()
    with pytest.raises(OvsdbError, match="no bridge in this database"):
        writer.apply(DPID, queues(p1=30_000_000))
    assert "40000000" in server.vsctl("list", "Queue")
    server.be_vswitchd()
    assert writer.apply(DPID, queues(p1=30_000_000)) == []
    assert "30000000" in server.vsctl("list", "Queue")


@needs_ovsdb
def test_what_the_database_refuses_is_an_error_and_changes_nothing(server: Server) -> None:
    too_many = {"p1": port_queues(1, 100_000_000, {2**32: 1_000_000}, False)}  # Queue ids are 32-bit
    with pytest.raises(OvsdbError, match="constraint violation"):
        OvsdbQueueWriter(server.address).apply(DPID, too_many)
    assert server.vsctl("list", "QoS") == ""


@needs_ovsdb
def test_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    create_authority(tmp_path, "test CA", 2)
    issue(tmp_path, "server", 2, ["other.name"])
    issue(tmp_path, "client", 2, None)
    ca, certificate, key = (str(tmp_path / file) for file in ("ca.pem", "client.pem", "client.key"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    files = [f"--private-key={tmp_path / 'server.key'}", f"--certificate={tmp_path / 'server.pem'}", f"--ca-cert={ca}"]
    server = Server(tmp_path, DPID, PORTS, f"--remote=pssl:{port}:127.0.0.1", *files)
    try:
        tls = renewable_client("ovsdb_tls", ca, certificate, key, check_hostname=False)
        assert OvsdbQueueWriter(f"ssl:127.0.0.1:{port}", tls=tls).apply(DPID, queues(p1=40_000_000)) == []
        assert "40000000" in server.vsctl("list", "Queue")
        with pytest.raises(OvsdbError, match="certificate verify failed"):
            OvsdbQueueWriter(f"ssl:127.0.0.1:{port}").apply(DPID, {})
    finally:
        server.stop()


# -- servers that misbehave

EMPTY = {"id": 1, "error": None, "result": [{"rows": []}] * 6}
ODD_BRIDGE = {"_uuid": ["uuid", "b"], "name": "b", "datapath_id": f"{DPID:016x}", "ports": ["set", [["uuid", ["p"]]]]}
ODD_ROWS = json.dumps(EMPTY | {"result": [{"rows": []}, {"rows": [ODD_BRIDGE]}, *[{"rows": []}] * 4]}).encode()


@contextlib.contextmanager
def fake_server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve one connection in a thread and yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"tcp:127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join(timeout=20)


def test_probes_and_pieces_of_messages_are_taken_in_stride() -> None:
    heard = []

    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b'{"method":"echo","params":["a b"],"id":"echo"}{"method":"update","params":[],"id":null}')
        heard.append(json.loads(connection.recv(1 << 16)))
        text = json.dumps(EMPTY, indent=1).encode() + b"\n"
        for start in range(0, len(text), 7):
            connection.sendall(text[start : start + 7])

    with fake_server(serve) as address:
        assert OvsdbQueueWriter(address).apply(DPID, {}) == []
    assert heard == [{"result": ["a b"], "error": None, "id": "echo"}]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"", "the server closed the connection"),
        (b"[1]", "message: expected a JSON object"),
        (b"{a}", "message: is not JSON"),
        (b"{\xff}", "message: is not JSON"),
        (b'{"id":1,"result":null,"error":"unknown database"}', "transact: unknown database"),
        (b'{"id":1,"result":[],"error":null}', "select results: expected rows of Open_vSwitch, Bridge"),
        (json.dumps({"id": 1, "result": None, "error": "e" * 50_000}).encode(), "transact: eee"),
        (b'{"method":"update","id":null,"params":[]}' * 101, "message: more than 100 that nobody has asked for"),
        (b'{"id":1,"result":%s}' % (b"[" * 5000 + b"]" * 5000), "answers in a form that is not OVSDB's: Recursion"),
        (b'{"id":1,"result":[%s1]}' % (b"[]," * 500_000), "message: has more than 500000 lists and objects"),
        (ODD_ROWS, "answers in a form that is not OVSDB's: TypeError"),
    ],
)
def test_a_bad_answer_is_a_short_error_that_names_the_address(reply: bytes, reason: str) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(reply)

    with fake_server(serve) as address, pytest.raises(OvsdbError) as caught:
        OvsdbQueueWriter(address).apply(DPID, {})
    assert str(caught.value).startswith(f"OVSDB {address}: {reason}")
    assert len(str(caught.value)) < 300


def test_whoever_sends_without_an_end_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = []

    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b'{"id":1,"error":null,"result":["' + b"x" * 2_000_000)

    monkeypatch.setattr(ovsdb_client, "_let_others_run", lambda: turns.append(0))
    with fake_server(serve) as address, pytest.raises(OvsdbError, match="closed"):
        OvsdbQueueWriter(address).apply(DPID, {})
    assert len(turns) >= 2_000_000 // ovsdb_client._CHUNK_BYTES


def test_an_answer_that_never_ends_is_given_up_and_never_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b'{"id":1,"error":null,"result":["}')
        while True:
            connection.sendall(b'{}\\"' * 20_000)

    monkeypatch.setattr(json, "loads", lambda text: pytest.fail("decoded"))
    with fake_server(serve) as address, pytest.raises(OvsdbError, match="is longer than"):
        OvsdbQueueWriter(address).apply(DPID, {})


def test_rows_that_others_keep_changing_are_given_up_in_the_end() -> None:
    tables = [[], [], [], [], [], [{"_uuid": ["uuid", "u"], "other_config": ["map", []]}]]
    tables[5][0]["external_ids"] = ["map", [["dets", "x"]]]
    transactions = []

    def serve(connection: socket.socket) -> None:
        while data := connection.recv(1 << 16):
            request = json.loads(data)
            transactions.append([operation["op"] for operation in request["params"][1:]])
            is_read = transactions[-1][0] == "select"
            result = [{"rows": rows} for rows in tables] if is_read else [{"error": "timed out"}, None]
            connection.sendall(json.dumps({"id": request["id"], "error": None, "result": result}).encode())

    with fake_server(serve) as address, pytest.raises(OvsdbError, match="others changed the same rows 5 times"):
        OvsdbQueueWriter(address).apply(DPID, {})
    assert transactions == [["select"] * 6, ["wait", "delete"]] * 5


def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(InvalidValueError, match="not an OVSDB address"):
        OvsdbQueueWriter("db.sock")


def test_a_closed_writer_says_so() -> None:
    writer = OvsdbQueueWriter("unix:/nowhere")
    writer.close()
    with pytest.raises(OvsdbError, match="closed"):
        writer.apply(DPID, {})


UNDER_THE_HUB = """
import warnings
warnings.simplefilter("ignore")
import eventlet
eventlet.monkey_patch()
import socket
from apps.ovsdb.ovsdb_client import OvsdbError, OvsdbQueueWriter

silent = socket.create_server(("127.0.0.1", 0))
ticks = 0

def tick():
    global ticks
    while True:
        eventlet.sleep(0.01)
        ticks += 1

eventlet.spawn(tick)
eventlet.sleep(0)
for address in (f"tcp:127.0.0.1:{silent.getsockname()[1]}", "unix:/nowhere"):
    try:
        OvsdbQueueWriter(address, timeout_s=0.5).apply(1, {})
    except OvsdbError as error:
        print(error.reason, ticks, sep=";")
"""


def test_a_silent_server_does_not_stop_the_hub() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNDER_THE_HUB], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    (waited, ticks), (missing, _) = (line.split(";") for line in done.stdout.splitlines())
    assert waited == "no answer within 0.5 s"
    assert int(ticks) >= 5  # none at all if the wait were not the hub's
    assert missing == "No such file or directory"
