"""How requests are read from a connection: the library's way, but bounded in time and size, and as RFC 9112 has it."""

from __future__ import annotations

import errno
import json
import logging
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from apps.rest.http.access import CERTIFICATE_NAME
from apps.rest.http.body import BODY_DEADLINE
from apps.rest.http.framing import ChunksRead, LinesRead, fault, fault_of_request_line
from apps.rest.http.problems import MIME_TYPE, HttpRefusedError

# A refused body up to this size is read to its end, so that its sender reads the answer; a larger one is cut off.
_MAX_DISCARDED_BYTES = 2**20
_MAX_DETAIL = 300
_WHOLE_TARGET = re.compile(r"https?://([^/?#]*)(.*)", re.IGNORECASE)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds a client may take.

    ``head_s``: from the end of one request to the end of the next one's head; ``body_s``: to the end of its body;
    ``discard_s``: to the end of a body that was refused unread.
    """

    handshake_s: float = 10.0
    head_s: float = 20.0
    body_s: float = 20.0
    discard_s: float = 5.0


def raw_answer(status: HTTPStatus, kind: str, detail: str, *fields: str) -> bytes:
    """Return a whole answer, a problem document, behind which the connection is closed; ``fields`` are header lines."""
    problem = {"type": f"urn:dets:problem:{kind}", "title": status.phrase, "status": status.value, "detail": detail}
    text = json.dumps(problem).encode()
    given = (f"Content-Type: {MIME_TYPE}", f"Content-Length: {len(text)}", "Connection: close", *fields)
    return "\r\n".join((f"HTTP/1.1 {status.value} {status.phrase}", *given, "", "")).encode() + text


_TOO_SLOW = raw_answer(HTTPStatus.REQUEST_TIMEOUT, "too-slow", "the request did not come in time")
_HEAD_TOO_LARGE = raw_answer(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "head-too-large",
    "a line of the head may have 8 KiB, all of them together 64 KiB",
)
_LINE_TOO_LONG = raw_answer(HTTPStatus.REQUEST_URI_TOO_LONG, "uri-too-long", "the line of the request may have 8 KiB")


def protocol(patience: Patience) -> type[Any]:
    """Return the class that serves a connection for eventlet's server."""
    import eventlet
    import eventlet.wsgi

    class Protocol(eventlet.wsgi.HttpProtocol):  # type: ignore[misc]
        """Ends a connection that is slow, or on which the next request may stand behind an endless unread body.

        What is no request is answered with a problem document as well, and does not write to stderr.
        """

        # What is no request has no version either; at 0.9, the library's default, the answer would have no status.
        default_request_version = "HTTP/1.0"

        def log_message(self, format: str, *args: Any) -> None:
            log.debug(format, *args)

        def handle_one_request(self) -> None:
            eventlet.sleep(0)  # requests that came in one piece give others their turn in between
            self.raw_requestline = b""
            self.head_timer = eventlet.Timeout(patience.head_s)
            try:
                super().handle_one_request()
            except eventlet.Timeout as timeout:
                if timeout is not self.head_timer:
                    raise
                self.close_connection = True
                if self.raw_requestline:  # it has begun: who has sent nothing has asked for nothing
                    self.wfile.write(_TOO_SLOW)
            except (OSError, ValueError) as error:  # of TLS, or of a socket that has gone
                log.debug("REST: %s: %s", self.client_address, error)
                self.close_connection = True
            finally:
                self.head_timer.cancel()

        def _read_request_line(self) -> bytes:
            line: bytes = super()._read_request_line()
            if line in (b"\r\n", b"\n"):  # one may stand before a request (RFC 9112, section 2.2)
                line = super()._read_request_line()
            if len(line) < eventlet.wsgi.MAX_REQUEST_LINE:
                return line
            self.refuse(_LINE_TOO_LONG)
            return b""

        def parse_request(self) -> bool:
            """Parse a head; refuse one that is not as it has to be."""
            wrong = fault_of_request_line(self.raw_requestline)
            if wrong is not None:
                return self.refuse(raw_answer(HTTPStatus.BAD_REQUEST, "not-http", wrong))
            read = self.rfile = LinesRead(self.rfile)
            try:
                if not super().parse_request():
                    return False
            except (eventlet.wsgi.HeaderLineTooLong, eventlet.wsgi.HeadersTooLarge):
                return self.refuse(_HEAD_TOO_LARGE)
            wrong = fault(read.lines, self.request_version)
            if wrong is not None:
                return self.refuse(raw_answer(HTTPStatus.BAD_REQUEST, "not-http", wrong))
            whole = _WHOLE_TARGET.fullmatch(self.path)
            if whole is not None:  # what it names counts, and not the field (RFC 9112, section 3.2.2)
                self.path = whole[2] if whole[2].startswith("/") else f"/{whole[2]}"
                del self.headers["Host"]
                self.headers["Host"] = whole[1]
            return True

        def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
            """Answer what the library cannot read as a request."""
            status = HTTPStatus(code)
            kind = "head-too-large" if status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE else "not-http"
            detail = f"this cannot be read as a request of HTTP/1.1 or HTTP/1.0: {message or status.phrase}"
            self.refuse(raw_answer(status, kind, detail[:_MAX_DETAIL]))

        def refuse(self, answer: bytes) -> bool:
            self.close_connection = True
            self.wfile.write(answer)
            return False

        def finish(self) -> None:
            """End the connection: the library's own leaves it open, for good, when the client has gone before."""
            try:
                super().finish()
            finally:
                self.rfile.close()

        def handle_one_response(self) -> None:
            self.head_timer.cancel()
            chunked = self.headers.get("transfer-encoding") is not None
            if chunked or int(self.headers.get("content-length", 0)) > _MAX_DISCARDED_BYTES:
                self.close_connection = True
            super().handle_one_response()

        def get_environ(self) -> dict[str, Any]:
            environ: dict[str, Any] = super().get_environ()
            body = environ["eventlet.input"]
            if body.chunked_input:
                body.rfile = ChunksRead(self.rfile)
            read_rest = body.discard

            def discard() -> None:
                with eventlet.Timeout(
                    patience.discard_s, OSError(errno.ETIMEDOUT, "the rest of the body does not come")
                ):
                    read_rest()

            body.discard = discard
            environ[BODY_DEADLINE] = body_deadline
            name = _common_name(self.connection)
            if name is not None:
                environ[CERTIFICATE_NAME] = name
            return environ

    def body_deadline() -> Any:
        detail = f"the body did not come within {patience.body_s:g} s"
        return eventlet.Timeout(patience.body_s, HttpRefusedError(HTTPStatus.REQUEST_TIMEOUT, "too-slow", detail))

    return Protocol


def _common_name(connection: Any) -> str | None:
    """Return the common name in the certificate that the client has shown, "" without one; None: it has shown none."""
    certificate = connection.getpeercert() if hasattr(connection, "getpeercert") else None
    if not certificate:
        return None
    names = (value for parts in certificate.get("subject", ()) for name, value in parts if name == "commonName")
    return str(next(names, ""))
