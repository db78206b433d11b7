"""Who may use the REST interface, and what those get who send too much, too slowly or something else."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import json
import os
import random
import resource
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from support.rest_server import CONFIG, LIMIT, PROBLEM, VN, RestProcess, ask, read_answer

from apps.cli.support.certificates import create_authority, issue
from apps.rest.http.access import BURST_S, Pace, Places
from apps.settings.tokens import Tokens

# -- tokens


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RestProcess, Tokens]]:
    store = tmp_path_factory.mktemp("guarded") / "x.db"
    with RestProcess(CONFIG, store, tokens=True) as server:
        yield server, Tokens(str(store))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    "headers", [{}, bearer("dets_wrong"), {"Authorization": "Basic b3BzOm9wcw=="}, bearer(""), bearer("\xff")]
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/vns"), ("PATCH", VN), ("GET", "/v1/no"), ("GET", "/v1/health")]
)
def test_nothing_without_a_token(
    guarded: tuple[RestProcess, Tokens], headers: dict[str, str], method: str, path: str
) -> None:
    status, answered, problem = guarded[0].request(method, path, LIMIT if method == "PATCH" else None, headers)
    assert (status, answered["Content-Type"]) == (401, PROBLEM)
    assert answered["WWW-Authenticate"].startswith("Bearer")
    assert "dets token" in problem["detail"]


def test_the_description_needs_no_token_and_says_that_others_do(guarded: tuple[RestProcess, Tokens]) -> None:
    server, _ = guarded
    status, _, document = server.request("GET", "/v1/openapi.json")
    assert (status, document["security"]) == (200, [{"token": []}])
    assert document["paths"]["/v1/openapi.json"]["get"]["security"] == []
    assert server.request("GET", "/docs")[0] == 200


def test_a_token_may_what_its_scope_says_until_it_is_revoked(guarded: tuple[RestProcess, Tokens]) -> None:
    server, tokens = guarded
    reading, writing = bearer(tokens.create("portal", "read")), bearer(tokens.create("ops", "write"))
    for headers in (reading, writing):
        assert server.request("GET", VN, headers=headers)[0] == 200
    for method, path, body in (("PATCH", VN, LIMIT), ("DELETE", f"{VN}/overrides", None), ("POST", "/v1/limits", {})):
        status, answered, problem = server.request(method, path, body, reading)
        assert (status, answered["Content-Type"]) == (403, PROBLEM)
        assert 'scope="write"' in answered["WWW-Authenticate"]
        assert "portal may only read" in problem["detail"]
    assert server.request("PATCH", VN, LIMIT, writing)[0] == 200
    changes = server.request("GET", "/v1/history", headers=reading)[2]["changes"]
    assert (changes[0]["who"], changes[0]["address"]) == ("token ops", "127.0.0.1")
    tokens.revoke("ops")
    assert server.request("GET", VN, headers=writing)[0] == 401
    assert server.request("GET", VN, headers=reading)[0] == 200


# -- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    create_authority(folder, "lab", 10)
    issue(folder, "server", 10, ["127.0.0.1"])
    issue(folder, "portal", 10, None)
    return folder


def test_a_client_without_a_certificate_gets_nothing_and_one_with_is_named(certificates: Path) -> None:
    files = {name: str(certificates / f"server.{end}") for name, end in (("certificate", "pem"), ("key", "key"))}
    with RestProcess(CONFIG, tls={**files, "client_ca": str(certificates / "ca.pem")}) as server:
        plain = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.BadStatusLine)):
            ask(http.client.HTTPSConnection("127.0.0.1", server.port, context=plain, timeout=30), "GET", VN)
        with server.connect() as sock:
            sock.sendall(b"GET /v1/vns HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert b"200" not in sock.recv(1000)
        named = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        named.load_cert_chain(certificates / "portal.pem", certificates / "portal.key")

        nameless = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        nameless.load_cert_chain(_nameless(certificates))

        def secure(context: ssl.SSLContext, method: str, path: str, body: object = None) -> tuple[int, Any, Any]:
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=30)
            return ask(connection, method, path, body, {"Host": "controller.example"})

        for context, who in ((named, "certificate portal"), (nameless, "anonymous")):
            assert secure(context, "PATCH", VN, LIMIT)[0] == 200
            assert secure(context, "GET", "/v1/history")[2]["changes"][0]["who"] == who


def _nameless(folder: Path) -> Path:
    """Make a certificate without a name; return the file of it and its key."""
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    signing = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(authority.subject, x509.Name([]), key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path = folder / "nameless.pem"
    path.write_bytes(
        builder.sign(signing, hashes.SHA256()).public_bytes(pem)
        + key.private_bytes(pem, pkcs8, serialization.NoEncryption())
    )
    return path


# -- slow, many, odd


def test_a_slow_client_is_cut_off_and_others_are_served_meanwhile() -> None:
    with RestProcess(CONFIG, patience={"head_s": 1.0, "body_s": 1.0, "discard_s": 1.0}) as server:
        head = f"PATCH {VN} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
        beginnings = [
            b"GET /v1/heal",
            b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX-A: ",
            head.encode() + b'{"send',
        ]
        slow = [server.connect() for _ in beginnings]
        silent = server.connect()
        for sock, beginning in zip(slow, beginnings, strict=True):
            sock.sendall(beginning)
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


def test_a_key_that_stands_twice_among_many_is_found(one: RestProcess) -> None:
    """Looking for it takes no longer than reading the others: with 40,000 keys it took 13 s."""
    text = ", ".join(f'"{number}": 1' for number in [*range(100_000), 99_999])
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=30)
    connection.request("POST", "/v1/limits", "{" + text + "}", {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 400
    assert "'99999' more than once" in json.loads(answer.read())["detail"]
    connection.close()


def test_ipv4_clients_of_a_listener_for_both_are_told_apart() -> None:
    places = Places(4)
    assert [places.take("::ffff:192.0.2.1") for _ in range(3)] == [True, True, False]
    assert places.take("::ffff:192.0.2.2")
    assert not places.take("192.0.2.1")


def test_places() -> None:
    places = Places(5)
    assert [places.take("192.0.2.1") for _ in range(4)] == [True, True, True, False]
    assert [places.take(f"2001:db8::{n}") for n in range(2)] == [True, True]
    assert not places.take("192.0.2.2")  # all are taken
    places.give_back("192.0.2.1")
    assert places.take("2001:db8::9")  # the third of its /64
    places.give_back("192.0.2.1")
    assert not places.take("2001:db8::a")
    assert places.take("192.0.2.1")


_HEALTH = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _until_served(server: RestProcess) -> None:
    """Wait until the server has seen others go."""
    deadline_s = time.monotonic() + 20.0
    while time.monotonic() < deadline_s:
        with server.connect() as sock:
            sock.sendall(_HEALTH)
            if read_answer(sock)[0] == 200:
                return
    raise AssertionError("nobody is served any more")


def test_streams_are_bounded_and_given_back() -> None:
    with RestProcess(CONFIG, most_streams=2) as server:
        open_ones = [server.connect() for _ in range(2)]
        for sock in open_ones:
            sock.sendall(b"GET /v1/stream?interval_ms=250 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"event: vlans" in _read_until(sock, b"event: vlans")
        assert server.request("GET", "/v1/stream")[0] == 503
        for sock in open_ones:
            sock.close()
        while server.request("GET", "/v1/stream?states=1")[0] != 200:  # until the server has seen them go
            pass
        status, _, text = server.request("GET", "/v1/stream?states=2&vlan=10&interval_ms=250")
        assert status == 200
        states = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        assert [[vn["port_no"] for vn in state["vns"]] for state in states] == [[1, 2], [1, 2]]


def test_a_stream_tells_events_behind_the_last_one_seen() -> None:
    with RestProcess(CONFIG) as server:
        assert server.request("PATCH", VN, LIMIT)[0] == 200
        _, _, text = server.request("GET", "/v1/stream?states=1", headers={"Last-Event-ID": "0"})
        assert "event: event" in text
        assert "id: 1" in text
        assert "send limit 30000000" in text
        assert "event: event" not in server.request("GET", "/v1/stream?states=1", headers={"Last-Event-ID": "1"})[2]


@pytest.mark.parametrize(
    "target",
    [
        "/v1/../../etc/passwd",
        "/v1/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
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


@pytest.fixture(scope="module")
def one() -> Iterator[RestProcess]:
    with RestProcess(CONFIG) as server:
        yield server


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:8080",
        "127.0.0.9",
        "[::1]:8080",
        "a.localhost:80",
        "localhost.",
        "[::ffff:127.0.0.1]:80",
    ],
)
def test_without_tokens_this_machine_is_served(one: RestProcess, host: str) -> None:
    assert one.request("GET", VN, headers={"Host": host})[0] == 200


@pytest.mark.parametrize("method", ["GET", "PATCH"])
@pytest.mark.parametrize(
    "host",
    [
        "portal.example",
        "127.0.0.1.example:80",
        "localhost.example",
        "0.0.0.0:80",
        "192.0.2.1",
        "[::]",
        "[::ffff:192.0.2.1]",
    ],
)
def test_without_tokens_another_name_may_not_lead_here(one: RestProcess, method: str, host: str) -> None:
    """What a browser sends that has been told that the name of a page's own site means 127.0.0.1."""
    status, answered, problem = one.request(method, VN, LIMIT if method == "PATCH" else None, {"Host": host})
    assert (status, answered["Content-Type"]) == (421, PROBLEM)
    assert host in problem["detail"]
    assert "rest.authentication" in problem["detail"]


def test_with_tokens_any_name_may(guarded: tuple[RestProcess, Tokens]) -> None:
    server, tokens = guarded
    headers = bearer(tokens.create("named", "read")) | {"Host": "controller.example"}
    assert server.request("GET", VN, headers=headers)[0] == 200


def test_pages_of_others_change_nothing(one: RestProcess) -> None:
    here = f"127.0.0.1:{one.port}"
    foreign = (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://{here}", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    )
    for headers in foreign:
        for method, path, body in (
            ("PATCH", VN, LIMIT),
            ("DELETE", f"{VN}/overrides", None),
            ("POST", "/v1/reload", None),
        ):
            status, answered, problem = one.request(method, path, body, headers)
            assert (status, answered["Content-Type"]) == (403, PROBLEM)
            assert problem["type"] == "urn:dets:problem:another-origin"
        reads = one.request("GET", VN, headers=headers)[0]
        assert reads == (403 if "Sec-Fetch-Site" in headers else 200)  # a browser that says nothing shows it nothing
        followed = headers | {"Sec-Fetch-Mode": "navigate"}
        assert one.request("GET", "/docs", headers=followed)[0] == 200
    own = ({}, {"Origin": f"http://{here}"}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"})
    for headers in own:
        assert one.request("PATCH", VN, LIMIT, headers)[0] == 200


@pytest.mark.parametrize(("path", "most"), [(VN, 64 * 1024), ("/v1/limits", 4 * 2**20)])
def test_a_body_that_is_too_long_is_refused_before_it_is_read(one: RestProcess, path: str, most: int) -> None:
    method = "PATCH" if path == VN else "POST"
    with one.connect() as sock:
        kind = "Content-Type: application/json"
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\nContent-Length: {most + 1}\r\n\r\n"
        sock.sendall(head.encode())
        assert read_answer(sock)[:2] == (413, PROBLEM)
    assert one.request(method, path, {"x" * 100: 1})[0] == 422


def test_ten_thousand_rapid_requests_are_refused_and_somebody_else_is_served() -> None:
    request = b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with RestProcess(CONFIG, requests_per_s=50, max_connections=128) as server:
        statuses: list[int] = []
        waits: list[str] = []

        def flood() -> None:
            with server.connect("127.0.0.2") as sock:
                sock.sendall(request * 200)
                stream = sock.makefile("rb")
                for _ in range(200):
                    status, headers = _read_response(stream)
                    statuses.append(status)
                    if status == 429:
                        waits.append(headers["retry-after"])

        flooding = [threading.Thread(target=flood) for _ in range(50)]
        for thread in flooding:
            thread.start()
        served = 0
        while any(thread.is_alive() for thread in flooding):
            if served < 90:  # another address has a pace of its own
                assert server.request("GET", "/v1/health")[0] == 200
                served += 1
            else:
                flooding[0].join(0.1)
                for thread in flooding:
                    thread.join()
        assert len(statuses) == 10_000
        assert set(statuses) == {200, 429}
        assert statuses.count(200) >= 50 * BURST_S
        assert statuses.count(429) > 5_000
        assert set(waits) == {"1"}
        assert served > 0
    assert server.errors == ""


def test_pace() -> None:
    now_s = [0.0]
    pace = Pace(10.0, lambda: now_s[0])
    assert [pace.wait_s("a") for _ in range(20)] == [0.0] * 20
    assert pace.wait_s("a") == pytest.approx(0.1)
    assert pace.wait_s("b") == 0.0
    now_s[0] = 0.1
    assert pace.wait_s("a") == 0.0
    assert pace.wait_s("a") > 0.0
    assert [pace.wait_s(f"2001:db8::{n:x}") for n in range(1, 22)][-1] > 0.0  # one subnet is one client
    for n in range(10_000):
        pace.wait_s(f"10.0.{n // 256}.{n % 256}")
    assert len(pace._level) <= 4096


# -- kill -9 amid writes

MANY = (
    "vlans:\n"
    + "".join(f"  {vid}: {{send_limit: 1M, receive_limit: 1M}}\n" for vid in range(1, 26))
    + (
        "switches:\n  s1:\n    dpid: 1\n    ports:\n"
        + "".join(f"      {no}: {{capacity: 1G, trunk: {list(range(1, 26))}}}\n" for no in range(1, 41))
    )
)
PLACES = [(vid, port_no) for port_no in range(1, 41) for vid in range(1, 26)]


@pytest.mark.parametrize("seed", range(3))
def test_what_was_acknowledged_survives_a_kill_amid_a_thousand_writes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rate_of = {place: chance.randrange(2_000, 40_000) * 1000 for place in PLACES}
    groups = [PLACES[at : at + 10] if chance.random() < 0.2 else None for at in range(0, 1000, 10)]
    jobs: list[list[tuple[int, int]]] = []
    for at, group in enumerate(groups):  # a fifth of the VNs in tens, the others one by one
        jobs += [group] if group is not None else [[place] for place in PLACES[at * 10 : at * 10 + 10]]
    chance.shuffle(jobs)
    killed_after = chance.randrange(len(jobs) // 10, len(jobs) * 3 // 4)
    acknowledged: list[tuple[int, int]] = []
    with RestProcess(MANY, tmp_path / "x.db") as server:

        def write(mine: list[list[tuple[int, int]]]) -> None:
            for places in mine:
                try:
                    status = _write(server, places, rate_of)
                except (OSError, http.client.HTTPException):
                    return  # killed
                assert status == 200
                acknowledged.extend(places)
                if len(acknowledged) >= killed_after:
                    server.kill()

        writers = [threading.Thread(target=write, args=(jobs[n::16],)) for n in range(16)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    assert killed_after <= len(acknowledged) < 1000
    with RestProcess(MANY, tmp_path / "x.db") as server:
        shown = _all_vns(server)
    limits = {(vn["vlan_vid"], vn["port_no"]): (vn["send_limit_bps"], vn["receive_limit_bps"]) for vn in shown}
    new = {place: (rate_bps, rate_bps) for place, rate_bps in rate_of.items()}
    assert {place: limits[place] for place in acknowledged} == {place: new[place] for place in acknowledged}
    for places in jobs:  # of what was not acknowledged: all of it, or nothing
        assert {limits[place] == new[place] for place in places} in ({True}, {False})
        assert all(limits[place] in (new[place], (1_000_000, 1_000_000)) for place in places)


def _all_vns(server: RestProcess) -> list[dict[str, Any]]:
    vns: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = server.request("GET", "/v1/vns" + (f"?cursor={cursor}" if cursor else ""))[2]
        vns += page["vns"]
        cursor = page["next"]
    return vns


def _write(server: RestProcess, places: list[tuple[int, int]], rate_of: dict[tuple[int, int], int]) -> int:
    limits = [
        {"vlan_vid": vid, "switch": "s1", "port_no": port_no}
        | {f"{way}_limit_bps": rate_of[vid, port_no] for way in ("send", "receive")}
        for vid, port_no in places
    ]
    if len(places) > 1:
        return server.request("POST", "/v1/limits", {"limits": limits})[0]
    vid, port_no = places[0]
    body = {name: value for name, value in limits[0].items() if name.endswith("_bps")}
    return server.request("PATCH", f"/v1/vns/{vid}/s1/{port_no}", body)[0]


def _read_response(stream: Any) -> tuple[int, dict[str, str]]:
    status = int(stream.readline().split()[1])
    headers = {}
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.decode().partition(": ")
        headers[name.lower()] = value
    stream.read(int(headers["content-length"]))
    return status, headers


def _read_until(sock: socket.socket, words: bytes) -> bytes:
    read = b""
    while words not in read:
        piece = sock.recv(4096)
        assert piece, read
        read += piece
    return read
