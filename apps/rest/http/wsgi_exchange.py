"""One request and its response, between h11 and a WSGI application (PEP 3333)."""

from __future__ import annotations

import errno
import io
import logging
import re
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote_to_bytes

import eventlet
import h11

from apps.rest.http.access import CERTIFICATE_NAME, WsgiApp
from apps.rest.http.framing import check_trailers, chunk_size
from apps.rest.http.problems import HttpRefusedError, raw_answer
from apps.rest.http.room import Reservation

# Up to this size the rest of a rejected body is read, so that its sender can read the response; otherwise the
# connection is closed.
MAX_DISCARDED_BYTES = 2**20
READ_BYTES = 64 * 1024
_READ_CHUNKED_BYTES = 4 * 1024  # chunks read at once: waiting bytes are copied for each chunk
_MAX_CHUNKS = 32 * 1024
_WHOLE_TARGET = re.compile(r"https?://([^/?#]*)(.*)", re.IGNORECASE)

log = logging.getLogger(__name__)

_FAILED = raw_answer(
    HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", "the controller failed at this request; see its log"
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits for a client.

    ``handshake_s``: for the TLS handshake;
    ``head_s``: from the end of one request to the end of the next one's head; ``body_s``: to the end of its body;
    ``discard_s``: to the end of a body that was rejected unread; ``socket_s``: to read any part of a response.
    """

    handshake_s: float = 10.0
    head_s: float = 20.0
    body_s: float = 20.0
    discard_s: float = 5.0
    socket_s: float = 60.0


class Body(io.RawIOBase):
    """The body of a request as a file, whose bytes are reserved in ``share``.

    Reading raises OSError for a body that violates RFC 9112, section 7.1, and HttpRefusedError for a late body (408),
    or if no memory is left for its bytes (503).
    """

    def __init__(
        self, sock: Any, http: h11.Connection, request: h11.Request, timeouts: Timeouts, share: Reservation
    ) -> None:
        self._sock, self._http, self._timeouts, self._share = sock, http, timeouts, share
        fields = dict(request.headers)
        self._chunked = b"transfer-encoding" in fields
        self._left_bytes = int(fields.get(b"content-length", 0))
        self._at_chunk_line = self._chunked
        self._chunks_left = _MAX_CHUNKS
        self._unread = memoryview(b"")
        self._deadline_s: float | None = None
        self._ended = False
        if not self._chunked and not self._left_bytes:  # no body: h11's end of the message is read at once
            self._next_bytes()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read received bytes, waiting for some; return their number, 0 at the end."""
        if not self._unread and not self._ended:
            self._unread = memoryview(self._next_bytes())
        count = min(len(buffer), len(self._unread))
        self._share.add(count)
        buffer[:count] = self._unread[:count]
        self._unread = self._unread[count:]
        return count

    @property
    def may_be_discarded(self) -> bool:
        """Return whether the rest is short enough to be read and discarded, so that another request can follow."""
        is_short = not self._chunked and self._left_bytes <= MAX_DISCARDED_BYTES
        return self._ended or (is_short and not self._http.they_are_waiting_for_100_continue)

    def discard(self) -> bool:
        """Read the rest, if it is short; return whether the body has ended."""
        if not self._ended and self.may_be_discarded:
            self._deadline_s = time.monotonic() + self._timeouts.discard_s
            try:
                while self._next_bytes():
                    pass
            except (OSError, HttpRefusedError) as error:
                log.debug("REST: the rest of a body does not come: %s", error)
        return self._ended

    def _next_bytes(self) -> bytes:
        """Return the next bytes of the body, waiting for them; b"" at its end."""
        while True:
            try:
                self._check_chunk_line()
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise OSError(errno.EPROTO, str(error)) from error
            if isinstance(event, h11.Data):
                self._at_chunk_line = event.chunk_end
                self._chunks_left -= event.chunk_end
                if self._chunks_left < 0:
                    raise OSError(errno.EPROTO, f"a body may have {_MAX_CHUNKS} chunks")
                self._left_bytes -= len(event.data)
                return bytes(event.data)
            if isinstance(event, h11.EndOfMessage):
                check_trailers(event.headers)
                self._ended = True
                return b""
            self._receive()

    def _check_chunk_line(self) -> None:
        """Wait for a complete chunk line, and check it: h11 accepts longer lines, and more digits."""
        while self._at_chunk_line:
            if chunk_size(self._http.trailing_data[0]) is None:
                self._receive()
            else:
                self._at_chunk_line = False

    def _receive(self) -> None:
        """Pass received bytes to h11; raise HttpRefusedError (408) if none arrive in time."""
        if self._http.they_are_waiting_for_100_continue:
            self._sock.sendall(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        now_s = time.monotonic()
        if self._deadline_s is None:
            self._deadline_s = now_s + self._timeouts.body_s
        detail = f"the body did not come within {self._timeouts.body_s:g} s"
        too_slow = HttpRefusedError(HTTPStatus.REQUEST_TIMEOUT, "too-slow", detail)
        with eventlet.Timeout(max(self._deadline_s - now_s, 0.0), too_slow):
            eventlet.sleep(0)  # other greenlets run even if the body has arrived
            data = self._sock.recv(_READ_CHUNKED_BYTES if self._chunked else READ_BYTES)
        if not data:
            raise OSError(errno.EPROTO, "the body breaks off")
        self._http.receive_data(data)


class WsgiExchange:
    """Sends the application's response to one request; each part is reserved in ``share``, if any, while it is sent."""

    def __init__(self, sock: Any, http: h11.Connection, is_head: bool, body: Body, share: Reservation | None) -> None:
        self._sock, self._http, self._body, self._share = sock, http, body, share
        self._without_body = is_head
        self._unsent = b""
        self._has_begun = False

    def run(self, app: WsgiApp, environ: dict[str, Any]) -> None:
        """Run the application and send its response. After an incomplete response the connection is closed.

        Raises OSError if the connection fails.
        """
        pieces: Iterable[bytes] = ()
        try:
            pieces = app(environ, self._start)
            for chunk in pieces:
                if chunk:
                    self._write(chunk)
            self._flush(self._http.send(h11.EndOfMessage()) or b"")
        except OSError:
            raise
        except HttpRefusedError as refusal:
            fields = (f"{name}: {value}" for name, value in refusal.headers.items())
            self._fail(raw_answer(refusal.status, refusal.kind, refusal.detail, *fields))
        except Exception:
            log.exception("REST: a request failed")
            self._fail(_FAILED)
        finally:
            if hasattr(pieces, "close"):
                pieces.close()

    def _fail(self, answer: bytes) -> None:
        """Send ``answer`` instead of a response that has not begun; the connection is closed in any case."""
        if not self._has_begun:
            self._sock.sendall(answer)
        self._http.send_failed()

    def _start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
        """Store status and headers; they are sent with the first bytes of the response."""
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        fields.append((b"Date", formatdate(usegmt=True).encode()))
        if not self._body.may_be_discarded:
            fields.append((b"Connection", b"close"))
        code, _, reason = status.partition(" ")
        self._without_body = self._without_body or code in ("204", "304")
        response = h11.Response(status_code=int(code), headers=fields, reason=reason.encode("latin-1"))
        self._unsent = self._http.send(response)
        return self._write

    def _write(self, chunk: bytes) -> None:
        """Send a part of the body, unless the response has none (HEAD, 204, 304)."""
        if self._without_body or self._share is None:
            self._flush(b"" if self._without_body else self._http.send(h11.Data(data=chunk)))
            return
        self._share.add(len(chunk))
        self._flush(self._http.send(h11.Data(data=chunk)))
        self._share.end()

    def _flush(self, data: bytes) -> None:
        """Send the unsent head, if any, and then ``data``."""
        data, self._unsent = self._unsent + data, b""
        if data:
            self._has_begun = True
            self._sock.sendall(data)


def environ_of_connection(sock: Any, address: tuple[Any, ...]) -> dict[str, Any]:
    """Return the part of the WSGI environment that all requests of a connection share."""
    name = _common_name(sock)
    host, port = sock.getsockname()[:2]
    return {
        "REMOTE_ADDR": address[0],
        "REMOTE_PORT": str(address[1]),
        "SCRIPT_NAME": "",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "wsgi.errors": sys.stderr,
        "wsgi.input_terminated": True,  # the framing ends the body, so it may be read to its end
        "wsgi.multiprocess": False,
        "wsgi.multithread": True,
        "wsgi.run_once": False,
        "wsgi.url_scheme": "https" if isinstance(sock, ssl.SSLSocket) else "http",
        "wsgi.version": (1, 0),
        **({} if name is None else {CERTIFICATE_NAME: name}),
    }


def environ_of_request(request: h11.Request) -> dict[str, str]:
    """Return the WSGI environment (PEP 3333) from the head of a request."""
    target = request.target.decode("latin-1")
    whole = _WHOLE_TARGET.fullmatch(target)
    if whole is not None:
        target = whole[2] if whole[2].startswith("/") else f"/{whole[2]}"
    path, _, query = target.partition("?")
    environ = {
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "REQUEST_METHOD": request.method.decode("latin-1"),
        "REQUEST_URI": target,
        "SERVER_PROTOCOL": f"HTTP/{request.http_version.decode()}",
    }
    for name, value in request.headers:
        if b"_" not in name:  # it would be the same variable as the name with hyphens
            key = name.decode("latin-1").upper().replace("-", "_")
            key = key if key in ("CONTENT_LENGTH", "CONTENT_TYPE") else f"HTTP_{key}"
            text = value.decode("latin-1")
            environ[key] = f"{environ[key]},{text}" if key in environ else text
    if whole is not None:  # its host counts, not the field's (RFC 9112, section 3.2.2)
        environ["HTTP_HOST"] = whole[1]
    return environ


def _common_name(connection: Any) -> str | None:
    """Return the common name in the client's certificate, "" without one; None: the client has no certificate."""
    certificate = connection.getpeercert() if hasattr(connection, "getpeercert") else None
    if not certificate:
        return None
    names = (value for parts in certificate.get("subject", ()) for name, value in parts if name == "commonName")
    return str(next(names, ""))
