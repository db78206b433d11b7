"""The DETS application for ryu-manager: ``ryu-manager --dets-config dets.yaml apps.dets``.

Other Ryu applications can run next to it (docs/operator-guide.md). The configuration is the file named by
``--dets-config``, by the environment variable DETS_CONFIG, or ``dets.yaml`` in the current folder.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, ClassVar

from apps import config_reader, rest
from apps.change_tracker import ChangeTracker
from apps.membership import member_of
from apps.metrics import Metrics
from apps.ovsdb.queue_reconciler import QueueReconciler, ovsdb_tls
from apps.reload import Reloader, Reloads
from apps.runtime import first_config
from apps.runtime.cooperative_scheduler import CooperativeScheduler
from apps.runtime.memory_tuning import gc_paused, keep_made
from apps.runtime.ryu_adapter import (
    OFP_VERSION,
    AppBase,
    PeerDatapath,
    SwitchConnection,
    check_free,
    configured_file,
    hub,
    listen_on,
    on_hangup,
    other_wsgi_apps,
    run_in_thread,
    set_log,
)
from apps.runtime.sd_notify import ServiceManager
from apps.runtime.sockets.greenlet_event import GreenletFlag
from apps.runtime.supervisor import Supervisor
from apps.runtime.tls import RenewableContext, renewable_server
from apps.settings.errors import StoreError
from apps.settings.settings import Settings
from apps.settings.store import SettingsStore
from apps.southbound import capability_tests
from apps.southbound.connected_switches import AUDIT_INTERVAL_S
from apps.southbound.southbound_driver import SouthboundDriver
from controller import plugins
from controller.config.config_summary import ConfigDiff
from controller.errors import DetsError
from controller.fabric.config_model import Config
from controller.fabric.topology import PROBE_INTERVAL_S
from controller.monitoring.observer import Observer

WANTED_AUDITS_INTERVAL_S = 1.0
LAG_INTERVAL_S = 0.5
# File descriptors that are kept free for the store, the switches' databases and threads; those of REST clients come on
# top.
RESERVED_FILES = 32
TESTS_INTERVAL_S = 0.5
PORT_NAMES_INTERVAL_S = 1.0


class Dets(AppBase):
    """The Ryu application: it owns the southbound driver, the settings, the REST server and the loops."""

    OFP_VERSIONS: ClassVar[list[int]] = [OFP_VERSION]
    run_in_thread = staticmethod(run_in_thread)
    spawn = staticmethod(hub.spawn)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        with gc_paused():
            self._make()
            keep_made(len(self.shell.central.vns))

    def _make(self) -> None:
        """Create the parts of the application in order; SystemExit for an error that the user can fix."""
        try:
            self.config = first_config.pop(configured_file() or os.environ.get("DETS_CONFIG", "dets.yaml"))
            set_log(self.config.log_format, self.config.log_level)
            interval_s = self.config.interval_s
            self.scheduler = CooperativeScheduler(
                interval_s, time.monotonic, hub.sleep, GreenletFlag(), hub.Semaphore(), hub.spawn
            )
            openflow_tls = renewable_server("openflow", self.config.openflow_tls)
            reserved = self.config.rest.max_connections + RESERVED_FILES
            openflow = self.config.openflow_listen
            listen_on(openflow.host, openflow.port, openflow_tls, reserved, self.scheduler.wait)
            check_free("rest.listen", self.config.rest.listen.host, self.config.rest.listen.port)
            rest_tls = renewable_server("rest", self.config.rest.tls)
            self.membership = member_of(self.config)
            ovsdb_contexts = ovsdb_tls(self.config.ovsdb_tls)
            contexts = [context for context in (openflow_tls, rest_tls, *ovsdb_contexts) if context is not None]
            self.tls_contexts = [*contexts, *self.membership.tls_contexts()]
            store_path = self.config.rest.store
            store = self.membership.store(store_path)
            self._tokens = self.membership.tokens(store_path) if self.config.rest.authentication == "token" else None
        except DetsError as error:  # an error that the user can fix needs no traceback
            print(error, file=sys.stderr)
            raise SystemExit(2) from None
        scheduling = self.scheduler.yield_control, self.scheduler.io_wait
        self.shell = SouthboundDriver(self.config, time.monotonic, self._on_ports, *scheduling, self.membership.roles)
        self.membership.drive(self.shell, self.scheduler)
        self.observer = Observer(self.shell.central)
        self.queues = QueueReconciler(self.shell, ovsdb_contexts)
        self.loops = Supervisor(time.monotonic, hub.spawn, hub.sleep, hub.kill)
        self.settings = self._settings(store)
        self.shell.edge_ports.restore(self.settings.port_names())
        self.manager = ServiceManager()
        reloads = Reloads()
        reloads.read(self.config.source_name)
        self.metrics = Metrics(self.shell, self.loops, self.queues, PeerDatapath.counts, self.observer, reloads)
        self.membership.attach(self.settings, self.queues, self.metrics)
        self.reloader = Reloader(self, reloads)
        on_hangup(self.reloader.on_signal)
        self._rest = self._serve_rest(rest_tls)
        for plugin, reason in plugins.faults.items():
            self.logger.warning("%s is not loaded: %s", plugin, reason)

    def start(self) -> Any:
        """Start the application's loops, and report to the service manager; called by Ryu."""
        self.loops.every("interval", self.config.interval_s, self._run_interval)
        self.loops.every("hub lag", LAG_INTERVAL_S, self._measure_lag)
        self.loops.on_demand("event lines", self.shell.lines.wait, self.shell.lines.write)
        self.loops.every("tests", TESTS_INTERVAL_S, lambda: capability_tests.run_queue_tests(self.shell.peers))
        self.loops.every("hellos", PROBE_INTERVAL_S, self.shell.link_discovery.send_all)
        self.loops.every("audits", AUDIT_INTERVAL_S, self.shell.audits.run_all)
        self.loops.every("wanted audits", WANTED_AUDITS_INTERVAL_S, self.shell.audits.run_requested)
        self.loops.every("port names", PORT_NAMES_INTERVAL_S, self._keep_port_names)
        self.loops.on_demand("queues", self.queues.wait, self.queues.run_round)
        self._warn_about_other_apps()
        self.manager.ready()
        gc.freeze()  # the collector skips the present objects: most of them live as long as the process
        return super().start()

    def close(self) -> None:
        """Stop the loops and the servers; meters, flow entries and queues stay or are removed, as configured."""
        self.manager.stopping()
        self.settings.close()
        self.loops.stop()
        self._rest.stop()
        self.membership.leave(self.shell, self.queues, self.config.on_stop)
        if self._tokens is not None:
            self._tokens.close()
        self.shell.lines.write()
        self.logger.info("stopped; on_stop: %s", self.config.on_stop)

    def _run_interval(self) -> None:
        """Run one round of the control loop, and the work of the cluster and of observation around it."""
        self.membership.before_interval()
        with self.scheduler.control_round():
            self.shell.run_interval()
        self.membership.after_interval()
        self.observer.on_round_end(time.monotonic())
        self.manager.ping_watchdog(time.monotonic())
        last = self.shell.times.last
        if last is not None:
            self.metrics.round_s.observe(last.total_ms / 1e3)

    def _keep_port_names(self) -> None:
        """Store the first names of edge ports that are not stored yet, if this node may write the store."""
        edge_ports = self.shell.edge_ports
        edge_ports.note_links()
        if not edge_ports.changed or not self.settings.store.writable:
            return
        names = edge_ports.drain_changed()
        try:
            self.settings.keep_port_names(names)
        except StoreError:  # an event has reported it
            edge_ports.changed = names | edge_ports.changed

    def _measure_lag(self) -> None:
        """Measure the event loop's lag: how late this loop, which does nothing else, wakes up."""
        due_s = self.loops.loops["hub lag"].due_s
        assert due_s is not None
        self.metrics.hub_lag_s.observe(max(time.monotonic() - due_s, 0.0))

    def health(self) -> dict[str, Any]:
        """Return the state of the switches and the loops; ``degraded`` unless all are without fault."""
        health = self.shell.health()
        faults = self.loops.faults()
        loops = {
            name: {"failures": loop.failures, "fault": faults.get(name)} for name, loop in self.loops.loops.items()
        }
        status = "degraded" if faults else health["status"]
        return self.membership.health({**health, "status": status, "loops": loops})

    def _serve_rest(self, tls: RenewableContext | None) -> rest.RestServer:
        """Start and return the REST server: the application, behind a rate limiter and a count of responses."""
        settings = self.config.rest
        # At most half of the connections may be event streams, which stay open; the rest is for requests.
        app = rest.create_app(_RestService(self), self._tokens, max(settings.max_connections // 2, 1), settings.ui)
        limiter = rest.RequestRateLimiter(settings.requests_per_s, time.monotonic)
        limited_app = rest.with_status_counts(rest.rate_limited(app, limiter, hub.sleep), self.metrics.requests)
        host, port, wait = settings.listen.host, settings.listen.port, self.scheduler.wait
        self.logger.info("listens for REST at %s", settings.listen)
        return rest.serve(
            limited_app, host, port, tls, settings.max_connections, wait=wait, trusted_proxies=settings.trusted_proxies
        )

    def _settings(self, store: SettingsStore) -> Settings:
        """Return the settings in a store; SystemExit if the store cannot be read."""
        run, yield_control, compute = self.membership.run, self.scheduler.yield_control, run_in_thread
        try:
            return Settings(
                self.shell.central, store, time.monotonic, run=run, yield_control=yield_control, compute=compute
            )
        except StoreError as error:
            print(error, file=sys.stderr)
            raise SystemExit(2) from None

    def read(self, path: str) -> Config:
        """Return the configuration in a file, read while the loop goes on."""
        return config_reader.read(path, run_in_thread)

    def yield_control(self) -> None:
        """Let other greenlets run until the control loop is idle."""
        self.scheduler.yield_control()

    def adopt(self, config: Config) -> None:
        """Make ``config`` the effective configuration."""
        self.config = config
        set_log(config.log_format, config.log_level)

    def _on_ports(self, dpid: int) -> None:
        self.queues.wake()

    def switch_connected(self, connection: SwitchConnection) -> None:
        """Handle a switch that completed its handshake."""
        hub.spawn(self.shell.connected, connection)

    def _warn_about_other_apps(self) -> None:
        """Warn if an application of this process serves HTTP without authentication."""
        address_and_names = other_wsgi_apps()
        if address_and_names is not None:
            address, names = address_and_names
            self.logger.warning(
                "%s of this process serves HTTP at %s without authentication: anyone who reaches it can change the "
                "switches' tables; let --wsapi-host be 127.0.0.1",
                ", ".join(names),
                address,
            )


class _RestService(rest.Service):
    """The application's interface for REST."""

    def __init__(self, dets: Dets) -> None:
        needs_if_match = dets.config.rest.if_match == "required"
        super().__init__(dets.shell.central, time.monotonic, dets.settings, needs_if_match, dets.observer)
        self._dets = dets
        self.remote_nodes = dets.membership.remote_nodes()
        self._change_tracker = ChangeTracker(dets.shell, dets.queues, dets.settings.revision)

    def health(self) -> dict[str, Any]:
        return self._dets.health()

    def on_change(self, revision: int) -> None:
        self._change_tracker.changed(revision)
        self._dets.shell.push()
        self._dets.queues.wake()

    def revision_status(self, revision: int) -> dict[str, Any]:
        return self._change_tracker.status(revision)

    def loop(self, after: int) -> dict[str, Any]:
        return self._dets.shell.times.view(after)

    def reload(self, dry_run: bool) -> ConfigDiff:
        diff = self._dets.reloader.reload(dry_run=dry_run)
        if diff.changes and not dry_run:
            self._change_tracker.changed(self.settings.revision)
        return diff

    def metrics(self) -> Iterator[bytes]:
        return self._dets.metrics.page()

    def sleep(self, duration_s: float) -> None:
        self._dets.scheduler.sleep(duration_s)
