"""What a process has to do with other controllers of its fabric: nothing here.

``apps.cluster.cluster_member`` has more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from apps.metrics import Metrics
from apps.ovsdb.queue_reconciler import QueueReconciler
from apps.rest.http.access import TokenStore
from apps.rest.resources.service import RemoteNodes
from apps.runtime.cooperative_scheduler import CooperativeScheduler
from apps.runtime.ryu_adapter import run_in_thread
from apps.runtime.tls import RenewableContext
from apps.settings.settings import Settings
from apps.settings.store import SettingsStore, Store
from apps.settings.tokens import Tokens
from apps.southbound.southbound_driver import Roles, SouthboundDriver
from controller.fabric.config_model import Config
from controller.rooms import room


class KeptTokens(TokenStore, Protocol):
    """Tokens that are kept somewhere until they are closed."""

    def close(self) -> None:
        """Ask for none any more."""


class Standalone:
    """A process that is nobody's peer. ``roles`` are whom switches are left to."""

    roles: Roles | None = None

    def store(self, path: str) -> SettingsStore:
        """Return where settings are kept."""
        return Store(path)

    def tokens(self, path: str) -> KeptTokens:
        """Return where tokens are kept."""
        return Tokens(path)

    @staticmethod
    def run(function: Callable[..., Any], *arguments: object) -> Any:
        """Return what a function of the store returns, while others go on."""
        return run_in_thread(function, *arguments)

    def tls_contexts(self) -> list[RenewableContext]:
        """Return the contexts of connections to other processes, whose files are read again with the configuration."""
        return []

    def drive(self, shell: SouthboundDriver, spare: CooperativeScheduler) -> None:
        """Switches are driven by this shell from now on; nothing has been set yet."""

    def attach(self, settings: Settings, queues: QueueReconciler, metrics: Metrics) -> None:
        """What can be set, and the rest of the process, is there; no loop has begun."""

    def before_interval(self) -> None:
        """An interval is about to begin."""

    def after_interval(self) -> None:
        """An interval has ended."""

    def health(self, health: dict[str, Any]) -> dict[str, Any]:
        """Return what ``/v1/health`` says; ``health`` is how switches and loops are."""
        return health

    def others(self) -> RemoteNodes:
        """Return the other controllers, as requests have to do with them."""
        return RemoteNodes()

    def leave(self, shell: SouthboundDriver, queues: QueueReconciler, on_stop: str) -> None:
        """Stop: meters, entries and queues stay or go as configured."""
        if on_stop == "remove":
            shell.remove_all()
            queues.remove_all()
        else:
            shell.finalize_meters()


def member_of(config: Config) -> Standalone:
    """Return what a configuration makes of the process. Raises InvalidValueError for what cannot be used."""
    if config.cluster is None:
        return Standalone()
    member: Standalone = room("cluster").member(config.cluster)
    return member
