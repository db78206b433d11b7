"""The HTTP server: eventlet's, so that requests are served by the hub that also serves the switches."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from apps.rest.problems import MIME_TYPE

SOCKET_TIMEOUT_S = 60
# A refused body up to this size is read to its end, so that its sender reads the answer; a larger one is cut off.
_MAX_DISCARDED_BYTES = 2**20

_NOT_HTTP = (
    '{"type": "urn:dets:problem:not-http", "title": "Bad Request", "status": %(code)d, '
    '"detail": "this is not a request of HTTP/1.1 or HTTP/1.0"}'
)

log = logging.getLogger(__name__)

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


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


def serve(app: WsgiApp, host: str, port: int) -> RestServer:
    """Serve a WSGI application at an address, in a greenlet of its own; port 0 takes any free one.

    Raises OSError when the address cannot be listened on. Requests run in the caller's hub, one at a time between their
    waits for the socket.
    """
    import eventlet
    import eventlet.wsgi

    class Protocol(eventlet.wsgi.HttpProtocol):  # type: ignore[misc]
        """Ends a connection on which the next request may stand behind an endless unread body.

        What is not HTTP at all is answered with a problem document as well, and does not write to stderr.
        """

        # What is no request has no version either; at 0.9, the library's default, the answer would have no status.
        default_request_version = "HTTP/1.0"
        error_content_type = MIME_TYPE
        error_message_format = _NOT_HTTP

        def log_message(self, format: str, *args: Any) -> None:
            log.debug(format, *args)

        def handle_one_response(self) -> None:
            chunked = self.headers.get("transfer-encoding") is not None
            if chunked or int(self.headers.get("content-length", 0)) > _MAX_DISCARDED_BYTES:
                self.close_connection = True
            super().handle_one_response()

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = eventlet.listen((host, port), family)
    greenlet = eventlet.spawn(
        eventlet.wsgi.server,
        listener,
        app,
        protocol=Protocol,
        # The server's own reader knows where a chunked body ends, so the application may read to the end.
        environ={"wsgi.input_terminated": True},
        minimum_chunk_size=1,
        debug=False,
        socket_timeout=SOCKET_TIMEOUT_S,
        log_output=False,
    )
    return RestServer(listener.getsockname()[1], listener, greenlet)
