"""A fake of the controller's REST interface: sends prepared responses, and records requests."""

from __future__ import annotations

import json
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VN: dict[str, Any] = {
    "vlan_vid": 10,
    "switch": "sw1",
    "dpid": "0000000000000001",
    "port_no": 3,
    "send_limit_bps": 400_000_000,
    "receive_limit_bps": 1_500_000_000,
    "send_ceiling_bps": None,
    "receive_ceiling_bps": None,
    "measured_receive_bps": 64_000,
    "measured_send_bps": None,
    "delivered_bps": None,
    "granted_bps": None,
    "flood_limit_bps": 2_000_000,
    "flooded_bps": 64_000,
    "flood_dropped_bps": None,
    "flood_received_bps": 0,
    "congested": True,
    "hosts": ["02:00:00:00:00:01"],
    "revision": 17,
}
VLAN: dict[str, Any] = {
    "vlan_vid": 10,
    "name": "tenant-a",
    "algorithm": "fp",
    "parameters": {"d": 2.0},
    "weight": 1.0,
    "send_limit_bps": None,
    "receive_limit_bps": 40_000_000,
    "vns": 3,
    "shadow": None,
    "revision": 3,
}


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


@dataclass(frozen=True)
class ReceivedRequest:
    """A request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class PreparedResponse:
    """A response: JSON, or ``raw`` bytes."""

    json: Any = None
    status: int = 200
    content_type: str = "application/json"
    raw: bytes | None = None


@dataclass
class FakeRestServer:
    """Listens on a free port of the loopback. A path's responses are sent one after another, the last repeatedly."""

    answers: dict[tuple[str, str], list[PreparedResponse]] = field(default_factory=dict)
    asked: list[ReceivedRequest] = field(default_factory=list)

    def __enter__(self) -> FakeRestServer:
        desk = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                desk._answer(self)

            do_GET = do_PATCH = do_POST = do_DELETE = answer  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def on(self, method: str, path: str, *answers: Any, **more: Any) -> None:
        """Set the responses to a request: JSON values, or PreparedResponses."""
        made = (one if isinstance(one, PreparedResponse) else PreparedResponse(one, **more) for one in answers)
        self.answers[method, path] = [*made]

    def lists(self, path: str, *rows: Any, **more: Any) -> None:
        """Set the only page of a list, whose name is the path's last part."""
        self.on("GET", path, {path.rpartition("/")[2]: [*rows], "next": None, **more})

    def refuse(self, method: str, path: str, status: int, detail: str) -> None:
        """Reject a request with a problem document."""
        problem = {"type": "urn:x", "title": "x", "status": status, "detail": detail}
        self.on(method, path, problem, status=status, content_type="application/problem+json")

    def last(self) -> ReceivedRequest:
        """Return the last request."""
        return self.asked[-1]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urllib.parse.urlsplit(handler.path)
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        query = dict(urllib.parse.parse_qsl(parts.query))
        asked = ReceivedRequest(
            handler.command, parts.path, query, dict(handler.headers.items()), json.loads(body) if body else None
        )
        self.asked.append(asked)
        answers = self.answers.get((asked.method, asked.path))
        if answers is None:
            answer = PreparedResponse({"detail": f"no response for {asked.method} {asked.path}"}, 404)
        else:
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        data = answer.raw if answer.raw is not None else json.dumps(answer.json).encode()
        handler.send_response(answer.status)
        handler.send_header("Content-Type", answer.content_type)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
