"""Clients that send too much, too slowly, too often or something else are refused, and others are served."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import h11
import pytest
from support.rest_server import CONFIG, LIMIT, PROBLEM, VN, RestProcess, read_answer

from apps.rest.http.access import BURST_S, ConnectionSlots, RequestRateLimiter
from apps.rest.http.body import MAX_BODY_BYTES, MAX_LONG_BODY_BYTES
from apps.rest.http.room import FREE_BYTES, MAX_BODIES_BYTES, TIDY_S, MemoryLimit, Reservation
from apps.rest.http.wsgi_exchange import Body, Timeouts, WsgiExchange


@pytest.fixture(scope="module")
def one() -> Iterator[RestProcess]:
    with RestProcess(CONFIG) as server:
        yield server


def test_slow_clients_lock_out_only_their_own_address_until_they_are_cut_off() -> None:
    """docs/rest-api.md says what to put in front where many clients share an address."""
    patience = {"head_s": 1.0, "body_s": 1.0, "discard_s": 1.0}
    with RestProcess(CONFIG, max_connections=8, patience=patience) as server:
        head = f"PATCH {VN} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
        beginnings = [
            b"GET /v1/heal",
            b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX-A: ",
            head.encode() + b'{"send',
        ]
        slow = [server.connect("127.0.0.2") for _ in beginnings]
        silent = server.connect("127.0.0.2")
        for sock, beginning in zip(slow, beginnings, strict=True):
            sock.sendall(beginning)
        assert _status(server, "127.0.0.2", _HEALTH) == 503
        assert server.request("GET", "/v1/health")[0] == 200
        stop = threading.Event()

        def trickle() -> None:
            while not stop.wait(0.1):
                for sock in slow:
                    try:
                        sock.sendall(b"x")
                    except OSError:
                        return

        trickling = threading.Thread(target=trickle)
        trickling.start()
        try:
            answers = [read_answer(slow[at]) for at in (1, 2)]
            assert silent.recv(100) == b""  # has asked for nothing
        finally:
            stop.set()
            trickling.join()
        assert [(status, kind) for status, kind, _ in answers] == [(408, PROBLEM)] * 2
        assert server.request("GET", VN)[2]["send_limit_bps"] == 40_000_000
        _until_served(server, "127.0.0.2")
        for sock in (*slow, silent):
            sock.close()


def test_too_many_connections_are_told_so_and_served_again_when_there_is_room() -> None:
    with RestProcess(CONFIG, max_connections=3) as server:
        held = [server.connect(address) for address in ("127.0.0.2", "127.0.0.2", "127.0.0.3")]
        for sock in held:  # each is being served, and not only waiting to be taken
            sock.sendall(_HEALTH)
            assert read_answer(sock)[0] == 200
        with server.connect() as sock:
            status, kind, problem = read_answer(sock)
            assert (status, kind) == (503, PROBLEM)
            assert "too many connections" in problem["detail"]
        for sock in held:
            sock.close()
        _until_served(server)


def test_one_address_takes_half_the_connections_and_no_more() -> None:
    with RestProcess(CONFIG, max_connections=8) as server:
        held = [server.connect("127.0.0.2") for _ in range(300)]
        for _ in range(50):  # somebody else gets a place, however many are turned away
            assert server.request("GET", "/v1/health")[0] == 200
        served = 0
        for sock in held:
            sock.settimeout(0.05)
            with contextlib.suppress(TimeoutError, ConnectionError):
                sock.sendall(_HEALTH)
                served += b"200 OK" in sock.recv(1000)
            sock.close()
        assert served == 4


def test_it_goes_on_when_no_file_descriptor_is_left() -> None:
    with RestProcess(CONFIG) as server:
        used = len(os.listdir(f"/proc/{server.pid}/fd"))
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 2, hard))
        held = [server.connect("127.0.0.2") for _ in range(10)]
        with server.connect() as sock:
            sock.settimeout(1.5)
            with pytest.raises(TimeoutError):
                sock.recv(1)
        for sock in held:
            sock.close()
        _until_served(server)
    assert "cannot be taken now" in server.errors


def test_clients_that_go_leave_nothing_open() -> None:
    stream = b"GET /v1/stream?interval_ms=250 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with RestProcess(CONFIG, freeze=True) as server:
        for _ in range(5):
            held = [server.connect() for _ in range(8)]
            for sock in held:
                sock.sendall(stream)
                assert sock.recv(1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset: no farewell
                sock.close()
            _until_served(server)
        deadline_s = time.monotonic() + 20.0
        while (left := server.open_sockets()) > 3 and time.monotonic() < deadline_s:
            time.sleep(0.1)
        assert left <= 3  # the listener, and what the last one asked


def test_connection_slots_are_shared_by_addresses_and_ipv6_subnets() -> None:
    places = ConnectionSlots(4)
    assert [places.allocate("::ffff:192.0.2.1") for _ in range(3)] == [True, True, False]
    assert places.allocate("::ffff:192.0.2.2")
    assert not places.allocate("192.0.2.1")  # the same as at first, by a listener for IPv4 alone
    places = ConnectionSlots(5)
    assert [places.allocate("192.0.2.1") for _ in range(4)] == [True, True, True, False]
    assert [places.allocate(f"2001:db8::{n}") for n in range(2)] == [True, True]
    assert not places.allocate("192.0.2.2")  # all are taken
    places.release("192.0.2.1")
    assert places.allocate("2001:db8::9")  # the third of its /64
    places.release("192.0.2.1")
    assert not places.allocate("2001:db8::a")
    assert places.allocate("192.0.2.1")
    places = ConnectionSlots(10)
    assert [places.allocate("192.0.2.1", count) for count in (4, 2, 1)] == [True, False, True]
    assert (places.held, places.held_of("192.0.2.1"), places.held_of("192.0.2.2")) == (5, 5, 0)
    assert [places.allocate("192.0.2.2", count) for count in (6, 5)] == [False, True]
    places.release("192.0.2.1", 5)
    assert (places.held, places.held_of("192.0.2.1")) == (5, 0)


_HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _status(server: RestProcess, source: str, request: bytes) -> int:
    """Send a request from an address; return the status of the answer."""
    with server.connect(source) as sock:
        sock.sendall(request)
        return read_answer(sock)[0]


def _until_served(server: RestProcess, source: str = "127.0.0.1") -> None:
    """Wait until the server has seen others go."""
    deadline_s = time.monotonic() + 20.0
    while _status(server, source, _HEALTH) != 200:
        assert time.monotonic() < deadline_s, "nobody is served any more"


def test_streams_are_bounded_and_given_back() -> None:
    with RestProcess(CONFIG, most_streams=2) as server:
        open_ones = [server.connect() for _ in range(2)]
        for sock in open_ones:
            sock.sendall(b"GET /v1/stream?interval_ms=250 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with sock.makefile("rb") as stream:
                assert b"event: state\n" in stream
        assert server.request("GET", "/v1/stream")[0] == 503
        for sock in open_ones:
            sock.close()
        while server.request("GET", "/v1/stream?count=1")[0] != 200:  # until the server has seen them go
            pass
        _, _, text = server.request("GET", "/v1/stream?count=2&interval_ms=250")
        assert text.count("event: state") == 2


def test_a_stream_tells_events_behind_the_last_one_seen() -> None:
    with RestProcess(CONFIG) as server:
        assert server.request("PATCH", VN, LIMIT)[0] == 200
        _, _, text = server.request("GET", "/v1/stream?count=1", headers={"Last-Event-ID": "0"})
        assert "event: event" in text
        assert "id: 1" in text
        assert "send limit 30M" in text
        assert "event: event" not in server.request("GET", "/v1/stream?count=1", headers={"Last-Event-ID": "1"})[2]


@pytest.mark.parametrize(("path", "most"), [(VN, 64 * 1024), ("/v1/limits", 4 * 2**20)])
def test_a_body_that_is_too_long_is_refused_before_it_is_read(one: RestProcess, path: str, most: int) -> None:
    method = "PATCH" if path == VN else "POST"
    with one.connect() as sock:
        kind = "Content-Type: application/json"
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\nContent-Length: {most + 1}\r\n\r\n"
        sock.sendall(head.encode())
        assert read_answer(sock)[:2] == (413, PROBLEM)
    assert one.request(method, path, {"x" * 100: 1})[0] == 422


def test_rapid_requests_are_refused_and_somebody_else_is_served() -> None:
    with RestProcess(CONFIG, requests_per_s=5, max_connections=128) as server:

        def flood() -> list[tuple[int, str | None]]:
            with server.connect("127.0.0.2") as sock:
                sock.sendall(_HEALTH * 100)
                stream = sock.makefile("rb")
                answers = [_read_response(stream) for _ in range(100)]
            return [(status, headers.get("retry-after")) for status, headers, _ in answers]

        with ThreadPoolExecutor(20) as pool:
            flooding = [pool.submit(flood) for _ in range(20)]
            # Another address has a rate of its own.
            assert [server.request("GET", "/v1/health")[0] for _ in range(8)] == [200] * 8
        answers = Counter(answer for one in flooding for answer in one.result())
        assert answers.keys() == {(200, None), (429, "1")}
        assert answers[200, None] >= 5 * BURST_S
        assert answers[429, "1"] > 1000
    assert server.errors == ""


def test_pace() -> None:
    now_s = [0.0]
    pace = RequestRateLimiter(10.0, lambda: now_s[0])
    assert [pace.wait_s("a") for _ in range(20)] == [0.0] * 20
    assert pace.wait_s("a") == pytest.approx(0.1)
    assert pace.wait_s("b") == 0.0
    now_s[0] = 0.1
    assert pace.wait_s("a") == 0.0
    assert pace.wait_s("a") > 0.0
    assert [pace.wait_s(f"2001:db8::{n:x}") for n in range(1, 22)][-1] > 0.0  # one subnet is one client
    for n in range(10_000):
        pace.wait_s(f"10.0.{n // 256}.{n % 256}")
    assert len(pace._buckets) <= 4096


@pytest.mark.parametrize(
    "target",
    [
        "/v1/../../etc/passwd",
        "/v1/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "//v1/health",
        "/v1//health",
        "/v1/health//",
        "http://localhost//v1/health",
        "/v1%2fhealth",
        "/v1/vns/10%2Fs1/1",
        "/v1/vns/10/s1/1%00",
        "/v1/vns/10/..%2fs1/1",
        "/v1\\vns",
        "/%c0%ae%c0%ae/etc/passwd",
        "/docs/../v1/vns",
        "*",
        "/v1/vns;x=1",
    ],
)
def test_path_tricks_lead_nowhere(one: RestProcess, target: str) -> None:
    with one.connect() as sock:
        sock.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        status, kind, _ = read_answer(sock)
        assert (status, kind) == (404, PROBLEM)


def _read_response(stream: Any) -> tuple[int, dict[str, str], bytes]:
    status = int(stream.readline().split()[1])
    headers = {}
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.decode().partition(": ")
        headers[name.lower()] = value
    return status, headers, stream.read(int(headers["content-length"]))


# -- bodies held open

LONG_HEAD = f"POST /v1/limits HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MAX_LONG_BODY_BYTES}\r\n".encode()
LONG_HEAD += b"Content-Type: application/json\r\n\r\n"
SHORT = f"PATCH {VN} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n".encode()
SHORT += b"Content-Type: application/json\r\n\r\n{}"
ALMOST = b'{"limits": [' + b" " * (MAX_LONG_BODY_BYTES - 100)


def _held(server: RestProcess, source: str, bodies: int) -> list[socket.socket]:
    """Send so many bodies but for their ends."""
    socks = [server.connect(source) for _ in range(bodies)]
    for sock in socks:
        with contextlib.suppress(OSError):  # refused meanwhile
            sock.sendall(LONG_HEAD + ALMOST)
    return socks


def _sent_whole(server: RestProcess, source: str) -> int:
    """Send a body as long as may be; return the status of the answer."""
    return _status(server, source, LONG_HEAD + ALMOST + b"]}".rjust(MAX_LONG_BODY_BYTES - len(ALMOST)))


def _refusals(socks: list[socket.socket], count: int) -> list[Any]:
    """Return what those were told that were told something, once they are so many."""
    deadline_s = time.monotonic() + 30.0
    readable: list[socket.socket] = []
    while len(readable) < count and time.monotonic() < deadline_s:
        readable = select.select(socks, [], [], 0.1)[0]
        time.sleep(0.01)
    return [_read_response(sock.makefile("rb")) for sock in readable]


def test_bodies_held_open_have_a_total_and_one_address_half_of_it() -> None:
    with RestProcess(CONFIG) as server:
        held = _held(server, "127.0.0.2", 6)
        told = _refusals(held, 4)
        assert len(told) == 4  # two are waited for
        for status, headers, text in told:
            assert (status, headers["content-type"], headers["retry-after"]) == (503, PROBLEM, "1")
            problem = json.loads(text)
            assert problem["type"] == "urn:dets:problem:too-many-bodies"
            assert problem["errors"][0]["field"] == "bodies"
            assert problem["errors"][0]["value"] > MAX_BODIES_BYTES // 2
            assert f"{MAX_BODIES_BYTES} bytes are held at a time, {MAX_BODIES_BYTES // 2} of one address" in str(
                problem
            )
        # Others are not refused meanwhile: a long body, which sets nothing, and a short one.
        assert _sent_whole(server, "127.0.0.3") == 422
        assert server.request("PATCH", VN, LIMIT)[0] == 200
        assert _status(server, "127.0.0.2", SHORT) == 422  # nor is a short one of the same address, which sets nothing
        for sock in held:
            sock.close()
        assert [_sent_whole(server, "127.0.0.2") for _ in range(5)] == [422] * 5  # each gives its room back


def test_bodies_trickled_from_many_addresses_have_the_same_total() -> None:
    """More addresses hold no more in all, and while they trickle on, short requests are served to everybody."""
    with RestProcess(CONFIG, patience={"body_s": 3.0}) as server:
        held = [sock for number in range(12) for sock in _held(server, f"127.0.2.{number + 1}", 1)]
        told = _refusals(held, 12 - MAX_BODIES_BYTES // MAX_LONG_BODY_BYTES)
        assert {status for status, *_ in told} == {503}
        assert len(told) >= 12 - MAX_BODIES_BYTES // MAX_LONG_BODY_BYTES
        for limit_bps in range(20_000_000, 20_000_005):
            for sock in held:
                with contextlib.suppress(OSError):  # refused
                    sock.sendall(b" ")
            assert server.request("PATCH", VN, {"send_limit_bps": limit_bps})[0] == 200
        late = [sock for sock in held if select.select([sock], [], [], 10.0)[0]]
        assert len(late) == len(held), "those that trickle on are cut off in the end"
        for sock in held:
            sock.close()
        assert _sent_whole(server, "127.0.2.99") == 422


def test_an_answer_that_nobody_reads_holds_room_and_the_next_is_refused() -> None:
    room = MemoryLimit("answers", 8 * MAX_BODY_BYTES, tidy=lambda: None, later=lambda *_: None)
    piece = bytes(4 * MAX_BODY_BYTES)
    answers = [_answer_of(piece, Reservation(room, "192.0.2.1"), room, again) for again in (True, False)]
    assert b"200 OK" in answers[1][:20]
    assert b"503 Service Unavailable" in answers[0][:40]
    assert b"too-many-answers" in answers[0]
    assert b"Retry-After: 1" in answers[0]
    assert answers[1].endswith(piece)


def _answer_of(piece: bytes, share: Reservation, room: MemoryLimit, others_hold: bool) -> bytes:
    """Return what a client gets that asks for a piece while others of its address hold as much, or nothing."""

    class Sock:
        sent = b""

        def sendall(self, data: bytes) -> None:
            self.sent += data

    sock, http_ = Sock(), h11.Connection(h11.SERVER)
    http_.receive_data(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    request = http_.next_event()
    assert isinstance(request, h11.Request)
    other = Reservation(room, "192.0.2.1")
    if others_hold:
        other.add(len(piece))
    body = Body(sock, http_, request, Timeouts(), Reservation(room, "192.0.2.1"))

    def app(environ: Any, start: Any) -> list[bytes]:
        start("200 OK", [("Content-Length", str(len(piece)))])
        return [piece]

    WsgiExchange(sock, http_, False, body, share).run(app, {})
    share.end()
    other.end()
    return sock.sent


def test_memory_goes_back_once_nothing_is_held_and_not_for_each() -> None:
    asked, tidied = [], []
    room = MemoryLimit(
        "bodies", 100 * FREE_BYTES, lambda: tidied.append(True), lambda after_s, do: asked.append((after_s, do))
    )
    short, shares = Reservation(room, "192.0.2.9"), [Reservation(room, f"192.0.2.{n}") for n in range(3)]
    short.add(FREE_BYTES)
    short.end()
    assert asked == []  # nothing was held
    for share in shares:
        share.add(3 * FREE_BYTES)
    for share in shares:
        assert asked == []
        share.end()
    shares[0].add(3 * FREE_BYTES)
    shares[0].end()
    assert [after_s for after_s, _ in asked] == [TIDY_S]
    asked[0][1]()
    assert tidied == [True]
    shares[0].add(3 * FREE_BYTES)
    shares[0].end()
    assert len(asked) == 2
