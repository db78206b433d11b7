"""Requests whose framing could be read in two ways are refused, and the server says so in a problem document."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rest_server import CONFIG, LIMIT, PROBLEM, VN, RestProcess, read_answer

from apps.rest.http.body import MAX_BODY_BYTES
from apps.rest.http.framing import head_error

HOST = b"Host: localhost\r\n"
JSON = HOST + b"Content-Type: application/json\r\n"
CHUNKED = f"PATCH {VN} HTTP/1.1\r\n".encode() + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
TOKEN = st.text("!#$%&'*+-.^_`|~0aZ", min_size=1)
VALUE = st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]))


@pytest.fixture(scope="module")
def server() -> Iterator[RestProcess]:
    with RestProcess(CONFIG) as server:
        yield server
    assert "Traceback" not in server.errors


def lines(head: bytes) -> list[bytes]:
    """Return the lines of a head, as they are checked: without their ends."""
    return head.removesuffix(b"\r\n").split(b"\r\n")


@given(st.lists(st.tuples(TOKEN, VALUE)))
@settings(derandomize=True, deadline=None)
def test_any_fields_of_printable_characters_are_good(fields: list[tuple[str, str]]) -> None:
    head = b"".join(f"x{name}: {value}\r\n".encode("latin-1") for name, value in fields)
    assert head_error(lines(HOST + head), "HTTP/1.1") is None


@given(TOKEN, VALUE, st.characters(max_codepoint=0x1F, exclude_characters="\t\n"), VALUE)
@settings(derandomize=True, deadline=None)
def test_control_characters_are_not(name: str, before: str, character: str, after: str) -> None:
    assert head_error([f"x{name}: {before}{character}{after}".encode("latin-1")], "HTTP/1.0") is not None


def test_http_1_0_needs_no_host_and_knows_no_chunks() -> None:
    assert head_error([], "HTTP/1.0") is None
    chunked_ = [b"Host: localhost", b"Transfer-Encoding: chunked"]
    assert head_error(chunked_, "HTTP/1.0") is not None
    for version in ("HTTP/1.1", "HTTP/1.2"):
        assert head_error([], version) is not None
        assert head_error(chunked_, version) is None


@pytest.mark.parametrize(
    "host",
    [
        b"",
        b"localhost",
        b"a.example:8080",
        b"192.0.2.1:",
        b"[2001:db8::1]:80",
        b"[::ffff:192.0.2.1]",
        b"[fe80::1%eth0.1]:80",
    ],
)
def test_hosts(host: bytes) -> None:
    assert head_error([b"Host: " + host], "HTTP/1.1") is None


@pytest.mark.parametrize(
    "host",
    [
        *(b"localhost/evil", b"evil@localhost", b"evil\\@localhost", b"a b", b"a?", b"a#b"),
        *(b"[::1", b"::1", b"[::1]a", b"[::1%]", b"a:b", b"localhost:80:a"),
    ],
)
def test_what_is_no_host(host: bytes) -> None:
    assert head_error([b"Host: " + host], "HTTP/1.1") is not None


def test_long_lines_take_no_longer_than_their_length_says() -> None:
    """Four times as long a line takes some four times as long, whatever it holds: sixteen times is what must not be."""

    def took_s(line: bytes) -> float:
        times_s = []
        for _ in range(20):
            began_s = time.process_time()
            for _ in range(20):
                assert head_error([line], "HTTP/1.0") is not None
            times_s.append(time.process_time() - began_s)
        return min(times_s)

    for character in (b" ", b"\t", b"a", b":"):
        short, long = (b"X:" + character * count + b"\0" for count in (2_000, 8_000))
        assert took_s(long) < 10 * took_s(short)


AMBIGUOUS = {
    "it ends early": (HOST + b"If-", "ends before"),
    "it ends in its first line": (b"", "ends before"),
    "no name of a host": (HOST.strip() + b"/evil.example\r\n\r\n", "host"),
    "a space before the colon": (JSON + b"Content-Length : 40\r\n\r\n", "'Content-Length : 40"),
    "a folded line": (JSON + b"X: a\r\n Content-Length: 40\r\n\r\n", "' Content-Length: 40"),
    "a lone carriage return": (JSON + b"X: a\rContent-Length: 40\r\n\r\n", "'X: a\\rContent-Length: 40"),
    "a lone line feed": (JSON + b"X: a\nContent-Length: 40\r\n\r\n", "'X: a\\n'"),
    "a zero": (JSON + b"X: \0\r\n\r\n", "X: \\x00"),
    "no colon": (JSON + b"Content-Length\r\n\r\n", "'Content-Length"),
    "two lengths": (JSON + b"Content-Length: 2\r\ncontent-length: 40\r\n\r\n", "content-length stands 2 times"),
    "a list of lengths": (JSON + b"Content-Length: 2, 2\r\n\r\n", "content-length is '2, 2'"),
    "a signed length": (JSON + b"Content-Length: +2\r\n\r\n", "content-length is '+2'"),
    "a negative length": (JSON + b"Content-Length: -2\r\n\r\n", "content-length is '-2'"),
    "a length with an underscore": (JSON + b"Content-Length: 1_0\r\n\r\n", "content-length is '1_0'"),
    "a long length": (JSON + b"Content-Length: " + b"9" * 19 + b"\r\n\r\n", "18 decimal digits"),
    "a length and chunks": (
        JSON + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        "exclude each other",
    ),
    "another coding": (JSON + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "transfer-encoding is 'gzip, chunked'"),
    "two codings": (
        JSON + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
        "transfer-encoding stands 2 times",
    ),
    "no host": (JSON.removeprefix(HOST) + b"Content-Length: 2\r\n\r\n", "needs the field host"),
    "two hosts": (HOST + JSON + b"Content-Length: 2\r\n\r\n", "host stands 2 times"),
}


@pytest.mark.parametrize(("head", "words"), AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_what_could_be_read_in_two_ways_is_refused(server: RestProcess, head: bytes, words: str) -> None:
    hidden = f"DELETE {VN}/overrides HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    assert server.request("PATCH", VN, LIMIT)[0] == 200
    with server.connect() as sock:
        line = f"PATCH {VN} HTTP/1.1".encode() + (b"\r\n" if head else b"")
        sock.sendall(line + head + (hidden if head.endswith(b"\r\n\r\n") else b""))
        sock.shutdown(1)  # what was to follow, such as If-Match, never comes
        status, kind, problem = read_answer(sock)
        assert (status, kind, problem["type"]) == (400, PROBLEM, "urn:dets:problem:not-http")
        assert words in problem["detail"]
        assert sock.recv(1) == b""
    assert server.request("GET", VN)[2]["send_limit_bps"] == LIMIT["send_limit_bps"]


@pytest.mark.parametrize(
    ("request_", "status", "kind"),
    [
        (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, "uri-too-long"),
        (b"GET /v1/vns HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 9_000 + b"\r\n\r\n", 431, "head-too-large"),
        (b"GET /v1/vns HTTP/1.1\r\n" + HOST + (b"X: " + b"a" * 8_000 + b"\r\n") * 9 + b"\r\n", 431, "head-too-large"),
        (b"GET /v1/vns HTTP/1.1\r\n" + HOST + b"X: a\r\n" * 200 + b"\r\n", 431, "head-too-large"),
        (b"GET /v1/vns HTTP/2.0\r\n" + HOST + b"\r\n", 505, "not-http"),
        (b"GET /v1/vns HTTP/x\r\n" + HOST + b"\r\n", 400, "not-http"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, "not-http"),
        (b"GET /v1/vns\r\n", 400, "not-http"),
        (b"GET /v1/vns\x0bHTTP/1.1\r\n" + HOST + b"\r\n", 400, "not-http"),
        (b"GET  /v1/vns HTTP/1.1\r\n" + HOST + b"\r\n", 400, "not-http"),
        (b"GET /v1/vns HTTP/1.2\r\n\r\n", 400, "not-http"),
    ],
    ids=[
        *("line", "field", "fields", "many fields", "version", "no version", "TLS", "HTTP/0.9", "a vertical tab"),
        *("two spaces", "no host"),
    ],
)
def test_other_heads_that_are_not_served_are_answered_with_a_problem(
    server: RestProcess, request_: bytes, status: int, kind: str
) -> None:
    with server.connect() as sock:
        sock.sendall(request_)
        answer = read_answer(sock)
        assert answer[:2] == (status, PROBLEM)
        assert (answer[2]["status"], answer[2]["type"]) == (status, f"urn:dets:problem:{kind}")


BODY = json.dumps({"send_limit_bps": 35_000_000}).encode()
SIZE = b"%x" % len(BODY)


def chunked(server: RestProcess, text: bytes) -> tuple[int, str]:
    """Send a PATCH with a chunked body; return the status of the answer and the type of the problem."""
    with server.connect() as sock:
        sock.sendall(CHUNKED + text)
        status, _, answer = read_answer(sock)
        return status, answer.get("type", "")


@pytest.mark.parametrize(
    "text",
    [
        SIZE + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
        SIZE.upper() + b";name=value\r\n" + BODY + b"\r\n000\r\n\r\n",
        b"3\r\n" + BODY[:3] + b"\r\n" + b"%x" % (len(BODY) - 3) + b"\r\n" + BODY[3:] + b"\r\n0\r\nX: y\r\n\r\n",
    ],
    ids=["one", "extended", "two and a trailer"],
)
def test_chunks(server: RestProcess, text: bytes) -> None:
    assert server.request("PATCH", VN, LIMIT)[0] == 200
    assert chunked(server, text) == (200, "")
    assert server.request("GET", VN)[2]["send_limit_bps"] == 35_000_000


@pytest.mark.parametrize(
    "text",
    [
        *(
            size + b"\r\n" + BODY + b"\r\n0\r\n\r\n"
            for size in (b"+" + SIZE, b"0x" + SIZE, b"1_b", b" " + SIZE, b"-5", b"")
        ),
        SIZE + b" ;name=value\r\n" + BODY + b"\r\n0\r\n\r\n",
        SIZE + b";a\rb\r\n" + BODY + b"\r\n0\r\n\r\n",
        SIZE + b"\n" + BODY + b"\r\n0\r\n\r\n",
        SIZE + b";" + b"a" * 300 + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
        b"0" * 8 + SIZE + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
        SIZE + b"\r\n" + BODY + b" \r\n0\r\n\r\n",
        SIZE + b"\r\n" + BODY + b"\r\n0\r\n" + b"X: y\r\n" * 17 + b"\r\n",
        SIZE + b"\r\n" + BODY + b"\r\n0\r\nX: " + b"y" * 256 + b"\r\n\r\n",
        SIZE + b"\r\n" + BODY + b"\r\n0\r\nX y\r\n\r\n",
    ],
)
def test_what_does_not_belong_between_chunks_is_refused(server: RestProcess, text: bytes) -> None:
    assert server.request("PATCH", VN, LIMIT)[0] == 200
    assert chunked(server, text) == (400, "urn:dets:problem:bad-request")
    assert server.request("GET", VN)[2]["send_limit_bps"] == LIMIT["send_limit_bps"]


@pytest.mark.parametrize(
    "text", [b"", b"1", b"1\r\n", SIZE + b"\r\n" + BODY[:3], SIZE + b"\r\n" + BODY, b"1\r\nx\r\n0\r\nX: y"]
)
def test_a_chunked_body_that_breaks_off_is_refused_at_once(server: RestProcess, text: bytes) -> None:
    with server.connect() as sock:
        sock.sendall(CHUNKED + text)
        sock.shutdown(1)
        assert read_answer(sock)[0] == 400


def test_a_chunked_body_may_be_as_long_as_another_and_is_never_cut_off(server: RestProcess) -> None:
    longest = json.dumps(LIMIT).encode().rjust(MAX_BODY_BYTES)
    assert chunked(server, b"%x\r\n%s\r\n0\r\n\r\n" % (len(longest), longest)) == (200, "")
    # Cut off after the limit this body would be good JSON: it must not be taken for it.
    longer = BODY.ljust(MAX_BODY_BYTES + 1) + b"x"
    assert chunked(server, b"%x\r\n%s\r\n0\r\n\r\n" % (len(longer), longer))[0] == 413
    assert server.request("GET", VN)[2]["send_limit_bps"] == LIMIT["send_limit_bps"]


def test_a_body_in_too_many_chunks_is_refused(server: RestProcess) -> None:
    assert chunked(server, b"1\r\n \r\n" * (32 * 1024) + b"0\r\n\r\n") == (400, "urn:dets:problem:broken-json")
    assert chunked(server, b"1\r\n \r\n" * (32 * 1024 + 1) + b"0\r\n\r\n") == (400, "urn:dets:problem:bad-request")


def test_a_line_between_chunks_that_never_ends_fills_no_memory(server: RestProcess) -> None:
    before = server.resident_bytes()
    with contextlib.suppress(ConnectionError), server.connect() as sock:
        sock.sendall(CHUNKED)
        for _ in range(100):
            sock.sendall(b"1" * 2**20)
    assert server.resident_bytes() - before < 20 * 2**20


def test_a_refused_client_reads_the_answer_whatever_it_goes_on_to_send(server: RestProcess) -> None:
    """Bytes that the server has not read when it closes would make the kernel throw the answer away."""
    with server.connect() as sock:
        sock.sendall(b"GET /v1/vns HTTP/2.0\r\n" + b"X: y\r\n" * 60_000)
        assert read_answer(sock)[0] == 505
        assert sock.recv(1) == b""


def test_a_body_in_many_chunks_is_read_and_the_next_request_after_it(server: RestProcess) -> None:
    body = json.dumps(LIMIT).encode()
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    with server.connect() as sock:
        sock.sendall((CHUNKED + pieces) * 2 + CHUNKED.replace(HOST, HOST + b"Connection: close\r\n") + pieces)
        answers = sock.makefile("rb").read()
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == 3


def test_a_client_that_waits_for_100_gets_it_before_it_sends_its_body(server: RestProcess) -> None:
    body = json.dumps(LIMIT).encode()
    waiting = JSON + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    with server.connect() as sock:
        sock.sendall(f"PATCH {VN} HTTP/1.1\r\n".encode() + waiting)
        assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
        sock.sendall(body)
        assert read_answer(sock)[0] == 200
    with server.connect() as sock:  # the final answer ends the connection: nobody knows whether the body will come
        sock.sendall(b"PATCH /v1/nothing HTTP/1.1\r\n" + waiting)
        assert read_answer(sock)[0] == 404
        assert sock.recv(1) == b""


def test_an_answer_to_head_has_no_body(server: RestProcess) -> None:
    with server.connect() as sock:
        for _ in range(2):
            sock.sendall(b"HEAD /v1/health HTTP/1.1\r\n" + HOST + b"\r\n")
            answer = sock.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.endswith(b"\r\n\r\n")


def test_an_empty_line_may_stand_before_a_request(server: RestProcess) -> None:
    body = json.dumps(LIMIT).encode()
    with server.connect() as sock:
        for _ in range(2):
            patch = f"PATCH {VN} HTTP/1.1\r\n".encode() + JSON + b"Content-Length: %d\r\n\r\n" % len(body) + body
            sock.sendall(b"\r\n" + patch)
            assert read_answer(sock)[0] == 200


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost:8080" + VN, "x", 200),
        ("HTTP://127.0.0.1" + VN + "?", "evil.example", 200),
        ("http://evil.example" + VN, "localhost", 421),
        ("https://[::1]", "localhost", 404),
    ],
)
def test_a_whole_target_counts_and_not_the_field_host(server: RestProcess, target: str, host: str, status: int) -> None:
    with server.connect() as sock:
        sock.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert read_answer(sock)[0] == status
