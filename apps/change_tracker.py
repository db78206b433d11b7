"""Tracks which changes the switches have confirmed, in addition to being stored and decided."""

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
        """Return the last change, the last confirmed one, the unconfirmed switches, and the disconnected ones."""
        waiting: set[int] = set()
        while self._pending:
            number, at_s = self._pending[0]
            waiting = self._unconfirmed(at_s)
            if waiting:
                break
            self._installed = number
            self._pending.popleft()
        records = self._shell.central.switches
        return {
            "revision": revision,
            "installed_revision": self._installed if self._pending else revision,
            "unconfirmed_switches": sorted(records[dpid].switch.name for dpid in waiting),
            "disconnected_switches": sorted(
                record.switch.name for dpid, record in records.items() if dpid not in self._shell.peers
            ),
        }

    def _unconfirmed(self, at_s: float) -> set[int]:
        """Return the switches that must still confirm the decisions of ``at_s``."""
        sent_s = self._shell.times.sent_after(at_s)
        if sent_s is None:
            return set(self._shell.central.switches)
        self._shell.peers.collect_confirmations()
        slow = {
            dpid
            for dpid, peer in self._shell.peers.items()
            if any(asked_s <= sent_s for asked_s, _ in peer.unconfirmed())
        }
        slow |= self._shell.central.network.desired.pending & self._shell.peers.keys()
        if self._queues.reconciled_s < at_s:
            slow |= set(self._queues.failing()) or {
                dpid for dpid in self._shell.peers if self._shell.central.switches[dpid].switch.ovsdb is not None
            }
        return slow
