"""Whose a dpid is when two connections claim it (docs/adr/0077)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from apps.runtime.connection.connection_limits import EvictionReason, LogRateLimiter
from apps.runtime.ryu_adapter import SwitchConnection
from apps.southbound.connected_switches import ConnectedSwitches
from apps.southbound.reply_timeouts import STALL_TOLERANCE_S
from controller.errors import ProtocolError
from controller.events import EventKind

# A switch that is there confirms a barrier in milliseconds; one that has connected again is not kept waiting for long.
LIVENESS_TIMEOUT_S = 0.4


class DpidArbiter:
    """Grants each dpid to one connection at a time.

    1. A dpid that nobody has is granted.
    2. Of one that somebody has, the owner is asked for a barrier. If it answers in time, it stays the owner.
    3. If it does not, or its connection ends meanwhile, the dpid is the newcomer's.

    Whoever loses is cut off. While one newcomer waits, further ones for the same dpid lose. ``owner`` returns the
    connection that a dpid has.
    """

    def __init__(self, peers: ConnectedSwitches, owner: Callable[[int], SwitchConnection | None]) -> None:
        self._peers, self._owner = peers, owner
        self._waiting: set[int] = set()
        self._sparing = LogRateLimiter(peers.clock)

    def admit(self, newcomer: SwitchConnection) -> bool:
        """Return whether the newcomer may have its dpid; else it is cut off. Waits for CLAIM_PATIENCE_S at most."""
        dpid = newcomer.dpid
        owner = self._owner(dpid)
        if owner is None and dpid not in self._waiting:  # 1
            return True
        if dpid in self._waiting:
            newcomer.disconnect(EvictionReason.CLAIM)
            return False
        self._waiting.add(dpid)
        try:
            stays = owner is not None and self._is_alive(owner)  # 2
        finally:
            self._waiting.discard(dpid)
        if newcomer.closed:
            return False
        if stays:
            newcomer.disconnect(EvictionReason.CLAIM)
        self._note(dpid, newcomer, "cut off: the switch is connected" if stays else "taken for it: the old one is dead")
        return not stays  # 3

    def _is_alive(self, owner: SwitchConnection) -> bool:
        """Return whether the owner confirms a barrier in time, less time in which the process stood still."""
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

    def _note(self, dpid: int, newcomer: SwitchConnection, outcome: str) -> None:
        if dpid not in self._peers.central.switches or not self._sparing.due((dpid, outcome)):
            return
        name = self._peers.central.switches[dpid].switch.name
        text = f"switch {name} ({dpid:016x}): a second connection, from {newcomer.address[0]}, was {outcome}"
        self._peers.central.note(EventKind.DPID_CONFLICT, text, self._peers.clock(), dpid=dpid)
