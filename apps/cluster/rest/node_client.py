"""Forwards this node's requests to other nodes of a cluster: one hop, in limited time, all nodes at once.

The client's credentials are forwarded, so that each node checks them. A forwarded request is not forwarded again
(``FORWARDED_HEADER``). The request's greenlet waits; the control loop goes on.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import eventlet
from werkzeug.datastructures import Headers

from apps.runtime.tls import RenewableContext

FORWARDED_HEADER = "Dets-Forwarded-By"
"""the header that names the node which passes a request on"""
READ_LIMIT_S = 1.0
CHANGE_LIMIT_S = 5.0
"""longer: a change waits for etcd"""
RETRY_S = 3.0
"""time in which a node that did not answer a read gets no request, so that it does not delay other requests"""
MAX_ANSWER_BYTES = 16 << 20
AskedHeaders = Headers | Mapping[str, str]
_PASSED_ON = ("Authorization", "If-Match", "Content-Type", "X-Forwarded-For")


class NodeResponse(NamedTuple):
    """The response of a node."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class NodeClient:
    """Sends requests of the node ``me`` to others; ``tls`` is for https URLs."""

    def __init__(
        self, me: str, tls: RenewableContext | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._me, self._tls, self._clock = me, tls, clock
        self._failed_s: dict[str, float] = {}

    def ask(
        self,
        url: str,
        method: str,
        target: str,
        headers: AskedHeaders,
        body: bytes | None = None,
        limit_s: float = CHANGE_LIMIT_S,
    ) -> NodeResponse:
        """Return the response of the node at ``url`` to a request with these headers, some of which are forwarded.

        Raises OSError without a valid HTTP response within ``limit_s`` seconds.
        """
        where = urlsplit(url)
        assert where.hostname is not None
        if where.scheme == "https":
            context = None if self._tls is None else self._tls.current
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                where.hostname, where.port, timeout=limit_s, context=context
            )
        else:
            connection = http.client.HTTPConnection(where.hostname, where.port, timeout=limit_s)
        sent = {name: headers[name] for name in _PASSED_ON if name in headers} | {FORWARDED_HEADER: self._me}
        try:
            with eventlet.Timeout(limit_s, TimeoutError(f"no answer within {limit_s:g} s")):
                connection.request(method, target, body, sent)
                response = connection.getresponse()
                content = response.read(MAX_ANSWER_BYTES + 1)
        except http.client.HTTPException as error:
            raise OSError(f"no answer in HTTP: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if len(content) > MAX_ANSWER_BYTES:
            raise OSError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        return NodeResponse(response.status, response.getheaders(), content)

    def gather(self, urls: Mapping[str, str], target: str, headers: AskedHeaders) -> dict[str, NodeResponse | None]:
        """Return the responses of nodes, by name, to a GET; None for nodes that do not respond, or recently did not."""
        now_s = self._clock()
        tried = {name: url for name, url in urls.items() if now_s - self._failed_s.get(name, -RETRY_S) >= RETRY_S}
        waiting = {name: eventlet.spawn(self._get, name, url, target, headers) for name, url in tried.items()}
        found = {name: greenlet.wait() for name, greenlet in waiting.items()}
        return {name: found.get(name) for name in urls}

    def _get(self, name: str, url: str, target: str, headers: AskedHeaders) -> NodeResponse | None:
        try:
            answer = self.ask(url, "GET", target, headers, limit_s=READ_LIMIT_S)
        except OSError:
            self._failed_s[name] = self._clock()
            return None
        self._failed_s.pop(name, None)
        return answer


class Nodes(NamedTuple):
    """The nodes of a cluster as this one knows them.

    ``urls`` are the others' REST URLs, by name, and ``owners`` the owner of each switch (None: unowned), both empty
    except in sharded mode. ``forward_changes_to`` is the node that accepts changes and its URL; None: this node, or no
    node accepts them.
    """

    me: str
    urls: Mapping[str, str]
    owners: Mapping[str, str | None]
    forward_changes_to: tuple[str, str] | None
    hop: NodeClient
