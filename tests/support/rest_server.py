"""The REST interface in a process of its own, on a controller without switches, with whatever guards it has."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.preloaded_processes import process_forker

PROBLEM = "application/problem+json"
# Two VNs that are alone, the path of one, and another limit for it.
CONFIG = """\
vlans: {10: {send_limit: 40M, receive_limit: 40M}}
switches: {s1: {dpid: 1, ports: {1: {capacity: 100M, access: 10}, 2: {capacity: 100M, access: 10}}}}
"""
VN = "/v1/vns/10/s1/1"
LIMIT = {"send_limit_bps": 30_000_000}
_SCRIPT = """\
import eventlet
eventlet.monkey_patch()
import json, sys, time
from eventlet import tpool
from apps.rest import RequestRateLimiter, Service, create_app, rate_limited, serve
from apps.rest.http.wsgi_exchange import Timeouts
from apps.settings.settings import Settings
from apps.settings.store import Store
from apps.runtime.tls import renewable_server
from apps.settings.tokens import Tokens
from controller.central.controller import CentralController
from controller.config.loader import parse_config
from controller.fabric.config_model import Tls
told = json.loads(sys.argv[1])
central = CentralController(parse_config(told["config"]))
store = Store(told["store"])
settings = Settings(central, store, time.monotonic, run=tpool.execute, yield_control=lambda: eventlet.sleep(0))
tokens = Tokens(told["store"]) if told["tokens"] else None
class Running(Service):
    sleep = staticmethod(eventlet.sleep)
app = create_app(Running(central, time.monotonic, settings, told["needs_if_match"]), tokens, told["most_streams"])
gate = rate_limited(app, RequestRateLimiter(told["requests_per_s"], time.monotonic), eventlet.sleep)
tls = renewable_server("rest", Tls(**told["tls"])) if told["tls"] else None
server = serve(gate, "127.0.0.1", 0, tls, told["max_connections"], Timeouts(**told["patience"]),
    trusted_proxies=told["trusted_proxies"])
print(server.port, flush=True)
if told["freeze"]:
    from apps.runtime.memory_tuning import freeze_gc
    eventlet.spawn(lambda: [(eventlet.sleep(0.01), freeze_gc()) for _ in range(10_000)])
tpool.execute(sys.stdin.readline)
"""


class RestProcess:
    """A server inside a ``with``; ``kill`` ends it as ``kill -9`` does."""

    def __init__(self, config: str, store: Path | str = ":memory:", **told: Any) -> None:
        defaults: dict[str, Any] = {
            "tokens": False,
            "needs_if_match": False,
            "most_streams": 8,
            "requests_per_s": 1e6,
            "tls": None,
            "max_connections": 64,
            "patience": {},
            "freeze": False,
            "trusted_proxies": [],
        }
        self._told = {**defaults, "config": config, "store": str(store), **told}

    def __enter__(self) -> RestProcess:
        (stdin, self._stdin), (out, stdout), (err, stderr) = (os.pipe() for _ in range(3))
        self._process = process_forker().start([json.dumps(self._told)], (stdin, stdout, stderr), script=_SCRIPT)
        for end in (stdin, stdout, stderr):
            os.close(end)
        self._stderr = open(err)
        with open(out) as first:
            line = first.readline()
        if not line:
            self.__exit__()
            raise AssertionError(self.errors)
        self.port = int(line)
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        with self._stderr:
            self.errors = self._stderr.read()
        os.close(self._stdin)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def open_sockets(self) -> int:
        """Return how many sockets the process has, those of its hub's own aside."""
        names = []
        for number in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                names.append(os.readlink(number))
        return sum(name.startswith("socket:") for name in names)

    def resident_bytes(self) -> int:
        """Return how much memory the process has."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def request(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, Any]:
        """Return status, headers and JSON (or text) of an answer."""
        return ask_at(f"127.0.0.1:{self.port}", method, path, body, headers)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """Return a connection from an address."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30, source_address=(source, 0))


def ask_at(address: str, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
    """Send a request to an address; return as ``ask``."""
    return ask(http.client.HTTPConnection(address, timeout=30), method, path, body, headers)


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, http.client.HTTPMessage, Any]:
    """Send one request on a connection of its own; return status, headers and JSON (or text) of the answer.

    A ``body`` of bytes is sent as it is.
    """
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json"} if data is not None else {}
    try:
        connection.request(method, path, data, {**sent, **(headers or {})})
        answer = connection.getresponse()
        text = answer.read().decode()
        is_json = "json" in (answer.headers["Content-Type"] or "")
        return answer.status, answer.headers, json.loads(text) if is_json else text
    finally:
        connection.close()


def read_answer(sock: socket.socket) -> tuple[int, str, Any]:
    """Return status, content type and JSON of the answer that comes on a socket."""
    answer = http.client.HTTPResponse(sock)
    answer.begin()
    return answer.status, answer.headers.get_content_type(), json.loads(answer.read())
