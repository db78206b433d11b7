"""Operators' requests to the nodes of a sharded cluster: drained nodes, and switches that must move.

All of them are keys in etcd (``etcd_membership``), which nodes follow on their own (``controller.cluster.placement``).
A request is written in one transaction that fails if its preconditions have changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from apps.cluster.etcd_client import EtcdClient, EtcdError, Operation, delete, modified_at, put
from apps.cluster.etcd_membership import keys_of, known_of
from controller.cluster.placement import MAX_MOVES, ClusterView, connected_candidates
from controller.errors import DetsError, InvalidValueError

MOVE_TIMEOUT_S = 15.0
"""time limit for the next switch to move"""
POLL_INTERVAL_S = 0.1
REQUEST_TTL_S = 5
"""time after which a placement request expires if its client has ended"""


class PlacementRequests:
    """Makes requests to a cluster's nodes by name, and about ``switches``, dpids by name.

    ``prefix`` is the prefix of the cluster's keys in etcd.

    Every method raises InvalidValueError for an invalid request, EtcdError if etcd does not reply, and DetsError if the
    cluster has changed in between; then nothing is changed.
    """

    def __init__(
        self,
        etcd: EtcdClient,
        prefix: str,
        switches: Mapping[str, int],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._etcd, self._prefix, self._switches = etcd, prefix, switches
        self._clock, self._sleep = clock, sleep
        self._revision_of: dict[str, int] = {}
        self._leased: set[str] = set()

    def read_state(self) -> ClusterView:
        """Return the present state of nodes and switches in etcd."""
        found = self._etcd.read(*keys_of(self._prefix))
        self._revision_of = {key_value.key: key_value.mod_revision for kind in found for key_value in kind}
        self._leased = {key_value.key for kind in found for key_value in kind if key_value.lease_id}
        return known_of(found)

    def pinned(self) -> dict[str, str]:
        """Return the node of each pinned switch, by the switch's name."""
        return self._pinned(self.read_state())

    def drain(self, node: str) -> None:
        """Drain a node: it hands its switches over and takes none."""
        known = self.read_state()
        self._check_node(node, known.nodes)
        if node in known.drained:
            raise InvalidValueError("NODE", node, "is drained already")
        others = sorted(set(known.nodes).difference(known.drained) - {node})
        if not others:
            raise InvalidValueError("NODE", node, "is the only live node that is not drained")
        keys = [f"{kind}/{other}" for other in (node, *others) for kind in ("nodes", "drained")]
        self._write(keys, [put(f"{self._prefix}drained/{node}", b"")])

    def undrain(self, node: str) -> None:
        """Let a node take switches again."""
        drained = sorted(self.read_state().drained)
        if node not in drained:
            raise InvalidValueError("NODE", node, f"is not drained; drained: {', '.join(drained) or 'none'}")
        self._write([f"drained/{node}"], [delete(f"{self._prefix}drained/{node}")])

    def move(self, switch: str, node: str) -> bool:
        """Move a switch, and wait; return whether it moved. If not, it stays where it is."""
        known, dpid = self.read_state(), self._dpid(switch)
        self._check_able(dpid, switch, node, known)
        pinned = self._pinned(known).get(switch)
        if pinned not in (None, node):
            raise InvalidValueError("SWITCH", switch, f"is pinned to {pinned}: unpin it first")
        return not (self._move({dpid: node}, known) if pinned is None else self._await({dpid: node}))

    def pin(self, switch: str, node: str) -> bool:
        """Pin a switch to a node, and wait; return whether the node owns it now."""
        known, dpid = self.read_state(), self._dpid(switch)
        self._check_able(dpid, switch, node, known)
        self._write(
            [f"drained/{node}", self._request_key(dpid)],
            [put(f"{self._prefix}{self._request_key(dpid)}", node.encode())],
        )
        return not self._await({dpid: node})

    def unpin(self, switch: str) -> str:
        """Unpin a switch; return the node it was pinned to. It stays where it is."""
        pinned, dpid = self.pinned(), self._dpid(switch)
        if switch not in pinned:
            shown = ", ".join(sorted(pinned)) or "none"
            raise InvalidValueError("SWITCH", switch, f"is not pinned; pinned: {shown}")
        self._write([self._request_key(dpid)], [delete(f"{self._prefix}{self._request_key(dpid)}")])
        return pinned[switch]

    def balance(self) -> tuple[int, int]:
        """Move every switch to its first node, and wait; return how many of how many moved."""
        known = self.read_state()
        first = {dpid: nodes[0] for dpid in known.owners if (nodes := connected_candidates(dpid, known))}
        moves = {
            dpid: node
            for dpid, node in first.items()
            if known.owners[dpid] != node and dpid not in known.requested_nodes
        }
        return len(moves) - len(self._move(moves, known)), len(moves)

    def wait_drained(self, node: str) -> list[str]:
        """Wait until a drained node has no switch that others could take; return the names of switches that stay."""
        left, since_s = -1, self._clock()
        while True:
            known = self.read_state()
            kept = {dpid for dpid, owner in known.owners.items() if owner == node}
            going = {dpid for dpid in kept if connected_candidates(dpid, known)}
            if len(going) != left:
                left, since_s = len(going), self._clock()
            if not going or node not in known.drained or self._clock() - since_s > MOVE_TIMEOUT_S:
                return sorted(name for name, dpid in self._switches.items() if dpid in kept)
            self._sleep(POLL_INTERVAL_S)

    # -- how it is written, and waited for

    def _move(self, moves: Mapping[int, str], known: ClusterView) -> Collection[int]:
        """Request these moves, and wait; return the switches that did not move, after withdrawing their requests."""
        going = [(dpid, node) for dpid, node in moves.items() if known.owners.get(dpid) != node]
        if not going:
            return []
        lease_id = self._etcd.grant(REQUEST_TTL_S)
        try:
            for start in range(0, len(going), MAX_MOVES):
                some = going[start : start + MAX_MOVES]
                puts = [put(f"{self._prefix}{self._request_key(dpid)}", node.encode(), lease_id) for dpid, node in some]
                nodes = {f"drained/{node}" for _, node in some}
                self._write([*nodes, *(self._request_key(dpid) for dpid, _ in some)], puts)
            return self._await(dict(going), lease_id)
        finally:
            with suppress(EtcdError):
                self._etcd.revoke(lease_id)

    def _await(self, desired: Mapping[int, str], lease_id: int | None = None) -> Collection[int]:
        """Wait until switches have their desired owners; return those that have not after MOVE_TIMEOUT_S."""
        missing, since_s = set(desired), self._clock()
        while missing and self._clock() - since_s <= MOVE_TIMEOUT_S:
            self._sleep(POLL_INTERVAL_S)
            if lease_id is not None:
                self._etcd.keep_alive(lease_id)
            owners = self.read_state().owners
            left = {dpid for dpid in missing if owners.get(dpid) != desired[dpid]}
            missing, since_s = left, since_s if left == missing else self._clock()
        return missing

    def _write(self, unchanged: Collection[str], writing: list[Operation]) -> None:
        """Write, if these keys are as they were read."""
        places = [f"{self._prefix}{key}" for key in unchanged]
        conditions = [modified_at(place, self._revision_of.get(place, 0)) for place in places]
        if not self._etcd.transact(conditions, writing, [])[0]:
            raise DetsError("the cluster has changed in the meantime; nothing was done: try again")

    def _request_key(self, dpid: int) -> str:
        return f"want/{dpid:016x}"

    def _pinned(self, known: ClusterView) -> dict[str, str]:
        return {
            name: known.requested_nodes[dpid]
            for name, dpid in self._switches.items()
            if dpid in known.requested_nodes and f"{self._prefix}{self._request_key(dpid)}" not in self._leased
        }

    # -- what may be asked

    def _dpid(self, switch: str) -> int:
        if switch not in self._switches:
            names = ", ".join(sorted(self._switches))
            raise InvalidValueError("SWITCH", switch, f"is not in the configuration: {names}")
        return self._switches[switch]

    def _check_node(self, node: str, nodes: Collection[str]) -> None:
        if node not in nodes:
            there = ", ".join(sorted(nodes)) or "none"
            raise InvalidValueError("NODE", node, f"is not a live node: {there}")

    def _check_able(self, dpid: int, switch: str, node: str, known: ClusterView) -> None:
        self._check_node(node, known.nodes)
        nodes = connected_candidates(dpid, known)
        allowed = f"allowed: {', '.join(sorted(nodes)) or 'none'}"
        if node in known.drained:
            raise InvalidValueError("NODE", node, f"is drained; {allowed}")
        if node not in nodes:
            raise InvalidValueError("NODE", node, f"is not connected to {switch}; {allowed}")
