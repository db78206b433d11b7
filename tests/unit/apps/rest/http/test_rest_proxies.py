"""Proxies in front of REST: which client a request is of, for limits and history, and who may say so."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator

import pytest
from support.rest_server import CONFIG, LIMIT, VN, RestProcess, ask, read_answer

from apps.rest.http.access import TrustedProxies

PROXIES = TrustedProxies(["192.0.2.1/32", "10.0.0.0/8", "fd00::/8"])


@pytest.fixture(scope="module")
def described() -> Iterator[RestProcess]:
    with RestProcess(CONFIG, trusted_proxies=["127.0.0.9"]) as server:
        yield server


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "client"),
    [
        ("192.0.2.1", "198.51.100.7", "198.51.100.7"),
        (
            "192.0.2.1",
            "203.0.113.9, 198.51.100.7",
            "198.51.100.7",
        ),  # what the client itself has sent counts for nothing
        ("192.0.2.1", "198.51.100.7, 10.1.2.3", "198.51.100.7"),
        ("192.0.2.1", "198.51.100.7:4711,10.1.2.3:80", "198.51.100.7"),
        ("fd00::1", "[2001:db8::7]:443", "2001:db8::7"),
        ("::ffff:192.0.2.1", "2001:db8::7", "2001:db8::7"),
        ("192.0.2.1", "::ffff:198.51.100.7", "198.51.100.7"),
        ("192.0.2.1", None, "192.0.2.1"),
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "198.51.100.7, unknown", "192.0.2.1"),
        ("192.0.2.1", "198.51.100.7, nonsense, 10.1.2.3", "10.1.2.3"),
        ("198.51.100.9", "198.51.100.7", "198.51.100.9"),  # nobody's proxy
        ("192.0.2.1", "198.51.100.7," + "10.1.2.3," * 99 + "10.9.9.9", "10.1.2.3"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_proxys(peer: str, forwarded_for: str | None, client: str) -> None:
    assert PROXIES.client_address(peer, forwarded_for) == client
    assert TrustedProxies().client_address(peer, forwarded_for) == peer


def test_limits_and_history_are_the_clients_where_the_proxy_is_trusted() -> None:
    with RestProcess(CONFIG, requests_per_s=1, trusted_proxies=["127.0.0.9"]) as server:

        def get(source: str, client: str, body: object = None) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30, source_address=(source, 0))
            headers = {"X-Forwarded-For": client}
            return ask(connection, "GET" if body is None else "PATCH", VN, body, headers)[0]

        assert [get("127.0.0.9", "198.51.100.7") for _ in range(4)][2:] == [429, 429]
        assert get("127.0.0.9", "198.51.100.8", LIMIT) == 200
        assert get("127.0.0.1", "198.51.100.10", {"send_limit_bps": 20_000_000}) == 200
        claims = [get("127.0.0.1", f"198.51.100.{10 + n}") for n in range(4)]
        assert 429 in claims  # another address in each request makes no other client
        history = server.request("GET", "/v1/history", headers={"X-Forwarded-For": "1.2.3.4"})
        while history[0] == 429:
            history = server.request("GET", "/v1/history")
        assert [change["address"] for change in history[2]["changes"][:2]] == ["127.0.0.1", "198.51.100.8"]


@pytest.mark.parametrize(
    ("source", "prefix", "servers"),
    [
        ("127.0.0.9", "/dets", [{"url": "/dets"}]),
        ("127.0.0.9", "/a/dets-2/", [{"url": "/a/dets-2"}]),
        ("127.0.0.9", "//elsewhere.lab", None),
        ("127.0.0.9", "https://elsewhere.lab", None),
        ("127.0.0.9", "/dets, /more", None),
        ("127.0.0.9", "", None),
        ("127.0.0.1", "/dets", None),  # nobody's proxy
    ],
)
def test_the_description_names_the_path_below_which_a_proxy_serves(
    described: RestProcess, source: str, prefix: str, servers: object
) -> None:
    for version in ("3.0", "3.1"):
        connection = http.client.HTTPConnection("127.0.0.1", described.port, timeout=60, source_address=(source, 0))
        headers = {"X-Forwarded-Prefix": prefix}
        status, _, document = ask(connection, "GET", f"/v1/openapi.json?version={version}", None, headers)
        assert (status, document.get("servers")) == (200, servers)
        assert "/v1/vns" in document["paths"]


def test_a_proxy_may_have_all_connections_and_another_address_half() -> None:
    with (
        RestProcess(CONFIG, max_connections=8, trusted_proxies=["127.0.0.9"]) as server,
        contextlib.ExitStack() as held,
    ):
        proxied = [held.enter_context(server.connect("127.0.0.9")) for _ in range(7)]
        other = [held.enter_context(server.connect("127.0.0.2")) for _ in range(2)]
        for sock in (*proxied, other[0]):
            sock.sendall(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_answer(sock)[0] == 200
        assert read_answer(other[1])[0] == 503
