"""What one node asks another over HTTP: with the asker's credentials, in time, and not again and again in vain."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from support.fake_rest_server import FakeRestServer
from support.fake_rest_server import PreparedResponse as Said

from apps.cluster.rest import node_client
from apps.cluster.rest.node_client import FORWARDED_HEADER, RETRY_S, NodeClient

GIVEN = {"Authorization": "Bearer dets_x", "Cookie": "a=b", "Host": "elsewhere", "If-Match": '"7"'}


@pytest.fixture
def desk() -> Iterator[FakeRestServer]:
    with FakeRestServer() as desk:
        yield desk


def test_credentials_and_conditions_go_along_and_nothing_else(desk: FakeRestServer) -> None:
    desk.on("PATCH", "/v1/x", {"a": 1})
    answer = NodeClient("n1").ask(desk.url, "PATCH", "/v1/x?dry_run=true", GIVEN, b'{"b": 2}')
    assert (answer.status, answer.body) == (200, b'{"a": 1}')
    asked = desk.last()
    assert (asked.query, asked.body, asked.headers[FORWARDED_HEADER]) == ({"dry_run": "true"}, {"b": 2}, "n1")
    assert (asked.headers["Authorization"], asked.headers["If-Match"]) == ("Bearer dets_x", '"7"')
    assert "Cookie" not in asked.headers
    assert asked.headers["Host"] in desk.url


def test_refusals_are_answers(desk: FakeRestServer) -> None:
    desk.refuse("GET", "/v1/x", 403, "no")
    assert NodeClient("n1").ask(desk.url, "GET", "/v1/x", {}).status == 403


def test_who_says_nothing_is_waited_for_no_longer_than_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        NodeClient("n1").ask(f"http://127.0.0.1:{silent.getsockname()[1]}", "GET", "/v1/x", {}, limit_s=0.05)


def test_long_answers_are_refused(desk: FakeRestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_client, "MAX_ANSWER_BYTES", 1024)
    desk.on("GET", "/v1/x", Said(raw=b"x" * 1024), Said(raw=b"x" * 1025))
    assert len(NodeClient("n1").ask(desk.url, "GET", "/v1/x", {}).body) == 1024
    with pytest.raises(OSError, match="longer than 1024"):
        NodeClient("n1").ask(desk.url, "GET", "/v1/x", {})


def test_what_is_no_http_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            other, _ = listener.accept()
            with other:
                other.recv(4096)
                other.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(OSError, match="no answer in HTTP"):
            NodeClient("n1").ask(f"http://127.0.0.1:{listener.getsockname()[1]}", "GET", "/v1/x", {})
        thread.join()


def test_who_did_not_answer_is_left_alone_for_a_while(desk: FakeRestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    hop = NodeClient("n1", clock=lambda: now_s[0])
    desk.on("GET", "/v1/x", {"a": 1})
    dead = "http://127.0.0.1:1"
    found = hop.gather({"n2": desk.url, "n3": dead}, "/v1/x", {})
    assert (found["n2"] and found["n2"].status, found["n3"]) == (200, None)
    assert hop.gather({"n3": desk.url}, "/v1/x", {}) == {"n3": None}
    assert len(desk.asked) == 1
    now_s[0] += RETRY_S
    again = hop.gather({"n3": desk.url}, "/v1/x", {})["n3"]
    assert again is not None
    now_s[0] += 0.1
    assert hop.gather({"n3": desk.url}, "/v1/x", {})["n3"] is not None
