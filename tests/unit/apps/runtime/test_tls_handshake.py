"""TLS handshakes: of many peers that go on at the same moment one step is done at a time, at both listeners."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import eventlet
import pytest
import support.framework  # noqa: F401
from eventlet.green import ssl as green_ssl
from eventlet.greenio import GreenSocket
from eventlet.semaphore import Semaphore

from apps.cli.support.certificates import create_authority, issue
from apps.rest.http.server import serve
from apps.runtime import ryu_adapter
from apps.runtime.connection.connection_limits import ConnectionLimits
from apps.runtime.tls import RenewableContext
from apps.runtime.tls_handshake import do_handshake

PEERS = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pki")
    create_authority(made, "test CA", 30)
    issue(made, "controller", 30, ["127.0.0.1"])
    return made


@pytest.fixture
def context(folder: Path) -> Any:
    """A context of the hub, as there is in the controller's process."""
    made = green_ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "controller.pem", folder / "controller.key")
    return made


class Peer:
    """The client's end of a connection, which goes on with its handshake when it is told to."""

    def __init__(self, folder: Path, end: socket.socket) -> None:
        self.end, self._in, self._out = end, ssl.MemoryBIO(), ssl.MemoryBIO()
        trusting = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        self._tls = trusting.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")
        end.setblocking(False)

    def go_on(self) -> bool:
        """Take what has come and say what follows; return whether anything had come."""
        try:
            self._in.write(said := self.end.recv(65536))
        except BlockingIOError:
            said = b""
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self.end.send(self._out.read())
        return bool(said)


@contextmanager
def peers(folder: Path, serve_one: Callable[[Any], Any]) -> Iterator[tuple[list[Peer], list[Any]]]:
    """Let PEERS begin their handshakes at once; ``serve_one`` serves each end in a greenlet of its own."""
    pairs = [socket.socketpair() for _ in range(PEERS)]
    clients = [Peer(folder, client) for client, _ in pairs]
    servers = [eventlet.spawn(serve_one, GreenSocket(server)) for _, server in pairs]
    try:
        for client in clients:
            client.go_on()
        yield clients, servers
    finally:
        for client in clients:
            client.end.close()


def test_one_step_is_done_in_a_turn(folder: Path, context: Any) -> None:
    turns = Semaphore(0)

    def serve_one(sock: Any) -> bytes:
        with context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False) as connection:
            do_handshake(connection, 10.0, turns.acquire)
            return bytes(connection.recv(1))

    with peers(folder, serve_one) as (clients, servers):
        answered = 0
        for turn in range(PEERS):
            eventlet.sleep(0.01)
            answered += sum(client.go_on() for client in clients)
            assert answered == turn, "so many turns have been given"
            turns.release()
        for _ in range(PEERS):
            eventlet.sleep(0.01)
            for client in clients:
                client.go_on()
            turns.release()
        for client in clients:
            client.end.shutdown(socket.SHUT_WR)
        ended = [server.wait() for server in servers]
    assert ended == [b""] * PEERS


def test_who_says_nothing_needs_no_turn_and_is_waited_for_no_longer_than_the_limit(context: Any) -> None:
    ours, theirs = socket.socketpair()
    connection = context.wrap_socket(GreenSocket(ours), server_side=True, do_handshake_on_connect=False)
    with theirs, connection, pytest.raises(TimeoutError):
        do_handshake(connection, 0.05, lambda: pytest.fail("a turn"))


def test_rest_waits_for_a_turn_and_logs_few_of_those_that_fail(
    folder: Path, context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    turns: list[None] = []
    caplog.set_level(logging.INFO)
    server = serve(
        lambda _environ, _start: [],
        "127.0.0.1",
        0,
        RenewableContext("rest", {}, lambda: context),
        wait=lambda: turns.append(None),
    )
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as end:
            peer = Peer(folder, end)
            for _ in range(3):
                peer.go_on()
                eventlet.sleep(0.01)
        assert len(turns) == 2, "the beginning, and the end"
        for _ in range(PEERS):
            with socket.create_connection(("127.0.0.1", server.port)) as end:
                end.send(b"not TLS at all")
                eventlet.sleep(0.01)
    finally:
        server.stop()
    assert [record.getMessage()[:24] for record in caplog.records] == ["REST: no connection with"]


def test_openflow_waits_for_a_turn(folder: Path, context: Any) -> None:
    turns: list[None] = []
    limits = ConnectionLimits[Any](10, 10, 10)
    server = ryu_adapter._Server(limits, context, lambda: turns.append(None), ("127.0.0.1", 0), None)

    def serve_one(sock: Any) -> Any:
        visit = ryu_adapter._IncomingConnection(sock, ("here", 1))
        assert server._encrypted(visit, context) is not None
        return visit.plain

    with peers(folder, serve_one) as (clients, servers):
        for _ in range(3):
            eventlet.sleep(0.01)
            for client in clients:
                client.go_on()
        for one in servers:
            one.wait().close()
    server.server.close()
    assert len(turns) == 2 * PEERS
