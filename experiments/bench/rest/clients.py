"""An operator's clients of REST for ``dets bench rest``: one that asks and measures, and many that follow streams."""

from __future__ import annotations

import http.client
import json
import os
import selectors
import socket
import threading
import time
import urllib.parse
from collections.abc import Sequence
from typing import Any

READY_TIMEOUT_S = 300.0
TIMEOUT_S = 60.0
_NICE = 10


def lower_priority() -> None:
    """Let this thread have a processor only when others leave it one: operators have machines of their own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


class Operator:
    """A client that measures what it asks for."""

    def __init__(self, url: str, address: str = "127.0.0.1", pid: int = 0) -> None:
        self.address = address  # what it asks from
        self.pid = pid  # the controller's
        self.host = urllib.parse.urlsplit(url).netloc

    def call(self, method: str, path: str, body: object = None) -> bytes:
        """Return the body of an answer; raise RuntimeError unless it is 200."""
        connection = http.client.HTTPConnection(self.host, timeout=TIMEOUT_S, source_address=(self.address, 0))
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:500].decode()}")
            return text
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """Return the JSON of a resource."""
        return json.loads(self.call("GET", path))

    def wait_ready(self) -> None:
        """Wait until every switch is; raise TimeoutError."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline_s:
            try:
                if self.all_ready():
                    return
            except OSError:
                pass  # it does not listen yet
            time.sleep(0.5)
        raise TimeoutError(f"the controller was not ready within {READY_TIMEOUT_S:g} s")

    def all_ready(self) -> bool:
        """Return whether every switch is ready."""
        return set(self.get("/v1/health")["switches"].values()) == {"ready"}

    def list_vns(self) -> list[dict[str, Any]]:
        """Return all VNs, page by page."""
        vns, cursor = [], ""
        while cursor is not None:
            page = self.get("/v1/vns" + (f"?cursor={urllib.parse.quote(cursor)}" if cursor else ""))
            vns += page["vns"]
            cursor = page["next"]
        return vns

    def change(self, vns: list[dict[str, Any]], limit_bps: int) -> int:
        """Give these VNs a limit either way, in one transaction; return the revision."""
        limits = [
            {key: vn[key] for key in ("vlan_vid", "switch", "port_no")}
            | {"send_limit_bps": limit_bps, "receive_limit_bps": limit_bps}
            for vn in vns
        ]
        return int(json.loads(self.call("POST", "/v1/limits", {"limits": limits}))["revision"])

    def wait_in_force(self, revision: int) -> None:
        """Wait until the switches have confirmed a change."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while self.get("/v1/revision")["installed_revision"] < revision:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"revision {revision} was not in force within {TIMEOUT_S:g} s")
            time.sleep(0.05)


class Streams:
    """Event streams that are read as fast as they come, in one thread, inside a ``with``; ``states`` counts."""

    def __init__(self, operator: Operator, queries: Sequence[str]) -> None:
        self.states, self.open, self.received_bytes = 0, len(queries), 0
        host, _, port = operator.host.partition(":")
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        for query in queries:
            sock = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
            sock.sendall(f"GET /v1/stream{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            self._selector.register(sock, selectors.EVENT_READ, sock)
            self._sockets.append(sock)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Streams:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        for sock in self._sockets:
            sock.close()
        self._selector.close()

    def _read(self) -> None:
        lower_priority()
        while not self._stop.is_set():
            for key, _ in self._selector.select(0.2):
                sock: socket.socket = key.data
                data = sock.recv(2**18)
                self.states += data.count(b"event: v") + data.count(b"event: s")
                self.received_bytes += len(data)
                if not data:
                    self.open -= 1
                    self._selector.unregister(sock)
