"""One client's connection: h11 reads requests, bounded in time and size, and a WSGI application responds."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple

import eventlet
import h11

from apps.rest.http.access import TrustedProxies, WsgiApp
from apps.rest.http.framing import LONE_LINE_FEED, MAX_TRAILERS_BYTES, fault_of_request_line, head_error, shown
from apps.rest.http.problems import raw_answer
from apps.rest.http.room import MemoryLimit, Reservation
from apps.rest.http.wsgi_exchange import (
    MAX_DISCARDED_BYTES,
    READ_BYTES,
    Body,
    Timeouts,
    WsgiExchange,
    environ_of_connection,
    environ_of_request,
)

MAX_LINE_BYTES = 8 * 1024
MAX_HEAD_BYTES = 64 * 1024
MAX_FIELDS = 100
_LINGER_S = 1.0
_MAX_DETAIL = 300
_END = b"\r\n\r\n"

log = logging.getLogger(__name__)

_TOO_SLOW = raw_answer(HTTPStatus.REQUEST_TIMEOUT, "too-slow", "the request did not come in time")
_HEAD_TOO_LARGE = raw_answer(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "head-too-large",
    f"a line of the head may have 8 KiB, all of them together 64 KiB, and there may be {MAX_FIELDS} fields",
)
_LINE_TOO_LONG = raw_answer(HTTPStatus.REQUEST_URI_TOO_LONG, "uri-too-long", "the line of the request may have 8 KiB")


class _NoRequestError(Exception):
    """A client has sent bytes that are no request; ``answer`` is the response."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        super().__init__(answer)


class MemoryLimits(NamedTuple):
    """The memory limits of long bodies and long responses."""

    bodies: MemoryLimit
    answers: MemoryLimit


class Connection:
    """Serves the requests on ``sock``, one after the other, until either side ends it.

    ``wait`` returns when it is the caller's turn to read bytes, and to serve a complete request. A connection of one of
    the ``proxies`` carries requests of several clients.
    """

    def __init__(
        self,
        sock: Any,
        address: tuple[Any, ...],
        app: WsgiApp,
        timeouts: Timeouts,
        wait: Callable[[], None],
        memory_limits: MemoryLimits,
        proxies: TrustedProxies,
    ) -> None:
        self._sock, self._address, self._app, self._timeouts, self._wait = sock, address, app, timeouts, wait
        self._rooms, self._proxies = memory_limits, proxies
        self._received = b""  # not yet passed to h11
        sock.settimeout(timeouts.socket_s)
        self._environ = environ_of_connection(sock, address)

    def serve(self) -> None:
        """Serve until the connection ends, and close it."""
        try:
            while self._serve_one():
                eventlet.sleep(0)  # other greenlets run between requests that arrived at once
        except (OSError, ValueError) as error:  # of TLS, or of a closed socket
            log.debug("REST: %s: %s", self._address, error)
        finally:
            self._sock.close()

    def _serve_one(self) -> bool:
        """Read and serve a request; return whether another may follow."""
        try:
            head = self._read_head()
        except _NoRequestError as refusal:
            self._refuse(refusal.answer)
            return False
        if not head:
            return False
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_TRAILERS_BYTES)
        try:
            http.receive_data(head)
            request = http.next_event()
            assert isinstance(request, h11.Request)
        except h11.RemoteProtocolError as error:
            self._refuse(_not_http(f"this cannot be read as a request of HTTP/1.1: {error}"[:_MAX_DETAIL]))
            return False
        if self._received:
            http.receive_data(self._received)
            self._received = b""
        environ = {**self._environ, **environ_of_request(request)}
        peer, proxies = self._address[0], self._proxies
        client = proxies.client_address(peer, environ.get("HTTP_X_FORWARDED_FOR"))
        environ["SCRIPT_NAME"] = proxies.path_prefix(peer, environ.get("HTTP_X_FORWARDED_PREFIX"))
        body_share, answer_share = (Reservation(room, client) for room in self._rooms)
        body = Body(self._sock, http, request, self._timeouts, body_share)
        # A change that was made cannot be rejected any longer.
        share = answer_share if request.method == b"GET" else None
        try:
            exchange = WsgiExchange(self._sock, http, request.method == b"HEAD", body, share)
            exchange.run(self._app, {**environ, "REMOTE_ADDR": client, "wsgi.input": body})
        finally:
            body_share.end()
            answer_share.end()
        if not body.discard():
            self._linger()
            return False
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        self._received = http.trailing_data[0]
        return True

    def _read_head(self) -> bytes:
        """Return the next request's head, b"" if the client has closed; raise _NoRequestError if it is invalid."""
        with eventlet.Timeout(self._timeouts.head_s, False):
            return self._read_to_end_of_head()
        if not self._received:  # a client that has sent nothing gets no response
            return b""
        raise _NoRequestError(_TOO_SLOW)

    def _read_to_end_of_head(self) -> bytes:
        """Return the head of the next request, and keep what was received behind it; b"" at the end."""
        looked_at, has_line = 0, False
        while True:
            received = self._received
            if received:
                self._wait()
            start = 2 if received.startswith(b"\r\n") else 0  # an empty line may come first (RFC 9112, section 2.2)
            end = received.find(_END, max(looked_at - 3, start))
            has_line = has_line or _has_request_line(received[start:])
            size = end if end >= 0 else len(received)
            lone = LONE_LINE_FEED.search(received, max(looked_at - 1, start), size)
            if lone is not None:
                line = received[: lone.end()].rpartition(b"\r\n")[2]
                raise _NoRequestError(_not_http(f"a line of the head ends without a carriage return: {shown(line)}"))
            if size > MAX_HEAD_BYTES:
                raise _NoRequestError(_HEAD_TOO_LARGE)
            if end >= 0:
                self._received = received[end + len(_END) :]
                _check_head(received[start:end])
                return received[start : end + len(_END)]
            looked_at = len(received)
            data = self._sock.recv(READ_BYTES)
            if not data and received:
                raise _NoRequestError(_not_http("the head ends before its empty line"))
            if not data:
                return b""
            self._received += data

    def _refuse(self, answer: bytes) -> None:
        self._sock.sendall(answer)
        self._linger()

    def _linger(self) -> None:
        """Signal the end of the response, and read on: unread bytes would make the kernel drop the response."""
        self._sock.shutdown(socket.SHUT_WR)
        with eventlet.Timeout(_LINGER_S, False):
            for _ in range(MAX_DISCARDED_BYTES // READ_BYTES):
                if not self._sock.recv(READ_BYTES):
                    return


def _has_request_line(received: bytes) -> bool:
    """Return whether the request line is complete; raise _NoRequestError if it is invalid."""
    line, found, _ = received.partition(b"\r\n")
    if len(line) > MAX_LINE_BYTES:
        raise _NoRequestError(_LINE_TOO_LONG)
    wrong = fault_of_request_line(line) if found else None
    if wrong is not None:
        raise _NoRequestError(_not_http(wrong))
    if found and not line[:-1].endswith(b" HTTP/1."):
        detail = "only HTTP/1.1 and HTTP/1.0 are understood"
        raise _NoRequestError(raw_answer(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "not-http", detail))
    return bool(found)


def _check_head(head: bytes) -> None:
    """Raise _NoRequestError if a head, without its empty line, is invalid."""
    line, *lines = head.split(b"\r\n")
    if len(lines) > MAX_FIELDS or max(map(len, lines), default=0) > MAX_LINE_BYTES:
        raise _NoRequestError(_HEAD_TOO_LARGE)
    wrong = head_error(lines, line[-len("HTTP/1.1") :].decode())
    if wrong is not None:
        raise _NoRequestError(_not_http(wrong))


def _not_http(detail: str) -> bytes:
    return raw_answer(HTTPStatus.BAD_REQUEST, "not-http", detail)
