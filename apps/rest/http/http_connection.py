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
        self._memory_limits, self._proxies = memory_limits, proxies
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
        for_body, for_answer = (Reservation(limit, client) for limit in self._memory_limits)
        body = Body(self._sock, http, request, self._timeouts, for_body)
        # The response to a change needs no memory reservation: the change was made, and cannot be rejected any longer.
        reservation = for_answer if request.method == b"GET" else None
        try:
            exchange = WsgiExchange(self._sock, http, request.method == b"HEAD", body, reservation)
            exchange.run(self._app, {**environ, "REMOTE_ADDR": client, "wsgi.input": body})
        finally:
            for_body.end()
            for_answer.end()
        if not body.discard():
            self._linger()
            return False
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        self._received = http.trailing_data[0]
        return True

    def _read_head(self) -> bytes:
        """Return the head of the next request, b"" if the client has disconnected.

        Raises _NoRequestError if the head is invalid, or late.
        """
        with eventlet.Timeout(self._timeouts.head_s, False):
            return self._read_to_end_of_head()
        # The time is over.
        if not self._received:  # a client that has sent nothing gets no response
            return b""
        raise _NoRequestError(_TOO_SLOW)

    def _read_to_end_of_head(self) -> bytes:
        """Return the head of the next request, b"" if the client has disconnected; keep the bytes received behind it.

        Each line is checked as soon as it is complete, so that an invalid head is rejected before its end.
        """
        scanned_bytes, has_line = 0, False
        while True:
            received = self._received
            if received:
                self._wait()
            start = 2 if received.startswith(b"\r\n") else 0  # an empty line may come first (RFC 9112, section 2.2)
            end = received.find(_END, max(scanned_bytes - 3, start))  # its first 3 bytes may have come before
            has_line = has_line or _has_request_line(received[start:])
            size = end if end >= 0 else len(received)
            lone_line_feed = LONE_LINE_FEED.search(received, max(scanned_bytes - 1, start), size)
            if lone_line_feed is not None:
                line = received[: lone_line_feed.end()].rpartition(b"\r\n")[2]
                raise _NoRequestError(_not_http(f"a line of the head ends without a carriage return: {shown(line)}"))
            if size > MAX_HEAD_BYTES:
                raise _NoRequestError(_HEAD_TOO_LARGE)
            if end >= 0:
                self._received = received[end + len(_END) :]
                _check_head(received[start:end])
                return received[start : end + len(_END)]
            scanned_bytes = len(received)
            data = self._sock.recv(READ_BYTES)
            if not data and received:
                raise _NoRequestError(_not_http("the head ends before its empty line"))
            if not data:
                return b""
            self._received += data

    def _refuse(self, answer: bytes) -> None:
        """Send a complete response, after which the connection is closed."""
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
    line, line_end, _ = received.partition(b"\r\n")
    if len(line) > MAX_LINE_BYTES:
        raise _NoRequestError(_LINE_TOO_LONG)
    fault = fault_of_request_line(line) if line_end else None
    if fault is not None:
        raise _NoRequestError(_not_http(fault))
    if line_end and not line[:-1].endswith(b" HTTP/1."):
        detail = "only HTTP/1.1 and HTTP/1.0 are understood"
        raise _NoRequestError(raw_answer(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "not-http", detail))
    return bool(line_end)


def _check_head(head: bytes) -> None:
    """Raise _NoRequestError if a head, without its empty line, is invalid."""
    line, *lines = head.split(b"\r\n")
    if len(lines) > MAX_FIELDS or max(map(len, lines), default=0) > MAX_LINE_BYTES:
        raise _NoRequestError(_HEAD_TOO_LARGE)
    fault = head_error(lines, line[-len("HTTP/1.1") :].decode())
    if fault is not None:
        raise _NoRequestError(_not_http(fault))


def _not_http(detail: str) -> bytes:
    """Return the complete response to bytes that are no request."""
    return raw_answer(HTTPStatus.BAD_REQUEST, "not-http", detail)
