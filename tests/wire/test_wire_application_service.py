"""What the real application tells a service manager."""

from __future__ import annotations

import socket

import pytest
from support.wire import WireRun

from apps.runtime.sd_notify import ServiceManager


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as plain:
        plain.bind(str(tmp_path / "notify"))
        plain.settimeout(10)
        yield plain


def test_a_service_is_ready_alive_and_stops(tmp_path, manager, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    run = WireRun(tmp_path, {1: [1, 2]})
    run.app.by_command = True
    with run:
        assert manager.recv(100) == b"READY=1"
        assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        assert run.app.stop() == 0
        said = [manager.recv(100)]
        while said[-1] == b"WATCHDOG=1":
            said.append(manager.recv(100))
        assert said[-1] == b"STOPPING=1"


def test_a_manager_that_has_gone_is_no_trouble(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nowhere"))
    ServiceManager().ready()


def test_abstract_sockets_and_none_at_all(monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as plain:
        plain.bind("\0dets-test-notify")
        plain.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", "@dets-test-notify")
        ServiceManager().reloading()
        assert plain.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        ServiceManager().ready()  # a child of it: nothing is said
        plain.setblocking(False)
        with pytest.raises(BlockingIOError):
            plain.recv(100)
