"""What the real application tells a service manager."""

from __future__ import annotations

import socket

import pytest
from support.paths import ROOT
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


def test_a_plugin_that_fails_is_named_and_the_rest_starts(tmp_path, monkeypatch):
    """One raises an error, one ends the process; VLAN 10 is controlled by the third."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    targets = {"gone": "gone_module:Gone", "ends": "ends_module:Ends", "part": "part_module:FixedPart"}
    entries = "".join(f'{name} = "{target}"\n' for name, target in targets.items())
    (plugins / "pyproject.toml").write_text(f'[project.entry-points."dets.algorithms"]\n{entries}')
    (plugins / "ends_module.py").write_text("raise SystemExit(7)\n")
    page = (ROOT / "docs" / "allocation.md").read_text()
    (example,) = [part for part in page.split("```python\n") if "class FixedPart" in part]
    (plugins / "part_module.py").write_text(example.partition("```")[0])
    monkeypatch.setenv("DETS_PLUGINS", str(plugins))
    run = WireRun(tmp_path, {1: [1, 2]})
    run.config["vlans"][10]["algorithm"] = "part"
    run.app.configure(run.config)
    run.app.by_command = True
    with run:
        assert run.app.get("/v1/vlans/10")["algorithm"] == "part"
        log = run.app.log()
        for name, reason in (("gone", "ModuleNotFoundError: No module named 'gone_module'"), ("ends", "SystemExit: 7")):
            assert f"algorithm '{name}' of {plugins} is not loaded: {reason}" in log
        assert "algorithm 'part' of" not in log
        assert run.app.stop() == 0


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
