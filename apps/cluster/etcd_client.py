"""A client of etcd's HTTP gateway (version 3.4 or later): leases, ranges and transactions, endpoints in turn.

It uses the standard library's HTTP client, which yields to other greenlets in a process under the hub.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import socket
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from apps.runtime.tls import renewable_client
from apps.settings.errors import StoreError

REQUEST_TIMEOUT_S = 1.0
MAX_ANSWER_BYTES = 64 << 20
Operation = dict[str, Any]


class EtcdError(StoreError):
    """No endpoint of etcd, which is a cluster's store, is known to have executed a request."""


class KeyValue(NamedTuple):
    """One key. ``create_revision`` is etcd's revision at its creation, ``mod_revision`` at its last put."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease_id: int


class EtcdClient:
    """The members of one etcd, by their client URLs. Several greenlets may call at once.

    ``ca``, ``certificate`` and ``key`` are files in PEM form for https. Raises InvalidValueError for unusable ones.
    """

    def __init__(
        self, endpoints: Sequence[str], ca: str | None = None, certificate: str | None = None, key: str | None = None
    ) -> None:
        self._endpoints = list(endpoints)
        self.tls = renewable_client("cluster", ca, certificate, key)
        self._idle: defaultdict[str, list[http.client.HTTPConnection]] = defaultdict(list)

    def close(self) -> None:
        """Close the idle connections."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()

    def grant(self, ttl_s: int) -> int:
        """Create a lease of ``ttl_s`` seconds; return its id."""
        return int(self._call("lease/grant", {"TTL": ttl_s})["ID"])

    def keep_alive(self, lease_id: int) -> bool:
        """Refresh a lease; return whether it exists."""
        result = self._call("lease/keepalive", {"ID": lease_id}).get("result", {})
        return int(result.get("TTL", 0)) > 0

    def remaining_ttl_s(self, lease_id: int) -> int:
        """Return the remaining seconds of a lease, rounded down; 0 or less if it is about to end or has ended."""
        return int(self._call("lease/timetolive", {"ID": lease_id}).get("TTL", 0))

    def revoke(self, lease_id: int) -> None:
        """Revoke a lease, which removes the keys attached to it."""
        self._call("lease/revoke", {"ID": lease_id})

    def read(self, *ranges: Operation) -> list[list[KeyValue]]:
        """Return the keys in each of these ranges, all at one revision."""
        return self.transact([], list(ranges), [])[1]

    def transact(
        self, compare: Sequence[Operation], success: Sequence[Operation], failure: Sequence[Operation]
    ) -> tuple[bool, list[list[KeyValue]]]:
        """Execute ``success`` if all conditions ``compare`` hold, otherwise ``failure``; atomically.

        Return whether ``success`` was executed, and the keys in each range that was read.
        """
        body = {"compare": list(compare), "success": list(success), "failure": list(failure)}
        reply = self._call("kv/txn", body)
        ranges = [
            [_key_value(kv) for kv in response["response_range"].get("kvs", [])]
            for response in reply.get("responses", [])
            if "response_range" in response
        ]
        return bool(reply.get("succeeded", False)), ranges

    def _call(self, method: str, body: object) -> dict[str, Any]:
        """Return the reply of the first endpoint that replies; raise EtcdError if none does.

        Each endpoint has REQUEST_TIMEOUT_S. An endpoint that fails goes to the end of the list for later requests.
        """
        data, problems = json.dumps(body).encode(), []
        for endpoint in list(self._endpoints):
            try:
                return self._post(endpoint, f"/v3/{method}", data)
            except (OSError, http.client.HTTPException, ValueError, EtcdError) as error:
                problems.append(f"{endpoint}: {error or type(error).__name__}")
                self._endpoints.remove(endpoint)
                self._endpoints.append(endpoint)
        raise EtcdError(f"etcd: {method} failed: {'; '.join(problems)}")

    def _post(self, endpoint: str, path: str, body: bytes) -> dict[str, Any]:
        """Return etcd's reply to one request, over an idle connection if there is one; EtcdError for an error reply."""
        idle = self._idle[endpoint]
        connection = idle.pop() if idle else self._connection(endpoint)
        try:
            if connection.sock is not None:
                connection.sock.settimeout(REQUEST_TIMEOUT_S)
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read(MAX_ANSWER_BYTES)
        except BaseException:
            connection.close()
            while idle:  # the others probably have failed, too
                idle.pop().close()
            raise
        idle.append(connection)
        try:
            reply = json.loads(content)
        except (ValueError, RecursionError):
            raise EtcdError(f"{response.status} {response.reason}, without JSON: {content[:100]!r}") from None
        if response.status != http.client.OK or not isinstance(reply, dict):
            reason = reply.get("error", response.reason) if isinstance(reply, dict) else response.reason
            raise EtcdError(f"{response.status} {reason}")
        return reply

    def _connection(self, endpoint: str) -> http.client.HTTPConnection:
        """Return a new connection to a member of etcd; it connects at the first request."""
        url = urlsplit(endpoint)
        assert url.hostname is not None
        address = url.hostname, url.port
        connection = (
            http.client.HTTPSConnection(*address, timeout=REQUEST_TIMEOUT_S, context=self.tls.current)
            if url.scheme == "https"
            else http.client.HTTPConnection(*address, timeout=REQUEST_TIMEOUT_S)
        )
        connection.response_class = _Response
        return connection


class _Response(http.client.HTTPResponse):
    """A response that has REQUEST_TIMEOUT_S in all; the socket's own timeout restarts with every byte."""

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_Timed(sock, self.fp.detach()))


class _Timed(io.RawIOBase):
    """Reads a socket's ``raw`` file until REQUEST_TIMEOUT_S have passed; then raises TimeoutError."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._sock, self._raw = sock, raw
        self._due_s = time.monotonic() + REQUEST_TIMEOUT_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        remaining_s = self._due_s - time.monotonic()
        if remaining_s <= 0.0:
            raise TimeoutError("timed out")
        self._sock.settimeout(remaining_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def get(key: str, *, prefix: bool = False, before: str | None = None, limit: int = 0) -> Operation:
    """Return the operation that reads one key, all keys with a ``prefix``, or the keys from ``key`` to ``before``.

    With ``before``, which is excluded, keys come in descending order. At most ``limit`` keys are read; 0: all.
    """
    request: dict[str, Any] = {"key": _base64(key.encode())}
    if prefix:
        request["range_end"] = _base64(_after(key))
    if before is not None:
        request |= {"range_end": _base64(before.encode()), "sort_order": "DESCEND", "sort_target": "KEY"}
    if limit:
        request["limit"] = limit
    return {"request_range": request}


def put(key: str, value: bytes, lease_id: int = 0) -> Operation:
    """Return the operation that sets a key, attached to a lease if one is given."""
    return {"request_put": {"key": _base64(key.encode()), "value": _base64(value), "lease": lease_id}}


def delete(key: str, *, prefix: bool = False) -> Operation:
    """Return the operation that removes one key, or all keys with that prefix."""
    end = {"range_end": _base64(_after(key))} if prefix else {}
    return {"request_delete_range": {"key": _base64(key.encode()), **end}}


def created_at(key: str, revision: int) -> Operation:
    """Return the condition that a key was created at this revision; 0: that it does not exist."""
    return {"key": _base64(key.encode()), "target": "CREATE", "result": "EQUAL", "create_revision": revision}


def modified_at(key: str, revision: int) -> Operation:
    """Return the condition that a key was last put at this revision; 0: that it does not exist."""
    return {"key": _base64(key.encode()), "target": "MOD", "result": "EQUAL", "mod_revision": revision}


def _key_value(entry: dict[str, Any]) -> KeyValue:
    """Return a key of etcd's JSON, where 64-bit numbers are texts, bytes are Base64, and zeros are left out."""
    key = base64.b64decode(entry["key"]).decode()
    value = base64.b64decode(entry.get("value", ""))
    return KeyValue(key, value, int(entry["create_revision"]), int(entry["mod_revision"]), int(entry.get("lease", 0)))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _after(prefix: str) -> bytes:
    """Return the first key after all keys that begin with ``prefix``."""
    key = prefix.encode()
    return key[:-1] + bytes([key[-1] + 1])
