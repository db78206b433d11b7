"""Who may use the REST interface: tokens, certificates, names of hosts, pages of other sites."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from support.rest_server import CONFIG, LIMIT, PROBLEM, VN, RestProcess, ask, read_answer

from apps.cli.support.certificates import create_authority, issue
from apps.settings.tokens import Tokens

# -- tokens


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RestProcess, Tokens]]:
    store = tmp_path_factory.mktemp("guarded") / "x.db"
    with RestProcess(CONFIG, store, tokens=True) as server, contextlib.closing(Tokens(str(store))) as tokens:
        yield server, tokens


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


def test_a_client_without_a_certificate_gets_nothing_and_one_with_is_named(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("apps.cli.support.certificates._subject", lambda *_: x509.Name([]))
        issue(certificates, "nameless", 10, None)
    files = {name: str(certificates / f"server.{end}") for name, end in (("certificate", "pem"), ("key", "key"))}
    with RestProcess(CONFIG, tls={**files, "client_ca": str(certificates / "ca.pem")}) as server:
        plain = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.BadStatusLine)):
            ask(http.client.HTTPSConnection("127.0.0.1", server.port, context=plain, timeout=30), "GET", VN)
        with server.connect() as sock:
            sock.sendall(b"GET /v1/vns HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert b"200" not in sock.recv(1000)

        def secure(method: str, path: str, body: object = None) -> tuple[int, Any, Any]:
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=30)
            return ask(connection, method, path, body, {"Host": "controller.example"})

        for name, who in (("portal", "certificate portal"), ("nameless", "anonymous")):
            context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
            context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
            assert secure("PATCH", VN, LIMIT)[0] == 200
            assert secure("GET", "/v1/history")[2]["changes"][0]["who"] == who


# -- hosts and pages of other sites


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
        for method in ("GET", "OPTIONS"):  # and read nothing where no token is needed
            assert one.request(method, VN, headers=headers)[0] == 403
        followed = headers | {"Sec-Fetch-Mode": "navigate"}
        assert one.request("GET", "/docs", headers=followed)[0] == 200
    own = ({}, {"Origin": f"http://{here}"}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"})
    for headers in own:
        assert one.request("PATCH", VN, LIMIT, headers)[0] == 200
        assert one.request("GET", VN, headers=headers)[0] == 200


def test_with_tokens_any_name_leads_here_and_pages_of_others_may_read_with_one(
    guarded: tuple[RestProcess, Tokens],
) -> None:
    server, tokens = guarded
    headers = bearer(tokens.create("foreign-pages", "write")) | {"Host": "controller.example"}
    assert server.request("GET", VN, headers=headers)[0] == 200
    headers["Origin"] = "https://portal.example"
    assert server.request("GET", VN, headers=headers)[0] == 200
    assert server.request("PATCH", VN, LIMIT, headers)[0] == 403
    nameless = headers | {"Host": "", "Origin": "null"}  # two that name nothing are not the same place
    assert server.request("PATCH", VN, LIMIT, nameless)[0] == 403


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /v1/health HTTP/1.1\r\nHost:\r\n", 421),
        (b"GET /v1/health HTTP/1.1\r\nHost: :80\r\n", 421),
        (b"GET /v1/health HTTP/1.0\r\nHost: \r\n", 421),
        (b"GET http:///v1/health HTTP/1.1\r\nHost: localhost\r\n", 421),
        (b"GET /v1/health HTTP/1.1\r\n", 400),
        (b"GET /v1/health HTTP/1.0\r\n", 200),  # as health checks ask, and no browser
    ],
)
def test_a_host_without_a_name_is_not_this_machine(one: RestProcess, head: bytes, status: int) -> None:
    with one.connect() as sock:
        sock.sendall(head + b"Connection: close\r\n\r\n")
        found, mime_type, problem = read_answer(sock)
    assert found == status
    if status == 421:
        assert mime_type == PROBLEM
        assert "not to a host without a name: see rest.authentication" in problem["detail"] or ":80" in str(head)
