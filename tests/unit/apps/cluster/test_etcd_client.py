"""The client of etcd and members that answer slowly, or something else."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from apps.cluster import etcd_client as etcd_client
from apps.cluster.etcd_client import EtcdClient, EtcdError

BYTES, EVERY_S = 400, 0.01


@contextmanager
def member(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve one connection after the other; each request of one is answered so."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _address = listener.accept()
                with connection, suppress(OSError):
                    while connection.recv(65536):
                        answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def said(content: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content)


def says(value: object) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(said(json.dumps(value).encode()))


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"])
def test_a_member_that_answers_byte_by_byte_is_given_up_for_the_next(
    monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(etcd_client, "REQUEST_TIMEOUT_S", 0.2)
    left = list(range(BYTES))

    def dribble(connection: socket.socket) -> None:
        connection.sendall(head)
        while left:
            connection.sendall(b" ")
            left.pop()
            time.sleep(EVERY_S)

    with member(dribble) as slow, member(says({"ID": "7"})) as good, closing(EtcdClient([slow, good])) as etcd:
        assert etcd.grant(3) == 7
        assert left, "it was not waited for to the end"
        assert etcd.grant(3) == 7, "the connection is used again"


def test_an_answer_nested_without_end_is_an_error() -> None:
    deep = said(b"[" * 100_000)
    with (
        member(lambda connection: connection.sendall(deep)) as odd,
        closing(EtcdClient([odd])) as etcd,
        pytest.raises(EtcdError, match="without JSON"),
    ):
        etcd.grant(3)
