"""Clients of REST for ``dets bench rest``: those of operators, and many that follow streams."""

from __future__ import annotations

import os
import selectors
import socket
import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from apps.cli.support.rest_client import Client

TIMEOUT_S = 60.0
_NICE = 10


def lower_priority() -> None:
    """Lower this thread's priority: operators have machines of their own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def list_vns(client: Client) -> list[dict[str, Any]]:
    """Return all VNs, page by page."""
    return client.pages("/v1/vns", "vns")


def change(client: Client, vns: Sequence[dict[str, Any]], limit_bps: int) -> int:
    """Give these VNs a limit in both directions, in one transaction; return the revision."""
    limits = [
        {key: vn[key] for key in ("vlan_vid", "switch", "port_no")}
        | {"send_limit_bps": limit_bps, "receive_limit_bps": limit_bps}
        for vn in vns
    ]
    return int(client.call("/v1/limits", method="POST", body={"limits": limits})["revision"])


class Streams:
    """Event streams that one thread reads as fast as they come, inside a ``with``; ``states`` counts the events."""

    def __init__(self, url: str, queries: Sequence[str]) -> None:
        self.states, self.open, self.received_bytes = 0, len(queries), 0
        address = urlsplit(url)
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        for query in queries:
            sock = socket.create_connection((address.hostname, address.port), timeout=TIMEOUT_S)
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
        """Read all streams, and count their states, bytes and disconnections, until stopped."""
        lower_priority()
        while not self._stop.is_set():
            for key, _ in self._selector.select(0.2):
                sock: socket.socket = key.data
                data = sock.recv(2**18)
                self.states += data.count(b"event: state")
                self.received_bytes += len(data)
                if not data:
                    self.open -= 1
                    self._selector.unregister(sock)
