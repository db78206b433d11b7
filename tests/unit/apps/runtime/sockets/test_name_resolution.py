"""Names are resolved beside the event loop, and addresses without a thread."""

import socket
import subprocess
import sys
from typing import Any

import pytest
from support.paths import ROOT

from apps.runtime.sockets import name_resolution


def test_addresses_are_read_at_once_and_names_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: list[object] = []

    def in_thread(_function: object, host: object, *_rest: object) -> Any:
        resolved.append(host)
        return "resolved"

    monkeypatch.setattr(name_resolution.tpool, "execute", in_thread)
    for host in ("127.0.0.1", "::1", None):
        expected = socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)
        assert name_resolution.getaddrinfo(host, 80, type=socket.SOCK_STREAM) == expected
    assert resolved == []
    assert name_resolution.getaddrinfo("switch.example", 6640) == "resolved"
    assert resolved == ["switch.example"]


def test_errors_of_addresses_do_not_ask_for_names() -> None:
    with pytest.raises(socket.gaierror):
        name_resolution.getaddrinfo("switch.example", 6640, flags=socket.AI_NUMERICHOST)
    with pytest.raises(socket.gaierror):
        name_resolution.getaddrinfo("127.0.0.1", 80, socket.AF_INET6)


SLOW = """
from apps.runtime import launcher
launcher._prepare()
import socket, sys
import eventlet
from eventlet import patcher
from apps.runtime.sockets import name_resolution
sleep = patcher.original("time").sleep

class SlowResolver:
    gaierror = socket.gaierror
    def getaddrinfo(self, host, port, family, type, proto, flags):
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        sleep(0.5)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]

name_resolution._socket = SlowResolver()
listener = socket.create_server(("127.0.0.1", 0))
passes = 0
def count():
    global passes
    while True:
        eventlet.sleep(0.01)
        passes += 1
eventlet.spawn(count)
socket.create_connection(("switch.example", listener.getsockname()[1])).close()
print(passes, "dns" in sys.modules)
"""


def test_the_event_loop_goes_on_while_a_name_server_is_silent() -> None:
    command = [sys.executable, "-c", SLOW]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    passes, own_resolver = done.stdout.split()
    assert int(passes) > 3
    assert own_resolver == "False"
