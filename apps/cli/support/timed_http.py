"""HTTP with a time limit: no response takes longer than MAX_ANSWER_S, however slowly its head and body arrive."""

from __future__ import annotations

import http.client
import io
import math
import ssl
import time
import urllib.request
from typing import Any

from apps.cli.support import answers


class _TimedBytes(io.RawIOBase):
    """Reads the bytes of a response until ``end_s``, then raises AnswerError.

    The socket's own timeout would not do: it restarts with each byte.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__()
        self._raw, self.end_s = raw, time.monotonic() + answers.MAX_ANSWER_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if time.monotonic() > self.end_s:
            raise answers.AnswerError(f"it takes longer than {answers.MAX_ANSWER_S:g} s")
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class TimedResponse(http.client.HTTPResponse):
    """A response with a time limit that includes its head and any 100 Continue before it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timed = _TimedBytes(self.fp.detach())
        self.fp = io.BufferedReader(self._timed)

    def remove_limit(self) -> None:
        """Remove the time limit: the rest is a stream."""
        self._timed.end_s = math.inf


class _Connection(http.client.HTTPConnection):
    """A connection whose responses have a time limit."""

    response_class = TimedResponse


class _TlsConnection(http.client.HTTPSConnection):
    """A TLS connection whose responses have a time limit."""

    response_class = TimedResponse


class _Http(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._tls = context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TlsConnection, request, context=self._tls)


class _Nowhere(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Do not follow: the token is for this controller alone."""


def opener(tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """Return an opener of URLs that follows no redirects, and whose responses have a time limit."""
    return urllib.request.build_opener(_Nowhere, _Http(), _Https(tls))
