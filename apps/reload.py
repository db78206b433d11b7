"""Reads the configuration file again while the controller runs: checked as a whole, applied completely or not."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from apps.runtime.memory_tuning import gc_paused, keep_made
from apps.runtime.sd_notify import ServiceManager
from apps.runtime.tls import RenewableContext
from apps.settings.file_plan import FilePlan
from apps.settings.settings import Settings
from controller.central.reconfiguration import PreparedReconfiguration, reconfigure
from controller.config.config_diff import check_changeable
from controller.config.config_summary import ConfigDiff, compare_configs, shorten
from controller.errors import DetsError
from controller.events import EventKind, EventLog
from controller.fabric.config_model import Config, Switch

if TYPE_CHECKING:  # these need the framework, a reload does not
    from apps.ovsdb.queue_reconciler import QueueReconciler
    from apps.southbound.connected_switches import ConnectedSwitch
    from apps.southbound.southbound_driver import SouthboundDriver

LOG = logging.getLogger("dets.reload")


class Application(Protocol):
    """The running application, as far as a reload changes it. ``config`` is effective, from the file that it names."""

    config: Config
    shell: SouthboundDriver
    queues: QueueReconciler
    settings: Settings
    manager: ServiceManager
    tls_contexts: list[RenewableContext]

    def read(self, path: str) -> Config:
        """Return the configuration in a file, while other greenlets run. Raises ConfigError."""

    def adopt(self, config: Config) -> None:
        """Make ``config`` effective. Called again with the previous one if the change is undone."""

    def run_in_thread(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a blocking function, and return its result; other greenlets run during that time."""

    def yield_control(self) -> None:
        """Let other greenlets run, between two batches."""

    def spawn(self, function: Callable[..., None], *arguments: object) -> object:
        """Call a function soon, in its own greenlet."""


@dataclass
class Reloads:
    """Counts of reloads (``done``: applied, or without differences), and the last file.

    ``read_s`` is in seconds since 1970; ``sha256`` is the digest of the last applied file.
    """

    done: int = 0
    failed: int = 0
    read_s: float = 0.0
    sha256: str = ""

    def read(self, source_name: str) -> None:
        """Record that the file is effective. Blocks while it reads the file; does nothing without one."""
        with contextlib.suppress(OSError):
            self.sha256 = hashlib.sha256(Path(source_name).read_bytes()).hexdigest()
        self.read_s = time.time()


class _Answer:
    """The result of a reload, for all callers who requested it before it began."""

    def __init__(self) -> None:
        self.known = threading.Event()
        self.diff = ConfigDiff([], [])
        self.error: BaseException | None = None


class Reloader:
    """Reloads an application's configuration file: one reload at a time.

    A caller during a reload waits for the next one, which serves all callers who came before it began.
    """

    def __init__(self, application: Application, reloads: Reloads) -> None:
        self._application, self._reloads = application, reloads
        self._turn = threading.Lock()
        self._waiting: dict[bool, _Answer] = {}  # callers of the next reload, and of the next dry run

    def reload(self, *, dry_run: bool = False) -> ConfigDiff:
        """Do ``_reload``, and count it unless it is a dry run; or return the result of a waiting one."""
        answer = self._waiting.get(dry_run)
        if answer is None:
            answer = self._waiting[dry_run] = _Answer()
            self._make(answer, dry_run)
        else:
            answer.known.wait()
        if answer.error is not None:
            raise answer.error
        return answer.diff

    def _make(self, answer: _Answer, dry_run: bool) -> None:
        """Execute a reload for all callers that wait for it."""
        try:
            with self._turn, gc_paused():
                del self._waiting[dry_run]  # later callers may mean a later file
                answer.diff = self._counted(dry_run)
        except BaseException as error:
            answer.error = error
        finally:
            if self._waiting.get(dry_run) is answer:
                del self._waiting[dry_run]
            answer.known.set()

    def _counted(self, dry_run: bool) -> ConfigDiff:
        """Reload, and count whether it succeeded; a dry run is not counted."""
        try:
            diff = self._reload(dry_run)
        except Exception:
            self._reloads.failed += not dry_run
            raise
        if not dry_run:
            self._reloads.done += 1
            self._application.run_in_thread(self._reloads.read, self._application.config.source_name)
        return diff

    def _reload(self, dry_run: bool) -> ConfigDiff:
        """Read the file and apply it, unless ``dry_run``; return the differences.

        Raises ConfigError for an invalid file, InvalidValueError if a changed value needs a restart, StoreError if the
        change cannot be stored. After these and any other error the controller's state, the store and the switches are
        as before. Certificates are read again too: all of them, or none if one is unusable.
        """
        application = self._application
        before, events = application.settings.file.config, application.shell.central.events
        config = application.read(before.source_name)
        diff: ConfigDiff
        diff, made = application.run_in_thread(_compared, before, config, events)
        renewals = application.run_in_thread(_renewals, application.tls_contexts)
        diff = diff._replace(summary=[*diff.summary, *(f"{key}: certificates renewed" for key in dict(renewals))])
        if dry_run:
            return diff
        if diff.changes:
            self._change(config, made)
        for _, renew in renewals:
            renew()
        if diff.summary:
            LOG.info("%d values of the configuration have changed: %s", len(diff.changes), shorten(diff.summary, "; "))
        return diff

    def _change(self, config: Config, made: PreparedReconfiguration) -> None:
        """Apply a prepared configuration; note and raise an error, with all as before."""
        application = self._application
        application.manager.reloading()
        try:
            with application.shell.switch_lock:
                self._put_in_force(config, made)
            keep_made(len(made.fabric.vns))
        except Exception as error:
            text = f"{config.source_name} was not put in force, all is as before: {error}"
            application.shell.central.note(EventKind.RELOAD_FAILED, text, application.shell.now_s())
            raise
        finally:
            application.manager.ready()

    def on_signal(self) -> None:
        """Reload, unless a reload is waiting; errors of the file are logged."""
        if False in self._waiting:
            return
        try:
            self.reload()
        except DetsError as error:
            LOG.error("not reloaded, the configuration is as before: %s", error)

    def _put_in_force(self, config: Config, made: PreparedReconfiguration) -> None:
        """Store, apply and commit; on an error undo the completed steps in reverse order."""
        application = self._application
        with ExitStack() as undo:
            plan = application.settings.prepare(config)
            undo.callback(plan.undo)
            for _ in made.build_switch_flows(application.shell.central):
                application.yield_control()
            # Other greenlets run up to here, and again when all is done.
            switch_over = _Transition(application, config, made, plan)
            undo.callback(switch_over.undo)
            switch_over.make()
            plan.commit()
            undo.pop_all()
        switch_over.update_switches()


def _compared(before: Config, config: Config, events: EventLog) -> tuple[ConfigDiff, PreparedReconfiguration]:
    """Return the differences, and the work for the new configuration that can be done in advance; for a thread.

    Raises errors before anything is changed.
    """
    check_changeable(before, config)
    return compare_configs(before, config), PreparedReconfiguration(config, events)


def _renewals(contexts: list[RenewableContext]) -> list[tuple[str, Callable[[], None]]]:
    """Return functions that renew the TLS contexts with changed files, and the sections that name these."""
    prepared = [(context.key, context.prepare()) for context in contexts]
    return [(key, renew) for key, renew in prepared if renew is not None]


class _Transition:
    """One change of the configuration in memory: it never waits, and can be undone until switches are updated."""

    def __init__(self, application: Application, config: Config, made: PreparedReconfiguration, plan: FilePlan) -> None:
        self._application, self._config, self._made, self._plan = application, config, made, plan
        shell = application.shell
        shell.push()
        self._leaving = {dpid: sorted(shell.central.reconciler.tables(dpid).meters) for dpid in shell.peers}
        self._records = dict(shell.central.switches)
        self._peers = dict(shell.peers)
        self._watches = {dpid: (peer.meters, peer.queues) for dpid, peer in shell.peers.items()}
        self._removed: dict[int, ConnectedSwitch] = {}
        self._undo = ExitStack()

    def make(self) -> None:
        """Apply the configuration to the controller and the application, with its overrides."""
        shell, adopt = self._application.shell, self._application.adopt
        central, now_s = shell.central, shell.now_s()
        change = reconfigure(central, self._config, now_s, self._made)
        self._undo.callback(change.undo, central)
        central.put_in_force(self._plan.values, now_s)
        change.finish(central)
        self._undo.callback(adopt, self._application.config)
        adopt(self._config)
        self._undo.callback(self._restore_peers)
        self._removed = {dpid: shell.peers.pop(dpid) for dpid in change.removed if dpid in shell.peers}
        shell.sync_switches()

    def undo(self) -> None:
        """Restore the state before ``make``, however far that came."""
        self._undo.close()

    def _restore_peers(self) -> None:
        peers = self._application.shell.peers
        peers.clear()
        peers.update(self._peers)
        for dpid, (meters, queues) in self._watches.items():
            peers[dpid].meters, peers[dpid].queues = meters, queues

    def update_switches(self) -> None:
        """Send the changes to the switches; release those that are no longer configured, or configured differently."""
        shell, central = self._application.shell, self._application.shell.central
        self._undo.pop_all()  # it cannot be undone any longer, so the previous state is freed
        shell.push()
        self._application.queues.wake()
        for dpid, peer in self._removed.items():
            if dpid in central.switches:  # it has another profile, or another queue mode
                self._application.spawn(shell.reconnect, peer, None)
            else:
                self._application.spawn(self._clean_up_switch, peer, self._leaving[dpid], self._records[dpid].switch)
        for connection in list(shell.unmanaged):
            if connection.dpid in central.switches and connection.dpid not in shell.peers:
                connection.disconnect()  # it is configured now, and must reconnect

    def _clean_up_switch(self, peer: ConnectedSwitch, meters: list[int], switch: Switch) -> None:
        """Remove the controller's flows, meters and queues from a switch that is no longer configured."""
        self._application.queues.remove(switch)
        self._application.shell.reconnect(peer, meters)
