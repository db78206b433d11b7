"""A client of the controller's REST interface, for the command line; its imports are deferred, for a fast start."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from apps.cli.support.answers import (
    MAX_ANSWER_BYTES,
    MAX_PAGES,
    MAX_PAGES_BYTES,
    AnswerError,
    RequestError,
    Shape,
    check,
    decoded,
    read_all,
    refusal_of,
)
from controller.errors import InvalidValueError

if TYPE_CHECKING:
    import http.client
    import ssl

    from apps.cli.support.timed_http import TimedResponse

__all__ = ["AnswerError", "Client", "RequestError", "StreamEvent", "tls_context"]

DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.1

Query = Mapping[str, "str | int | None"]
_REVISION: Shape = {
    "installed_revision": (int, type(None)),
    "unconfirmed_switches?": [str],
    "disconnected_switches?": [str],
    "unreachable_nodes?": [str],
}


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One Server-Sent Event."""

    name: str
    data: Any


@dataclass(frozen=True)
class Client:
    """A controller at ``url``, with a bearer token and TLS if they are given.

    Every method raises RequestError, with the controller's message if there is one, if the controller is unreachable or
    rejects the request.
    """

    url: str = DEFAULT_URL
    token: str | None = None
    tls: ssl.SSLContext | None = None
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # unmatched brackets, a port above 65535
            is_valid = False
        if not is_valid:
            raise InvalidValueError("url", self.url, f"is not an address such as {DEFAULT_URL}")

    def call(
        self,
        path: str,
        *,
        method: str = "GET",
        body: object = None,
        query: Query | None = None,
        if_match: str | None = None,
        shape: Shape = dict,
        most_bytes: int = MAX_ANSWER_BYTES,
    ) -> Any:
        """Return the JSON of the response; raise AnswerError unless it has that shape and length."""
        headers = {"If-Match": if_match} if if_match else {}
        with self._naming_url():
            value = decoded(self._body(path, method, body, query, headers, most_bytes))
            check(value, shape)
            return value

    def read(self, path: str) -> bytes:
        """Return the body of a resource unchanged."""
        with self._naming_url():
            return self._body(path, "GET", None, None, {}, MAX_ANSWER_BYTES)

    @contextmanager
    def _naming_url(self) -> Iterator[None]:
        """Add the controller's URL to the errors of invalid responses."""
        try:
            yield
        except AnswerError as error:
            raise AnswerError(error.reason, self.url) from error

    def _body(
        self, path: str, method: str, body: object, query: Query | None, headers: Mapping[str, str], most_bytes: int
    ) -> bytes:
        """Send a request and return the body of its response, at most ``most_bytes``."""
        import http.client

        with self._open(path, method, body, query, headers, self.timeout_s) as answer:
            try:
                return read_all(answer, most_bytes)
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error

    def pages(self, path: str, key: str, query: Query | None = None) -> list[dict[str, Any]]:
        """Return the list ``key`` of a collection, all pages of it; print which nodes' data is missing."""
        rows: list[dict[str, Any]] = []
        missing: set[str] = set()
        cursor: str | None = None
        size_bytes = 0
        with self._naming_url():
            for _ in range(MAX_PAGES):
                data = self._body(path, "GET", None, {**(query or {}), "cursor": cursor}, {}, MAX_ANSWER_BYTES)
                size_bytes += len(data)
                if size_bytes > MAX_PAGES_BYTES:
                    raise AnswerError(f"its pages are longer than {MAX_PAGES_BYTES} bytes")
                answer = decoded(data)
                check(answer, {key: [dict], "unreachable_nodes?": [str], "next?": str})
                rows += answer[key]
                missing.update(answer.get("unreachable_nodes") or ())
                cursor = answer.get("next")
                if cursor is None:
                    break
            else:
                raise AnswerError(f"it has more than {MAX_PAGES} pages")
        if missing:
            from apps.cli.support.common import print_error

            print_error(f"{', '.join(sorted(missing))}: no answer; what is known there alone is missing")
        return rows

    def wait_in_force(self, revision: int, timeout_s: float) -> None:
        """Wait until the switches have confirmed a change; then print which switches are disconnected.

        Raises RequestError after ``timeout_s``, naming the switches that have not confirmed it.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            status = self.call("/v1/revision", shape=_REVISION)
            if status["installed_revision"] is not None and status["installed_revision"] >= revision:
                self._print_missing(status.get("disconnected_switches") or (), status.get("unreachable_nodes") or ())
                return
            if time.monotonic() >= end_s:
                break
            time.sleep(POLL_INTERVAL_S)
        reasons = [f"{name} has not confirmed it" for name in status.get("unconfirmed_switches") or ()]
        reasons += [f"{name} is not connected" for name in status.get("disconnected_switches") or ()]
        reason = ", ".join(reasons) or "the controller has not sent it"
        raise RequestError(f"revision {revision} is kept, but not in force after {timeout_s:g} s: {reason}")

    def _print_missing(self, switches: Sequence[str], nodes: Sequence[str]) -> None:
        """Print on which switches a change is not effective: they are disconnected, or their nodes are unreachable."""
        if not switches and not nodes:
            return
        from apps.cli.support.common import print_error

        if nodes:
            unknown = "whether the change is in force on the switches there is not known"
            print_error(f"{', '.join(nodes)}: no answer; {unknown}")
        cluster = self.call("/v1/health", shape={"cluster?": dict}).get("cluster") or {} if switches else {}
        if switches and cluster.get("role") != "standby":  # the active node controls them
            print_error(f"{', '.join(switches)}: not connected; the change is in force there once it is")

    def stream(self, path: str, query: Query, timeout_s: float) -> Iterator[StreamEvent]:
        """Yield Server-Sent Events until the controller ends the stream or sends nothing for ``timeout_s``."""
        import http.client

        with self._open(path, "GET", None, query, {"Accept": "text/event-stream"}, timeout_s) as answer:
            answer.remove_limit()
            try:
                with self._naming_url():
                    yield from _events(answer)
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error

    def _open(
        self, path: str, method: str, body: object, query: Query | None, headers: Mapping[str, str], timeout_s: float
    ) -> TimedResponse:
        """Send a request and return its response; RequestError if it is rejected or cannot be sent."""
        import http.client
        import urllib.error
        import urllib.parse
        import urllib.request

        from apps.cli.support.timed_http import opener

        parameters = {key: value for key, value in (query or {}).items() if value is not None}
        encoded = urllib.parse.urlencode(parameters, errors="replace")  # single surrogates have no bytes
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url.rstrip("/") + path + (f"?{encoded}" if encoded else ""), data, dict(headers), method=method
        )
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self.token is not None:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            answer: TimedResponse = opener(self.tls).open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                raise refusal_of(error) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        return answer

    def _unreachable(self, error: Exception) -> RequestError:
        """Return the error for a controller that sends no response."""
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        hint = "; --cacert names the CA of its certificate" if "CERTIFICATE_VERIFY_FAILED" in reason else ""
        return RequestError(f"no controller answers at {self.url}: {reason}{hint}")


def tls_context(cacert: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Return the TLS context with CA and client certificate; None if neither is given."""
    if cacert is None and cert is None and key is None:
        return None
    import ssl

    for name, path in (("cacert", cacert), ("cert", cert), ("key", key)):
        if path is not None and not path.is_file():
            raise InvalidValueError(name, str(path), "is not a file")
    if key is not None and cert is None:
        raise InvalidValueError("key", str(key), "stands alone: --cert names the certificate that it is of")
    try:
        context = ssl.create_default_context(cafile=cacert)
    except ssl.SSLError as error:
        raise InvalidValueError("cacert", str(cacert), "holds no certificate in PEM form") from error
    if cert is not None:
        try:
            context.load_cert_chain(cert, key)
        except ssl.SSLError as error:
            raise InvalidValueError(
                "cert", str(cert), "and --key are no certificate and key that belong together"
            ) from error
    return context


def _events(answer: http.client.HTTPResponse) -> Iterator[StreamEvent]:
    """Yield the events of an SSE response."""
    name, data, size_bytes = "message", [], 0
    while raw := answer.readline(MAX_ANSWER_BYTES + 1):
        size_bytes += len(raw)
        if size_bytes > MAX_ANSWER_BYTES:
            raise AnswerError(f"an event is longer than {MAX_ANSWER_BYTES} bytes")
        field, _, value = raw.rstrip(b"\r\n").partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value.decode(errors="replace")
        elif field == b"data":
            data.append(value)
        elif not field and not value:
            if data:
                yield StreamEvent(name, decoded(b"\n".join(data)))
            name, data, size_bytes = "message", [], 0
