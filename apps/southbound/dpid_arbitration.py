"""Arbitration between two connections that present the same dpid (docs/adr/0077)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from apps.runtime.connection.connection_limits import EvictionReason, LogRateLimiter
from apps.runtime.ryu_adapter import SwitchConnection
from apps.southbound.connected_switches import ConnectedSwitches
from apps.southbound.reply_timeouts import STALL_TOLERANCE_S
from controller.errors import ProtocolError
from controller.events import EventKind

# A live switch confirms a barrier in milliseconds; a switch that has reconnected must not wait long.
LIVENESS_TIMEOUT_S = 0.4


class DpidArbiter:
    """Grants each dpid to one connection at a time, its owner.

    1. A dpid without an owner is granted to the new connection.
    2. If a dpid has an owner, the owner gets a barrier request. An owner that replies in time keeps the dpid.
    3. If the owner does not reply, or its connection ends first, the new connection gets the dpid.

    The connection that does not get the dpid is evicted. While a new connection waits for the owner's reply, further
    ones for the same dpid are evicted. ``owner`` returns the present owner of a dpid, or None.
    """

    def __init__(self, peers: ConnectedSwitches, owner: Callable[[int], SwitchConnection | None]) -> None:
        self._peers, self._owner = peers, owner
        self._waiting: set[int] = set()
        self._log_limiter = LogRateLimiter(peers.clock)

    def admit(self, connection: SwitchConnection) -> bool:
        """Return whether the new connection gets its dpid; otherwise evict it. Waits at most LIVENESS_TIMEOUT_S."""
        dpid = connection.dpid
        owner = self._owner(dpid)
        if owner is None and dpid not in self._waiting:  # 1
            return True
        if dpid in self._waiting:
            connection.disconnect(EvictionReason.CLAIM)
            return False
        self._waiting.add(dpid)
        try:
            owner_stays = owner is not None and self._is_alive(owner)  # 2
        finally:
            self._waiting.discard(dpid)
        if connection.closed:
            return False
        if owner_stays:
            connection.disconnect(EvictionReason.CLAIM)
        outcome = "evicted: the first one is alive" if owner_stays else "accepted: the first one is dead"
        self._note(dpid, connection, outcome)
        return not owner_stays  # 3

    def _is_alive(self, owner: SwitchConnection) -> bool:
        """Return whether the owner replies to a barrier in time.

        If the wait ends much too late, this process was stopped and read no reply, so the wait begins again.
        """
        clock = self._peers.clock
        reply = owner.barrier()
        with suppress(ProtocolError):
            while True:
                due_s = clock() + LIVENESS_TIMEOUT_S
                if reply.wait(LIVENESS_TIMEOUT_S) is not None:
                    return True
                if clock() - due_s < STALL_TOLERANCE_S:
                    return False
        return False

    def _note(self, dpid: int, connection: SwitchConnection, outcome: str) -> None:
        """Record an event about a second connection of a configured switch; repeated outcomes rarely."""
        if dpid not in self._peers.central.switches or not self._log_limiter.due((dpid, outcome)):
            return
        name = self._peers.central.switches[dpid].switch.name
        text = f"switch {name} ({dpid:016x}): a second connection, from {connection.address[0]}, was {outcome}"
        self._peers.central.note(EventKind.DPID_CONFLICT, text, self._peers.clock(), dpid=dpid)
