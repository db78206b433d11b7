"""The HTTP server: eventlet's, so that requests are served by the hub that also serves the switches.

Whoever sends slowly, or much, or opens many connections, is cut off in time and told so; nobody else waits for them.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from apps.rest.http.access import Places
from apps.rest.http.protocol import Patience, protocol, raw_answer
from apps.runtime.lasting_listener import LastingListener

# How long a client may take nothing of an answer, or an event stream may be silent.
SOCKET_TIMEOUT_S = 60
MAX_CONNECTIONS = 256
# So many connections beyond the most are told so at a time; further ones are closed at once.
_TURNED_AWAY_AT_ONCE = 64

log = logging.getLogger(__name__)

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_TOO_MANY = raw_answer(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too-many-connections",
    "there are too many connections, or too many from one address; come again later",
    "Retry-After: 1",
)
PATIENT = Patience()


@dataclass
class RestServer:
    """A running server; ``port`` is the TCP port it listens on."""

    port: int
    _listener: socket.socket
    _greenlet: Any

    def stop(self) -> None:
        """Stop accepting connections and close the socket; requests under way are finished by their own greenlets."""
        self._greenlet.kill()
        self._listener.close()


def serve(
    app: WsgiApp,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    max_connections: int = MAX_CONNECTIONS,
    patience: Patience = PATIENT,
) -> RestServer:
    """Serve a WSGI application at an address, in a greenlet of its own; port 0 takes any free one.

    Raises OSError when the address cannot be listened on. Requests run in the caller's hub, one at a time between their
    waits for the socket. With ``tls`` HTTPS is served.
    """
    import eventlet
    import eventlet.wsgi

    places = Places(max_connections)
    turned_away = eventlet.GreenPool(_TURNED_AWAY_AT_ONCE)

    class Pool(eventlet.GreenPool):  # type: ignore[misc]
        """Serves those who get a place, and tells the others that they are too many."""

        def spawn(self, function: Callable[..., Any], connection: list[Any]) -> Any:
            address = connection[0][0]
            if not places.take(address):
                return turned_away.spawn(_turn_away, connection) if turned_away.free() else super().spawn(_drop)
            greenlet = super().spawn(_welcome, function, connection)
            greenlet.link(lambda _: places.give_back(address))
            return greenlet

    def _turn_away(connection: list[Any]) -> None:
        connection[1].settimeout(1.0)
        try:
            if tls is None:
                connection[1].sendall(_TOO_MANY)
                connection[1].shutdown(socket.SHUT_WR)
                connection[1].recv(65536)  # unread bytes would make the kernel throw the answer away
        except OSError as error:
            log.debug("REST: %s: %s", connection[0], error)

    def _drop() -> None:
        """Let it be closed: as many are being turned away as can be."""

    def _welcome(serve_it: Callable[..., Any], connection: list[Any]) -> None:
        if tls is not None:
            plain = connection[1]
            plain.settimeout(patience.handshake_s)
            try:
                with eventlet.Timeout(patience.handshake_s, TimeoutError("the handshake takes too long")):
                    connection[1] = tls.wrap_socket(plain, server_side=True)
            except (OSError, ValueError) as error:  # ssl.SSLError among them: no certificate, or not TLS at all
                log.info("REST: no TLS with %s: %s", connection[0], error)
                plain.close()
                return
            connection[1].settimeout(SOCKET_TIMEOUT_S)
        try:
            serve_it(connection)
        except OSError as error:
            log.debug("REST: %s: %s", connection[0], error)

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = eventlet.listen((host, port), family)
    greenlet = eventlet.spawn(
        eventlet.wsgi.server,
        LastingListener(listener, "REST", eventlet.sleep),
        app,
        protocol=protocol(patience),
        # The server's own reader knows where a chunked body ends, so the application may read to the end.
        environ={"wsgi.input_terminated": True, "wsgi.url_scheme": "http" if tls is None else "https"},
        minimum_chunk_size=1,
        debug=False,
        custom_pool=Pool(max_connections + 1),
        socket_timeout=SOCKET_TIMEOUT_S,
        log_output=False,
    )
    return RestServer(listener.getsockname()[1], listener, greenlet)
