"""The interface between the application and other controllers of its fabric, for a process without any.

``apps.cluster.cluster_member`` has the subclasses for a cluster.
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
    """Tokens in a store that must be closed."""

    def close(self) -> None:
        """Close the store."""


class Standalone:
    """A process without peers. ``roles`` is the role manager, or None."""

    roles: Roles | None = None

    def store(self, path: str) -> SettingsStore:
        """Return the store of settings."""
        return Store(path)

    def tokens(self, path: str) -> KeptTokens:
        """Return the store of tokens."""
        return Tokens(path)

    @staticmethod
    def run(function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function of a store, and return its result; other greenlets run during that time."""
        return run_in_thread(function, *arguments)

    def tls_contexts(self) -> list[RenewableContext]:
        """Return the TLS contexts towards other processes, whose files are read again with the configuration."""
        return []

    def drive(self, shell: SouthboundDriver, scheduler: CooperativeScheduler) -> None:
        """Called with the southbound driver as soon as it exists; settings do not exist yet."""

    def attach(self, settings: Settings, queues: QueueReconciler, metrics: Metrics) -> None:
        """Called with the other parts of the process as soon as they exist; no loop runs yet."""

    def before_interval(self) -> None:
        """Called before an interval."""

    def after_interval(self) -> None:
        """Called after an interval."""

    def health(self, health: dict[str, Any]) -> dict[str, Any]:
        """Return the contents of ``/v1/health``; ``health`` is the state of switches and loops."""
        return health

    def remote_nodes(self) -> RemoteNodes:
        """Return the other controllers, for requests that need them."""
        return RemoteNodes()

    def leave(self, shell: SouthboundDriver, queues: QueueReconciler, on_stop: str) -> None:
        """Called when the process stops: remove meters, flow entries and queues, or set meters to exact limits.

        ``on_stop`` is the configuration's: ``remove``, or ``keep``.
        """
        if on_stop == "remove":
            shell.remove_all()
            queues.remove_all()
        else:
            shell.finalize_meters()


def member_of(config: Config) -> Standalone:
    """Return the membership for a configuration. Raises InvalidValueError for an unusable one."""
    if config.cluster is None:
        return Standalone()
    member: Standalone = room("cluster").member(config.cluster)
    return member
