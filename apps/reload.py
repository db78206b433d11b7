"""Reads the configuration file again while the controller runs: checked as a whole, then all of it or nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from apps.runtime.ryu_seam import hub
from apps.runtime.sd_notify import ServiceManager
from apps.settings.settings import Settings
from apps.southbound.peers import Peer
from apps.southbound.queue_keeper import QueueKeeper
from apps.southbound.shell import Shell
from controller.central.controller import CentralController
from controller.central.reconfiguration import reconfigure
from controller.config.changes import ConfigChange, check_changeable, config_changes
from controller.config.load import load_config
from controller.errors import DetsError
from controller.fabric.description import Config, Switch

LOG = logging.getLogger("dets.reload")


class Reloader:
    """Brings the file of one controller in force again.

    ``run`` calls a function that blocks and returns what it returns. ``on_config`` is told of the configuration that is
    in force from then on.
    """

    def __init__(
        self,
        path: str,
        shell: Shell,
        queues: QueueKeeper,
        settings: Settings,
        manager: ServiceManager,
        run: Callable[..., Any],
        on_config: Callable[[Config], None],
    ) -> None:
        self.path = path
        self._shell, self._queues, self._settings, self._manager = shell, queues, settings, manager
        self._run, self._on_config = run, on_config

    def reload(self, *, dry_run: bool = False) -> list[ConfigChange]:
        """Read the file and put it in force, unless ``dry_run``; return what differs.

        Raises ConfigError when the file is not acceptable, InvalidValueError when it changes what only a restart can,
        StoreError when the change cannot be kept: then everything is as before.
        """
        config: Config = self._run(load_config, self.path)
        before = self._settings.file.config
        check_changeable(before, config)
        changes = config_changes(before, config)
        CentralController(config)  # raises what would stand in the way, before anything is touched
        if dry_run or not changes:
            return changes
        self._manager.reloading()
        try:
            with self._shell.standing_still:
                self._settings.adopt_file(config, lambda adopt: self._switch_over(config, adopt))
        finally:
            self._manager.ready()
        LOG.info("%d values of the configuration have changed", len(changes))
        return changes

    def on_signal(self) -> None:
        """Reload; what is wrong with the file is logged."""
        try:
            self.reload()
        except DetsError as error:
            LOG.error("not reloaded, the configuration is as before: %s", error)

    def _switch_over(self, config: Config, adopt: Callable[[], None]) -> None:
        """Put a configuration in force; ``adopt`` lays over it what was set at run time. Nobody else runs meanwhile."""
        central = self._shell.central
        self._shell.push()
        leaving = {dpid: sorted(central.reconciler.tables(dpid).meters) for dpid in self._shell.peers}
        records = dict(central.switches)
        change = reconfigure(central, config, self._shell.now_s())
        try:
            adopt()
        except BaseException:
            change.undo(central)
            raise
        change.finish(central)
        self._on_config(config)
        gone = {dpid: self._shell.peers.pop(dpid) for dpid in change.gone if dpid in self._shell.peers}
        self._shell.renew_peers()
        self._shell.push()
        self._queues.wake()
        for dpid, peer in gone.items():
            if dpid in central.switches:  # it has another profile
                hub.spawn(self._shell.let_go, peer, None)
            else:
                hub.spawn(self._take_leave, peer, leaving[dpid], records[dpid].switch)
        for connection in list(self._shell.strangers):
            if connection.dpid in central.switches and connection.dpid not in self._shell.peers:
                connection.disconnect()  # it is configured now, and has to connect again

    def _take_leave(self, peer: Peer, meters: list[int], switch: Switch) -> None:
        """Take ours off a switch that is no longer configured."""
        self._queues.remove(switch)
        self._shell.let_go(peer, meters)
