"""Tracks which changes of settings the switches have confirmed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apps.ovsdb.queue_reconciler import QueueReconciler
    from apps.southbound.southbound_driver import SouthboundDriver


class ChangeTracker:
    """Follows each change until the connected switches have confirmed its messages.

    A change is confirmed once the first round of the loop after it has sent its messages, no flow entries wait for a
    later round, the barriers behind the messages are answered, and the queues are reconciled.
    """

    def __init__(self, shell: SouthboundDriver, queues: QueueReconciler, revision: int) -> None:
        self._shell, self._queues = shell, queues
        self._installed = 0
        self._pending = deque([(revision, shell.now_s())])

    def changed(self, revision: int) -> None:
        """Record that a change was made now."""
        self._pending.append((revision, self._shell.now_s()))

    def status(self, revision: int) -> dict[str, Any]:
        """Return, as JSON, how far the changes up to ``revision`` are confirmed, and which switches are missing.

        Unconfirmed switches delay the oldest unconfirmed change; disconnected ones delay nothing.
        """
        unconfirmed: set[int] = set()
        while self._pending:
            oldest_revision, changed_s = self._pending[0]
            unconfirmed = self._unconfirmed(changed_s)
            if unconfirmed:
                break
            self._installed = oldest_revision
            self._pending.popleft()
        records = self._shell.central.switches
        return {
            "revision": revision,
            "installed_revision": self._installed if self._pending else revision,
            "unconfirmed_switches": sorted(records[dpid].switch.name for dpid in unconfirmed),
            "disconnected_switches": sorted(
                record.switch.name for dpid, record in records.items() if dpid not in self._shell.peers
            ),
        }

    def _unconfirmed(self, changed_s: float) -> set[int]:
        """Return the dpids of the switches that must still confirm a change that was made at ``changed_s``."""
        sent_s = self._shell.times.sent_after(changed_s)
        if sent_s is None:  # no round has sent the change's messages yet
            return set(self._shell.central.switches)
        self._shell.peers.collect_confirmations()
        unconfirmed = {
            dpid
            for dpid, peer in self._shell.peers.items()
            if any(barrier_s <= sent_s for barrier_s, _ in peer.unconfirmed())
        }
        unconfirmed |= self._shell.central.network.desired.pending & self._shell.peers.keys()
        # Queues: switches that failed, or all with a database if the reconciler has not finished a round since.
        if self._queues.reconciled_s < changed_s:
            unconfirmed |= set(self._queues.failing()) or {
                dpid for dpid in self._shell.peers if self._shell.central.switches[dpid].switch.ovsdb is not None
            }
        return unconfirmed
