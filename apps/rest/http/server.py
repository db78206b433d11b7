"""The HTTP server: greenlets of the hub that also serves the switches handle connections.

A client that is slow, sends too much, or opens too many connections gets an error and is disconnected; other clients do
not wait.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import eventlet

from apps.rest.http.access import ConnectionSlots, TrustedProxies, WsgiApp
from apps.rest.http.http_connection import Connection, MemoryLimits
from apps.rest.http.problems import raw_answer
from apps.rest.http.room import MAX_ANSWERS_BYTES, MAX_BODIES_BYTES, MemoryLimit
from apps.rest.http.wsgi_exchange import Timeouts
from apps.runtime.connection.connection_limits import LogRateLimiter
from apps.runtime.retrying_listener import RetryingListener, listening_address
from apps.runtime.tls import RenewableContext
from apps.runtime.tls_handshake import do_handshake

MAX_CONNECTIONS = 256
# Connections above the limit that are answered at a time; further ones are closed at once.
_MAX_REJECTING = 64

log = logging.getLogger(__name__)

_TOO_MANY = raw_answer(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too-many-connections",
    "there are too many connections, or too many from one address; try again later",
    "Retry-After: 1",
)
DEFAULT_TIMEOUTS = Timeouts()


@dataclass
class RestServer:
    """A running server; ``port`` is the TCP port it listens on."""

    port: int
    _listener: socket.socket
    _greenlet: Any

    def stop(self) -> None:
        """Stop accepting connections and close the socket; running requests finish in their own greenlets."""
        self._greenlet.kill()
        self._listener.close()


def serve(
    app: WsgiApp,
    host: str,
    port: int,
    tls: RenewableContext | None = None,
    max_connections: int = MAX_CONNECTIONS,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    wait: Callable[[], None] = lambda: None,
    trusted_proxies: Iterable[str] = (),
) -> RestServer:
    """Serve a WSGI application at an address, in its own greenlet; port 0 uses any free one.

    Raises OSError if listening there fails. Requests run in the caller's hub, one at a time between their waits for the
    socket. With ``tls`` HTTPS is served. ``wait`` returns when it is the caller's turn for a request, or a step of a
    handshake. Requests from ``trusted_proxies`` (IP networks) count for the clients that these name.
    """
    family, address = listening_address(host, port)
    listener = eventlet.listen(address, family)
    acceptor = _Acceptor(app, tls, ConnectionSlots(max_connections), timeouts, wait, TrustedProxies(trusted_proxies))
    greenlet = eventlet.spawn(acceptor.accept_from, RetryingListener(listener, "REST", eventlet.sleep))
    return RestServer(listener.getsockname()[1], listener, greenlet)


@dataclass
class _Acceptor:
    """Accepts connections: serves those that get a slot, and rejects the others with an error."""

    app: WsgiApp
    tls: RenewableContext | None
    slots: ConnectionSlots
    timeouts: Timeouts
    wait: Callable[[], None]
    proxies: TrustedProxies
    turning_away: int = 0
    memory_limits: MemoryLimits = field(
        default_factory=lambda: MemoryLimits(
            MemoryLimit("bodies", MAX_BODIES_BYTES), MemoryLimit("answers", MAX_ANSWERS_BYTES)
        )
    )
    log_limiter: LogRateLimiter = field(default_factory=lambda: LogRateLimiter(time.monotonic))

    def accept_from(self, listener: RetryingListener) -> None:
        """Accept connections until the listener is closed."""
        while True:
            sock, address = listener.accept()
            if self.slots.allocate(address[0], for_many=self.proxies.is_trusted(address[0])):
                eventlet.spawn(self._serve, sock, address)
            elif self.turning_away < _MAX_REJECTING:
                self.turning_away += 1
                eventlet.spawn(self._reject, sock, address)
            else:
                sock.close()
            eventlet.sleep(0)  # other greenlets run between many simultaneous connections

    def _serve(self, sock: Any, address: tuple[Any, ...]) -> None:
        """Serve one client's connection until it ends, and free its slot."""
        try:
            secured = sock if self.tls is None else self._secure(sock, self.tls.current)
            Connection(secured, address, self.app, self.timeouts, self.wait, self.memory_limits, self.proxies).serve()
        except (OSError, ValueError) as error:  # including ssl.SSLError: no certificate, or no TLS
            if self.log_limiter.due(address[0]):
                log.info("REST: no connection with %s: %s", address, error)
        finally:
            sock.close()
            self.slots.release(address[0])

    def _secure(self, sock: Any, tls: ssl.SSLContext) -> Any:
        """Return the TLS connection over a socket; TimeoutError if the handshake takes too long."""
        connection = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        try:
            with eventlet.Timeout(self.timeouts.handshake_s, TimeoutError("the handshake takes too long")):
                do_handshake(connection, self.timeouts.handshake_s, self.wait)
        except BaseException:
            connection.close()
            raise
        return connection

    def _reject(self, sock: Any, address: tuple[Any, ...]) -> None:
        """Answer a client for which there is no slot, and close its connection."""
        try:
            if self.tls is None:
                sock.settimeout(1.0)
                sock.sendall(_TOO_MANY)
                sock.shutdown(socket.SHUT_WR)
                sock.recv(65536)  # unread bytes would make the kernel discard the response
        except OSError as error:
            log.debug("REST: %s: %s", address, error)
        finally:
            sock.close()
            self.turning_away -= 1
