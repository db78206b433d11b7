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
        """Record that the file is effective: its digest, and the present time. Blocks while the file is read."""
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
        self._waiting: dict[bool, _Answer] = {}  # by whether it is a dry run: the result of the next reload

    def reload(self, *, dry_run: bool = False) -> ConfigDiff:
        """Reload the file, or wait for a reload that has not begun; return the differences.

        Raises the errors of ``_reload``. A ``dry_run`` changes nothing.
        """
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
        """Reload when it is the turn, and store the result in ``answer`` for all callers that wait for it."""
        try:
            with self._turn, gc_paused():
                del self._waiting[dry_run]  # the file may change again: later callers need another reload
                answer.diff = self._counted(dry_run)
        except BaseException as error:
            answer.error = error
        finally:
            if self._waiting.get(dry_run) is answer:  # an error ended the wait for the turn
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
        diff, prepared = application.run_in_thread(_compare_and_prepare, before, config, events)
        renewals = application.run_in_thread(_renewals, application.tls_contexts)
        diff = diff._replace(summary=[*diff.summary, *(f"{key}: certificates renewed" for key in dict(renewals))])
        if dry_run:
            return diff
        if diff.changes:
            self._change(config, prepared)
        for _, renew in renewals:
            renew()
        if diff.summary:
            LOG.info("%d values of the configuration have changed: %s", len(diff.changes), shorten(diff.summary, "; "))
        return diff

    def _change(self, config: Config, prepared: PreparedReconfiguration) -> None:
        """Apply a prepared configuration. On an error, restore all, record an event and raise the error."""
        application = self._application
        application.manager.reloading()
        try:
            with application.shell.switch_lock:
                self._apply(config, prepared)
            keep_made(len(prepared.fabric.vns))
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

    def _apply(self, config: Config, prepared: PreparedReconfiguration) -> None:
        """Store, apply and commit a configuration; on an error undo the completed steps in reverse order."""
        application = self._application
        with ExitStack() as undo:
            plan = application.settings.prepare(config)
            undo.callback(plan.undo)
            for _ in prepared.build_switch_flows(application.shell.central):
                application.yield_control()
            # From here to the commit no other greenlet runs, so none sees a half-applied configuration.
            transition = _Transition(application, config, prepared, plan)
            undo.callback(transition.undo)
            transition.make()
            plan.commit()
            undo.pop_all()
        transition.update_switches()


def _compare_and_prepare(
    before: Config, config: Config, events: EventLog
) -> tuple[ConfigDiff, PreparedReconfiguration]:
    """Return the differences between two configurations, and what can be computed in advance for the new one.

    It runs in a thread, and changes nothing. Raises InvalidValueError if a changed value needs a restart.
    """
    check_changeable(before, config)
    return compare_configs(before, config), PreparedReconfiguration(config, events)


def _renewals(contexts: list[RenewableContext]) -> list[tuple[str, Callable[[], None]]]:
    """Return (section of the configuration, function that renews it) of each TLS context with changed files."""
    prepared = [(context.key, context.prepare()) for context in contexts]
    return [(key, renew) for key, renew in prepared if renew is not None]


class _Transition:
    """One change of the configuration in memory: it never waits, and can be undone until switches are updated."""

    def __init__(
        self, application: Application, config: Config, prepared: PreparedReconfiguration, plan: FilePlan
    ) -> None:
        self._application, self._config, self._prepared, self._plan = application, config, prepared, plan
        shell = application.shell
        shell.push()
        # The state before the change: meter ids, records, connections and monitors by dpid.
        self._old_meters = {dpid: sorted(shell.central.reconciler.tables(dpid).meters) for dpid in shell.peers}
        self._records = dict(shell.central.switches)
        self._peers = dict(shell.peers)
        self._monitors = {dpid: (peer.meters, peer.queues) for dpid, peer in shell.peers.items()}
        self._removed: dict[int, ConnectedSwitch] = {}
        self._undo = ExitStack()

    def make(self) -> None:
        """Apply the configuration, with the stored overrides, to the controller and the application."""
        shell, adopt = self._application.shell, self._application.adopt
        central, now_s = shell.central, shell.now_s()
        change = reconfigure(central, self._config, now_s, self._prepared)
        self._undo.callback(change.undo, central)
        central.put_in_force(self._plan.values, now_s)
        change.finish(central)
        self._undo.callback(adopt, self._application.config)
        adopt(self._config)
        self._undo.callback(self._restore_peers)
        self._removed = {dpid: shell.peers.pop(dpid) for dpid in change.removed if dpid in shell.peers}
        shell.sync_switches()

    def undo(self) -> None:
        """Restore the state before ``make``, also if ``make`` has failed in the middle."""
        self._undo.close()

    def _restore_peers(self) -> None:
        """Restore the connected switches with their monitors."""
        peers = self._application.shell.peers
        peers.clear()
        peers.update(self._peers)
        for dpid, (meters, queues) in self._monitors.items():
            peers[dpid].meters, peers[dpid].queues = meters, queues

    def update_switches(self) -> None:
        """Send the changes to the switches; this cannot be undone.

        Switches that must be brought up anew are disconnected. Switches that are no longer configured are cleaned up.
        """
        shell, central = self._application.shell, self._application.shell.central
        self._undo.pop_all()  # frees the previous state
        shell.push()
        self._application.queues.wake()
        for dpid, peer in self._removed.items():
            if dpid in central.switches:  # its profile or its queue mode has changed
                self._application.spawn(shell.reconnect, peer, None)
            else:
                self._application.spawn(self._clean_up_switch, peer, self._old_meters[dpid], self._records[dpid].switch)
        for connection in list(shell.unmanaged):
            if connection.dpid in central.switches and connection.dpid not in shell.peers:
                connection.disconnect()  # it is configured now, and must reconnect

    def _clean_up_switch(self, peer: ConnectedSwitch, meters: list[int], switch: Switch) -> None:
        """Remove the controller's flow entries, ``meters`` (ids) and queues from a switch, and close its connection."""
        self._application.queues.remove(switch)
        self._application.shell.reconnect(peer, meters)
