"""What REST clients have sent is looked at in turns, however many of them go on at the same moment."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import Any

import eventlet
import pytest
from eventlet.semaphore import Semaphore

from apps.rest.http.server import serve

CLIENTS = 5
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def application(_environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    start("204 No Content", [])
    return []


def answers(clients: list[socket.socket]) -> int:
    """Return how many answers have come."""
    eventlet.sleep(0.01)
    found = b""
    for client in clients:
        with suppress(BlockingIOError):
            found += client.recv(65536)
    return found.count(b"HTTP/1.1 ")


@pytest.mark.parametrize("said", [REQUEST, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 12_000], ids=["whole", "too long"])
def test_one_is_looked_at_in_a_turn(said: bytes) -> None:
    turns = Semaphore(0)
    server = serve(application, "127.0.0.1", 0, wait=turns.acquire)
    with ExitStack() as open_ones:
        clients = [
            open_ones.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(CLIENTS)
        ]
        for client in clients:
            client.sendall(said)
            client.setblocking(False)
        answered = 0
        for turn in range(2 * CLIENTS):  # what is too long is read twice
            answered += answers(clients)
            assert answered <= turn, "so many turns have been given"
            turns.release()
        assert answered + answers(clients) == CLIENTS
    server.stop()


def test_requests_that_came_in_one_piece_take_a_turn_each_until_the_server_stops() -> None:
    turns = Semaphore(0)
    server = serve(application, "127.0.0.1", 0, wait=turns.acquire)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(REQUEST * CLIENTS)
        client.setblocking(False)
        for _turn in range(CLIENTS):
            assert answers([client]) <= 1
            turns.release()
        assert answers([client]) == 1
    server.stop()
    eventlet.sleep(0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
