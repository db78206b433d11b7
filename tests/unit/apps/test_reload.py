"""A reload is all or nothing: an error at any stage leaves the state, the store and the switches as they were."""

from __future__ import annotations

import contextlib
import gc
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import apps.reload
import apps.settings.settings
from apps.reload import Reloader, Reloads
from apps.runtime.sd_notify import ServiceManager
from apps.runtime.tls import RenewableContext
from apps.settings.errors import StoreError
from apps.settings.file_plan import FilePlan
from apps.settings.settings import Caller, Settings
from apps.settings.store import Store
from controller.central.controller import CentralController
from controller.central.reconfiguration import Reconfiguration
from controller.config.loader import load_config
from controller.config.yaml_document import ConfigError
from controller.errors import InvalidValueError
from controller.events import EventKind
from controller.fabric.config_model import Config
from controller.limits.overrides import VnName
from controller.openflow.meters import METER_CONFIG

BEFORE = """\
logging: {level: info}
vlans:
  10: {send_limit: 40M, receive_limit: 40M}
  20: {send_limit: 20M, receive_limit: 20M}
switches:
  s1: {dpid: 1, ports: {1: {capacity: 100M, trunk: [10, 20]}, 2: {capacity: 100M, access: 10}}}
  s2: {dpid: 2, ports: {1: {capacity: 100M, access: 10}}}
"""
# Another limit, algorithm and level, a port more and a switch less.
AFTER = """\
logging: {level: debug}
vlans:
  10: {send_limit: 30M, receive_limit: 40M}
  20: {algorithm: sp, send_limit: 20M, receive_limit: 20M}
switches:
  s1: {dpid: 1, ports: {1: {capacity: 100M, trunk: [10, 20]}, 2: {capacity: 100M, access: 10},
                        3: {capacity: 100M, access: 10}}}
"""
NAME = VnName(10, "s1", 1)
ME = Caller("me", "::1")


class InjectedError(Exception):
    """What a stage fails with."""


class FakeConnection:
    """A switch that takes everything and answers nothing."""

    def __init__(self, dpid: int) -> None:
        self.dpid, self.sent, self.disconnected = dpid, 0, False

    def send(self, encode: object, messages: int) -> None:
        self.sent += messages

    def disconnect(self) -> None:
        self.disconnected = True


class FakeShell:
    """Switches without a framework: what is sent to them is counted."""

    def __init__(self, config: Config) -> None:
        self.central = CentralController(config)
        self.peers: dict[int, Any] = {}
        self.switch_lock = threading.Lock()
        self.reconnected: list[int] = []
        self.unmanaged: list[Any] = []

    def now_s(self) -> float:
        return 5.0

    def push(self) -> None:
        for dpid, update in self.central.drain_updates().items():
            self.peers[dpid].connection.send(update.encode, len(update))

    def sync_switches(self) -> None:
        for peer in self.peers.values():
            peer.meters, peer.queues = object(), object()

    def reconnect(self, peer: Any, meters: list[int] | None) -> None:
        self.reconnected.append(peer.connection.dpid)
        peer.connection.disconnect()


class App:
    """An application without loops: two switches are connected, and one VN has an override."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "dets.yaml"
        self.path.write_text(BEFORE)
        self.config: Config = load_config(self.path)
        self.shell = FakeShell(self.config)
        self.queues = SimpleNamespace(wake=lambda: None, remove=lambda switch: None)
        self.store = Store(self.config.rest.store)
        self.settings = Settings(self.shell.central, self.store, lambda: 5.0)
        self.manager = ServiceManager()
        self.tls_contexts: list[Any] = []
        for dpid in (1, 2):
            self.shell.peers[dpid] = SimpleNamespace(connection=FakeConnection(dpid), meters=object(), queues=object())
            self.shell.central.switch_connected(dpid, (), np.empty(0, METER_CONFIG), 1.0)
        self.change(10_000_000)
        self.shell.push()
        self.adopted: list[str] = []

    def change(self, send_limit_bps: int) -> int:
        given = {NAME: {"send_limit_bps": send_limit_bps}}
        return self.settings.change_vns(given, ME, expect=lambda: None, dry_run=False).revision

    def read(self, path: str) -> Config:
        return load_config(path)

    def adopt(self, config: Config) -> None:
        self.config = config
        self.adopted.append(config.log_level)

    def run_in_thread(self, function: Callable[..., Any], *arguments: object) -> Any:
        return function(*arguments)

    def yield_control(self) -> None:
        pass

    def spawn(self, function: Callable[..., None], *arguments: object) -> None:
        function(*arguments)

    def standing(self) -> dict[str, Any]:
        """Return all that a reload may change: what is equal is as it was."""
        central, settings = self.shell.central, self.settings
        tables = central.reconciler.tables
        with contextlib.closing(sqlite3.connect(self.store.path)) as db:
            dump = list(db.iterdump())
        return {
            "central": {name: id(value) for name, value in (vars(central) | vars(central.fabric)).items()},
            "limits": central.vns.send_limit_bps.tolist(),
            "policies": dict(central.fabric.control.policies),
            "tables": {dpid: (tables(dpid).flows, list(tables(dpid).meters)) for dpid in (1, 2)},
            "due": {dpid: len(record.update) for dpid, record in central.switches.items()},
            "settings": [id(one) for one in (settings.file, settings.overrides, settings.values)],
            "revisions": (settings.revision, settings.vn_revision(0), settings.vlan_revision(20)),
            "store": dump,
            "application": self.config,
            "peers": {dpid: (id(one), id(one.meters), id(one.queues)) for dpid, one in self.shell.peers.items()},
            "sent": {dpid: peer.connection.sent for dpid, peer in self.shell.peers.items()},
            "disconnected": [peer.connection.disconnected for peer in self.shell.peers.values()],
        }


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(tmp_path)
    yield app
    app.store.close()


def reloader(app: App) -> Reloader:
    return Reloader(app, Reloads())  # type: ignore[arg-type]


def failing(real: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    """Return a function that does its work and then fails: the latest moment of a stage."""

    def fail(*arguments: Any, **named: Any) -> Any:
        real(*arguments, **named)
        raise error

    return fail


# By stage, in the order of a reload: what does its work, its name there, and whether it does it before it fails.
STAGES: dict[str, tuple[Callable[[App], Any], str, bool]] = {
    "reading the file": (lambda app: app, "read", True),
    "comparing": (lambda app: apps.reload, "compare_configs", True),
    "rehearsing": (lambda app: apps.reload, "PreparedReconfiguration", True),
    "laying overrides over it": (lambda app: apps.settings.settings, "resolve", True),
    "keeping": (lambda app: app.store, "commit", False),  # what is taken back later does not fail
    "sending what was due": (lambda app: app.shell, "push", True),
    "reconfiguring": (lambda app: CentralController, "put_in_force", True),
    "finishing": (lambda app: Reconfiguration, "finish", True),
    "adopting": (lambda app: app, "adopt", True),
    "renewing peers": (lambda app: app.shell, "sync_switches", True),
    "committing": (lambda app: FilePlan, "commit", False),
}


@pytest.mark.parametrize(("place", "name", "works"), STAGES.values(), ids=STAGES)
def test_an_error_at_any_stage_leaves_all_as_it_was(
    app: App, monkeypatch: pytest.MonkeyPatch, place: Callable[[App], Any], name: str, works: bool
) -> None:
    app.path.write_text(AFTER)
    before, owner = app.standing(), place(app)
    real = getattr(owner, name) if works else lambda *arguments: None
    monkeypatch.setattr(owner, name, failing(real, InjectedError("no")))
    if name == "adopt":
        calls = iter([app.adopt, app.__class__.adopt.__get__(app)])
        monkeypatch.setattr(app, "adopt", lambda config: next(calls)(config))
    with pytest.raises(InjectedError):
        reloader(app).reload()
    monkeypatch.undo()
    assert app.standing() == before
    told = [one.text for one in app.shell.central.events.newer_than(0) if one.kind == EventKind.RELOAD_FAILED]
    is_file = name in ("read", "compare_configs", "PreparedReconfiguration")
    assert told == ([] if is_file else [f"{app.path} was not put in force, all is as before: no"])
    assert app.change(11_000_000) == before["revisions"][0] + 1
    assert reloader(app).reload().changes
    assert app.config.log_level == "debug"


def test_a_reload_that_succeeds_changes_all_of_it(app: App) -> None:
    app.path.write_text(AFTER)
    before = app.standing()
    changes = {change.path for change in reloader(app).reload().changes}
    assert {"vlans.10.send_limit_bps", "vlans.20.algorithm", "logging.level"} <= changes
    central = app.shell.central
    assert app.settings.revision == before["revisions"][0] + 1
    assert (app.adopted, central.fabric.control.policies[20].algorithm) == (["debug"], "sp")
    assert (list(app.shell.peers), app.shell.reconnected) == ([1], [2])
    assert app.shell.peers[1].connection.sent > before["sent"][1]
    row = app.settings.file.row_of[NAME]
    assert central.vns.send_limit_bps[row] == 10_000_000  # the override, over the new file
    assert reloader(app).reload() == ([], [])


def test_certificates_are_renewed_with_the_file_or_not_at_all(app: App, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.pem" for name in ("rest", "openflow")}

    def context(name: str) -> RenewableContext:
        files[name].write_text("old")
        return RenewableContext(name, {"certificate": str(files[name])}, lambda: made[name])  # type: ignore[return-value]

    made = {name: f"old {name}" for name in files}
    app.tls_contexts = [context("rest"), context("openflow")]
    made = {name: f"new {name}" for name in files}
    app.path.write_text(AFTER)
    before = app.standing()
    files["rest"].write_text("new")
    files["openflow"].unlink()
    with pytest.raises(InvalidValueError, match=r"openflow\.certificate: .* cannot be read"):
        reloader(app).reload()
    assert app.standing() == before
    assert [one.current for one in app.tls_contexts] == ["old rest", "old openflow"]
    files["openflow"].write_text("old")
    assert reloader(app).reload(dry_run=True).summary[-1] == "rest: certificates renewed"
    assert [one.current for one in app.tls_contexts] == ["old rest", "old openflow"]
    assert reloader(app).reload().summary[-1] == "rest: certificates renewed"
    assert [one.current for one in app.tls_contexts] == ["new rest", "old openflow"]
    assert reloader(app).reload() == ([], [])


def test_a_store_that_fails_while_it_is_taken_back_leaves_the_old_state_in_force(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.path.write_text(AFTER)
    before = app.standing()

    def full(*arguments: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "undo_last", full)
        patch.setattr(CentralController, "put_in_force", failing(CentralController.put_in_force, InjectedError()))
        with pytest.raises(StoreError):
            reloader(app).reload()
    after = app.standing()
    unlike = {name for name in before if before[name] != after[name]}
    assert unlike == {"store", "revisions"}  # the revision counts as used
    assert app.change(11_000_000) == after["revisions"][0] + 1
    assert reloader(app).reload().changes


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (AFTER.replace("dpid: 1", "dpid: x"), ConfigError),
        ("control: {interval_ms: 20}\n" + AFTER, InvalidValueError),
        ("openflow: {last_meter_id: 2}\n" + AFTER, InvalidValueError),
    ],
)
def test_a_file_that_is_not_acceptable_changes_nothing(app: App, text: str, error: type[Exception]) -> None:
    app.path.write_text(text)
    before = app.standing()
    with pytest.raises(error):
        reloader(app).reload()
    assert app.standing() == before


class Gate:
    """Reads the file when it is let: whoever reloads waits in between."""

    def __init__(self, app: App) -> None:
        self.reads, self.began, self.go = 0, threading.Semaphore(0), threading.Semaphore(0)
        self._app = app

    def read(self, path: str) -> Config:
        self.reads += 1
        self.began.release()
        assert self.go.acquire(timeout=30)
        return load_config(path)


def test_one_reload_is_for_all_who_asked_before_it_began(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, mine = Gate(app), reloader(app)
    monkeypatch.setattr(app, "read", gate.read)
    with ThreadPoolExecutor(9) as clients:
        first = clients.submit(mine.reload)
        assert gate.began.acquire(timeout=30)
        app.path.write_text(AFTER)  # later than the first asked
        others = [clients.submit(mine.reload) for _ in range(7)]
        rehearsal = clients.submit(mine.reload, dry_run=True)
        while threading.active_count() < 10 or len(mine._waiting) < 2:
            time.sleep(0.001)
        for _ in range(100):
            mine.on_signal()  # returns at once: a reload waits that has not begun
        for _ in range(3):
            gate.go.release()
        assert first.result(30)  # it read the file after it had been written
        found = [other.result(30) for other in others]
        rehearsal.result(30)
    assert gate.reads == 3
    assert all(one == found[0] for one in found)
    assert not mine._waiting


def test_an_error_is_everybodys_who_waited_for_it(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, mine = Gate(app), reloader(app)
    monkeypatch.setattr(app, "read", gate.read)
    before = app.standing()
    with ThreadPoolExecutor(4) as clients:
        first = clients.submit(mine.reload)
        assert gate.began.acquire(timeout=30)
        others = [clients.submit(mine.reload) for _ in range(3)]
        while threading.active_count() < 5 or not mine._waiting:
            time.sleep(0.001)
        gate.go.release()
        assert first.result(30).changes == []
        app.path.write_text(AFTER.replace("dpid: 1", "dpid: x"))
        gate.go.release()
        assert [type(other.exception(30)) for other in others] == [ConfigError] * 3
    assert gate.reads == 2
    assert app.standing() == before
    app.path.write_text(AFTER)
    gate.go.release()
    assert mine.reload().changes


def test_what_a_reload_replaces_is_freed_without_the_collector(app: App) -> None:
    app.path.write_text(AFTER)
    central = app.shell.central
    replaced = [central.fabric, central.network, central.reconciler, central.vns, central.switches[1]]
    left = [weakref.ref(one) for one in replaced]
    del replaced
    gc.collect()
    gc.disable()
    try:
        assert reloader(app).reload().changes
        assert [one() for one in left] == [None] * 5
    finally:
        gc.enable()
