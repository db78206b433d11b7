"""Access control: who may use the interface, and how often."""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlsplit

from flask import request

from apps.rest.http.problems import MIME_TYPE, HttpRefusedError, document
from apps.settings.settings import Caller
from apps.settings.tokens import Token

# The key of the common name of a client's certificate in the environment of a request.
CERTIFICATE_NAME = "dets.certificate_name"
PROBES = frozenset({"/v1/live", "/v1/ready"})
OPEN = frozenset({"/v1/openapi.json", "/docs", "/ui"}) | PROBES
_OPEN_FOLDER = "/ui/"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_NAVIGATES = ("Sec-Fetch-Mode", "navigate")  # a user follows a link, and sees the response in the browser
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="dets"'}
_MAX_ADDRESSES = 4096
_MAX_HOPS = 16
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]{1,64}){1,8}")
# Burst of requests, in seconds at the sustained rate.
BURST_S = 2.0
_BRAKE_S = 0.02  # pause before a 429


class TokenStore(Protocol):
    """A store of tokens."""

    def find(self, token: str) -> Token | None:
        """Return the record of a token, None if it is unknown or was revoked."""


WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def reject_cross_origin(tokens: TokenStore | None) -> None:
    """Raise HttpRefusedError (403, 421) for a browser's request on behalf of a foreign page.

    Such a page may send requests without a body; the browser names the site that sends them. Without tokens, a foreign
    page's host name may resolve to this machine (DNS rebinding), so only names that always mean this machine are
    served. Probes may use any name, and their responses need no protection.
    """
    if request.path in PROBES:
        return
    host = request.headers.get("Host")  # HTTP/1.0 allows requests without it: no browser sends them
    is_authenticated = tokens is not None or CERTIFICATE_NAME in request.environ
    if not is_authenticated and host is not None and not _is_this_machine(host):
        shown_host = host[:100] or "a host without a name"
        detail = f"without tokens only requests to localhost are served, not to {shown_host}: see rest.authentication"
        raise HttpRefusedError(HTTPStatus.MISDIRECTED_REQUEST, "another-host", detail)
    site, origin = request.headers.get("Sec-Fetch-Site", ""), request.headers.get("Origin", "")
    # A foreign page has no token, and cannot read the response to a navigation.
    if request.method in _READING and (tokens is not None or _NAVIGATES in request.headers.items()):
        return
    if site:
        is_foreign = site not in ("same-origin", "none")
    else:  # an older browser
        is_foreign = bool(origin) and (not host or origin.partition("://")[2].lower() != host.lower())
    if is_foreign:
        detail = f"pages of {(origin or 'another site')[:100]} may ask for nothing here"
        raise HttpRefusedError(HTTPStatus.FORBIDDEN, "another-origin", detail)


def identify(tokens: TokenStore | None) -> tuple[Caller, str]:
    """Return the client's identity and scope; raise HttpRefusedError (401, 403) if access is denied.

    Without ``tokens``, and at open paths, all clients have full access.
    """
    address = request.remote_addr or ""
    certificate = request.environ.get(CERTIFICATE_NAME)
    if tokens is None or request.path in OPEN or request.path.startswith(_OPEN_FOLDER):
        return Caller(f"certificate {certificate}" if certificate else "anonymous", address), "write"
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not credentials:
        detail = "send a token: Authorization: Bearer TOKEN; dets token on the controller's machine makes one"
        raise HttpRefusedError(HTTPStatus.UNAUTHORIZED, "token-needed", detail, headers=_CHALLENGE)
    token = tokens.find(credentials.strip())
    if token is None:
        headers = {"WWW-Authenticate": _CHALLENGE["WWW-Authenticate"] + ', error="invalid_token"'}
        detail = "the token is unknown or was revoked: dets token on the controller's machine makes another"
        raise HttpRefusedError(HTTPStatus.UNAUTHORIZED, "token-unknown", detail, headers=headers)
    if token.scope != "write" and request.method not in _READING:
        detail = f"the token {token.name} may only read: changes need one of scope write"
        headers = {"WWW-Authenticate": _CHALLENGE["WWW-Authenticate"] + ', error="insufficient_scope", scope="write"'}
        raise HttpRefusedError(HTTPStatus.FORBIDDEN, "scope", detail, headers=headers)
    return Caller(f"token {token.name}", address), token.scope


class RequestRateLimiter:
    """Allows each address a rate of requests per second, with a burst of ``BURST_S`` seconds (a token bucket).

    An IPv6 address counts by its /64, since a client controls all its addresses.
    """

    def __init__(self, requests_per_s: float, clock: Callable[[], float]) -> None:
        self._rate, self._clock = requests_per_s, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # (bucket tokens, time), the oldest first

    def wait_s(self, address: str) -> float:
        """Count a request; return 0 if it may be served, otherwise the seconds to wait."""
        now_s, size = self._clock(), max(self._rate * BURST_S, 1.0)
        key = _subnet(address)
        level, filled_s = self._buckets.pop(key, (size, now_s))
        level = min(level + (now_s - filled_s) * self._rate, size)
        is_served = level >= 1.0
        self._buckets[key] = (level - 1.0 if is_served else level), now_s
        if len(self._buckets) > _MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        return 0.0 if is_served else (1.0 - level) / self._rate


class ConnectionSlots:
    """A limited number of slots, such as connections or bytes; half of them for one address (IPv6: one /64)."""

    def __init__(self, max_connections: int) -> None:
        self._max, self._max_of_address = max_connections, (max_connections + 1) // 2
        self._held: Counter[str] = Counter()  # by subnet

    @property
    def held(self) -> int:
        """Return the number of allocated slots."""
        return self._held.total()

    def held_of(self, address: str) -> int:
        """Return the number of slots that an address has."""
        return self._held.get(_subnet(address), 0)

    def allocate(self, address: str, count: int = 1, *, for_many: bool = False) -> bool:
        """Allocate slots for an address; return False, and allocate none, if there are too few.

        With ``for_many`` the address is a proxy's, which may have all slots.
        """
        key = _subnet(address)
        limit = self._max if for_many else self._max_of_address
        if self.held + count > self._max or self._held[key] + count > limit:
            return False
        self._held[key] += count
        return True

    def release(self, address: str, count: int = 1) -> None:
        """Release slots of an address."""
        key = _subnet(address)
        self._held[key] -= count
        if not self._held[key]:
            del self._held[key]


class TrustedProxies:
    """Trusted proxies by their networks: only their ``X-Forwarded-For`` is used."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def is_trusted(self, address: str) -> bool:
        """Return whether this is a proxy's address."""
        try:
            parsed = _address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)

    def client_address(self, peer: str, forwarded_for: str | None) -> str:
        """Return the client's address; ``peer`` is the address of the connection.

        Each proxy appends the address of its client: the real client is the last one that is no proxy. If a proxy has
        appended no address, the proxy is the client.
        """
        client = peer
        for text in reversed((forwarded_for or "").split(",")[-_MAX_HOPS:]):
            if not self.is_trusted(client):
                break
            try:
                client = str(_address(_without_port(text.strip())))
            except ValueError:
                break
        return client

    def path_prefix(self, peer: str, forwarded_prefix: str | None) -> str:
        """Return the path below which a proxy serves this, such as ``/dets``; empty if it names none."""
        prefix = (forwarded_prefix or "").rstrip("/")
        return prefix if self.is_trusted(peer) and _PREFIX.fullmatch(prefix) else ""


def rate_limited(app: WsgiApp, limiter: RequestRateLimiter, sleep: Callable[[float], None]) -> WsgiApp:
    """Return the application behind a rate limiter: a request above the rate gets a 429 with ``Retry-After``.

    The 429 costs little, and is sent after a short pause, so that a connection cannot repeat requests fast.
    """

    def limited_app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        wait_s = limiter.wait_s(environ.get("REMOTE_ADDR", ""))
        if not wait_s:
            return app(environ, start_response)
        sleep(_BRAKE_S)
        detail = f"too many requests: the next is served in {wait_s:.3f} s"
        text = json.dumps(document(HTTPStatus.TOO_MANY_REQUESTS, "too-many-requests", detail)).encode()
        headers = [("Content-Type", MIME_TYPE), ("Content-Length", str(len(text)))]
        start_response("429 Too Many Requests", [*headers, ("Retry-After", str(int(wait_s) + 1))])
        return [text]

    return limited_app


def with_status_counts(app: WsgiApp, count: Counter[str]) -> WsgiApp:
    """Return the application, with the statuses of its responses counted in ``count``."""

    def counted_app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        def start(status: str, *more: Any) -> Any:
            count[status[:3]] += 1
            return start_response(status, *more)

        return app(environ, start)

    return counted_app


def _is_this_machine(host: str) -> bool:
    """Return whether a Host header names a loopback address or a name that always means this machine."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
        return name == "localhost" or name.endswith(".localhost") or _address(name).is_loopback
    except ValueError:
        return False


def _subnet(address: str) -> str:
    """Return what an address counts as in limits: itself, or for IPv6 its /64."""
    if ":" not in address:
        return address
    try:
        plain = _address(address.partition("%")[0])
    except ValueError:
        return address
    return str(plain if plain.version == 4 else ipaddress.ip_network((plain, 64), strict=False))


def _without_port(text: str) -> str:
    """Return the address in ``ADDRESS``, ``ADDRESS:PORT`` of IPv4, or ``[ADDRESS]:PORT``."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address; an IPv4 client of a dual-stack listener gets its IPv4 address. Raises ValueError."""
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if address.version == 6 else None
    return mapped or address
