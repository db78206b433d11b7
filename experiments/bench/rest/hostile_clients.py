"""Hostile clients, all at once: too many requests, slow clients, oversized bodies, invalid paths."""

from __future__ import annotations

import re
import socket
import threading
import time
import urllib.parse
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait

# On loopback every client may have its own address: so the rate limit of the "rapid" client does not affect the others.
ADDRESSES = {
    "rapid": "127.0.0.2",
    "slow": "127.0.0.3",
    "body": "127.0.0.4",
    "path": "127.0.0.5",
    "unknown": "127.0.0.6",
}
_FLOODERS, _PIPELINED = 20, 100
_STATUS, _STATUS_BYTES = re.compile(rb"HTTP/1\.1 (\d{3}) "), 13
_TIMEOUT_S = 60.0
_DRIBBLE_S = 0.2
_BODY_BYTES = 4 * 2**20 + 1
_TARGETS = ("/v1/../../etc/passwd", "/v1/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/v1/vns/10/..%2fs1/1", "/v1\\vns")

Answers = Counter[tuple[str, int]]


class Attack:
    """An attack on the server at a URL: ``rapid`` requests, ``slow`` clients, ``others`` of each other kind.

    ``token`` is sent with requests that are to pass authentication. ``answers`` counts (kind, status); kinds are
    ``rapid``, ``slow``, ``body`` and ``path``, and ``unknown`` for requests with an unknown token.
    """

    def __init__(self, url: str, rapid: int = 10_000, slow: int = 100, others: int = 50, token: str = "") -> None:
        address = urllib.parse.urlsplit(url)
        self._address = (str(address.hostname), int(address.port or 80))
        self._rapid, self._slow, self._others = rapid, slow, others
        self._token = f"Authorization: Bearer {token}\r\n" if token else ""
        self._stopped = threading.Event()
        self.answers: Answers = Counter()

    def run(self) -> Answers:
        """Run all clients at once; return ``answers``. Raises any error of a client, such as OSError."""
        finite = [*[self._flood] * _FLOODERS, self._bodies, self._paths]
        with ThreadPoolExecutor(1 + len(finite)) as threads:
            dribbling = threads.submit(self._dribble)
            ended = [threads.submit(client) for client in finite]
            try:
                wait(ended)
            finally:
                self._stopped.set()
        for client in (dribbling, *ended):
            client.result()
        return self.answers

    def _connect(self, kind: str) -> socket.socket:
        """Return a connection to the server from the address of a kind of client."""
        return socket.create_connection(self._address, timeout=_TIMEOUT_S, source_address=(ADDRESSES[kind], 0))

    def _request(self, line: str, headers: str = "") -> bytes:
        """Return a request, encoded."""
        return f"{line} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()

    def _flood(self) -> None:
        """Send pipelined requests as fast as the server answers them."""
        remaining = self._rapid // _FLOODERS
        with self._connect("rapid") as sock:
            while remaining:
                batch = min(remaining, _PIPELINED)
                sock.sendall(self._request("GET /v1/health", self._token) * batch)
                self._count("rapid", sock, batch)
                remaining -= batch

    def _bodies(self) -> None:
        """Announce bodies that are too large."""
        head = f"{self._token}Content-Type: application/json\r\nContent-Length: {_BODY_BYTES}\r\n"
        for _ in range(self._others):
            with self._connect("body") as sock:
                sock.sendall(self._request("POST /v1/limits", head))
                self._count("body", sock, 1)

    def _paths(self) -> None:
        """Request paths that try to leave the API, and send unknown tokens."""
        for number in range(self._others):
            with self._connect("path") as sock:
                sock.sendall(self._request(f"GET {_TARGETS[number % len(_TARGETS)]}", self._token))
                self._count("path", sock, 1)
            with self._connect("unknown") as sock:
                sock.sendall(self._request("GET /v1/vns", "Authorization: Bearer dets_nobodys\r\n"))
                self._count("unknown", sock, 1)

    def _dribble(self) -> None:
        """Send an endless header, a byte every _DRIBBLE_S on each slow connection, and count the server's responses.

        A response is read once the server has closed the connection. ``run`` ends this client with ``_stopped``.
        """
        clients = [self._connect("slow") for _ in range(self._slow)]
        try:
            for sock in clients:
                sock.sendall(b"GET /v1/vns HTTP/1.1\r\nHost: localhost\r\nX-A: ")
            while not self._stopped.wait(_DRIBBLE_S):
                for sock in list(clients):
                    try:
                        sock.sendall(b"x")
                    except OSError:  # the server has closed it
                        self._count("slow", sock, 1)
                        clients.remove(sock)
                        sock.close()
        finally:
            for sock in clients:
                sock.close()

    def _count(self, kind: str, sock: socket.socket, answers: int) -> None:
        """Read ``answers`` responses, or fewer if the server closes the connection; count each by kind and status.

        Raises TimeoutError after _TIMEOUT_S.
        """
        counted, unparsed = 0, b""
        deadline_s = time.monotonic() + _TIMEOUT_S
        while counted < answers:
            data = sock.recv(2**16)
            if not data:
                return
            unparsed += data
            matches = list(_STATUS.finditer(unparsed))
            for match in matches:
                self.answers[kind, int(match[1])] += 1
            counted += len(matches)
            # The last bytes may begin the next status line: they are kept.
            unparsed = unparsed[max(matches[-1].end() if matches else 0, len(unparsed) - _STATUS_BYTES) :]
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{kind}: {counted} of {answers} responses within {_TIMEOUT_S:g} s")
