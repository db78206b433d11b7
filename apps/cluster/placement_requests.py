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
    """Writes operators' requests to a cluster's nodes, and waits for their effect.

    ``prefix`` is the prefix of the cluster's keys in etcd, ``switches`` are the dpids by name.

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
        """Return the present state of nodes and switches in etcd; record its keys' revisions for ``_write``."""
        results = self._etcd.read(*keys_of(self._prefix))
        key_values = [key_value for kind in results for key_value in kind]
        self._revision_of = {key_value.key: key_value.mod_revision for key_value in key_values}
        self._leased = {key_value.key for key_value in key_values if key_value.lease_id}
        return known_of(results)

    def pinned(self, view: ClusterView) -> dict[str, str]:
        """Return the node of each pinned switch, by the switch's name; ``view`` is the state that was read last.

        A switch is pinned by a request without a lease, which moves have.
        """
        return {
            name: view.requested_nodes[dpid]
            for name, dpid in self._switches.items()
            if dpid in view.requested_nodes and f"{self._prefix}{self._request_key(dpid)}" not in self._leased
        }

    def connected(self, view: ClusterView) -> dict[str, list[str]]:
        """Return the names of the switches that each live or drained node is connected to."""
        nodes, switches = sorted({*view.nodes, *view.drained}), self._switches.items()
        return {node: [name for name, dpid in switches if dpid in view.reached.get(node, ())] for node in nodes}

    def drain(self, node: str) -> None:
        """Drain a node: it hands its switches over and takes none."""
        view = self.read_state()
        self._check_node(node, view.nodes)
        if node in view.drained:
            raise InvalidValueError("NODE", node, "is drained already")
        others = sorted(set(view.nodes).difference(view.drained) - {node})
        if not others:
            raise InvalidValueError("NODE", node, "is the only live node that is not drained")
        # All these nodes must still be as they were read, so that one of them can take the switches.
        keys = [f"{kind}/{other}" for other in (node, *others) for kind in ("nodes", "drained")]
        self._write(keys, [put(f"{self._prefix}drained/{node}", b"")])

    def undrain(self, node: str) -> None:
        """Let a node take switches again."""
        drained = sorted(self.read_state().drained)
        if node not in drained:
            raise InvalidValueError("NODE", node, f"is not drained; drained: {', '.join(drained) or 'none'}")
        self._write([f"drained/{node}"], [delete(f"{self._prefix}drained/{node}")])

    def move(self, switch: str, node: str) -> bool:
        """Move a switch, and wait; return whether the node owns the switch. If not, the switch keeps its owner."""
        view, dpid = self.read_state(), self._dpid(switch)
        self._check_candidate(dpid, switch, node, view)
        pinned = self.pinned(view).get(switch)
        if pinned not in (None, node):
            raise InvalidValueError("SWITCH", switch, f"is pinned to {pinned}: unpin it first")
        if pinned is None:
            return not self._request_moves({dpid: node}, view)
        return not self._await({dpid: node})  # the pin moves the switch

    def pin(self, switch: str, node: str) -> bool:
        """Pin a switch to a node, and wait; return whether the node owns it now."""
        view, dpid = self.read_state(), self._dpid(switch)
        self._check_candidate(dpid, switch, node, view)
        self._write(
            [f"drained/{node}", self._request_key(dpid)],
            [put(f"{self._prefix}{self._request_key(dpid)}", node.encode())],
        )
        return not self._await({dpid: node})

    def unpin(self, switch: str) -> str:
        """Unpin a switch; return the node it was pinned to. It stays where it is."""
        pinned, dpid = self.pinned(self.read_state()), self._dpid(switch)
        if switch not in pinned:
            shown = ", ".join(sorted(pinned)) or "none"
            raise InvalidValueError("SWITCH", switch, f"is not pinned; pinned: {shown}")
        self._write([self._request_key(dpid)], [delete(f"{self._prefix}{self._request_key(dpid)}")])
        return pinned[switch]

    def move_to_first_candidates(self) -> tuple[int, int]:
        """Move every switch to its first connected candidate, and wait; return how many moved and how many should.

        Switches that are pinned, or already requested to move, stay.
        """
        view = self.read_state()
        candidates = {dpid: connected_candidates(dpid, view) for dpid in view.owners}
        moves = {
            dpid: nodes[0]
            for dpid, nodes in candidates.items()
            if nodes and view.owners[dpid] != nodes[0] and dpid not in view.requested_nodes
        }
        unmoved = self._request_moves(moves, view)
        return len(moves) - len(unmoved), len(moves)

    def wait_drained(self, node: str) -> list[str]:
        """Wait until a drained node has no switch that others could take; return the names of switches that stay.

        Ends early after MOVE_TIMEOUT_S without a move, or if the node is undrained.
        """
        last_count, changed_s = -1, self._clock()
        while True:
            view = self.read_state()
            owned = {dpid for dpid, owner in view.owners.items() if owner == node}
            movable = {dpid for dpid in owned if connected_candidates(dpid, view)}
            if len(movable) != last_count:
                last_count, changed_s = len(movable), self._clock()
            if not movable or node not in view.drained or self._clock() - changed_s > MOVE_TIMEOUT_S:
                return sorted(name for name, dpid in self._switches.items() if dpid in owned)
            self._sleep(POLL_INTERVAL_S)

    # -- how it is written, and waited for

    def _request_moves(self, moves: Mapping[int, str], view: ClusterView) -> Collection[int]:
        """Request moves (new owner by dpid), and wait; return the switches that did not move.

        The requests are under a lease, which is revoked at the end: so none takes effect later.
        """
        needed = [(dpid, node) for dpid, node in moves.items() if view.owners.get(dpid) != node]
        if not needed:
            return []
        lease_id = self._etcd.grant(REQUEST_TTL_S)
        try:
            for start in range(0, len(needed), MAX_MOVES):
                batch = [(self._request_key(dpid), node) for dpid, node in needed[start : start + MAX_MOVES]]
                puts = [put(f"{self._prefix}{key}", node.encode(), lease_id) for key, node in batch]
                drained_keys = {f"drained/{node}" for _, node in batch}
                self._write([*drained_keys, *(key for key, _ in batch)], puts)
            return self._await(dict(needed), lease_id)
        finally:
            with suppress(EtcdError):
                self._etcd.revoke(lease_id)

    def _await(self, desired: Mapping[int, str], lease_id: int | None = None) -> Collection[int]:
        """Wait until switches have their desired owners; return those that do not after MOVE_TIMEOUT_S without a move.

        ``lease_id`` is refreshed during the wait.
        """
        remaining, changed_s = set(desired), self._clock()
        while remaining and self._clock() - changed_s <= MOVE_TIMEOUT_S:
            self._sleep(POLL_INTERVAL_S)
            if lease_id is not None:
                self._etcd.keep_alive(lease_id)
            owners = self.read_state().owners
            still_remaining = {dpid for dpid in remaining if owners.get(dpid) != desired[dpid]}
            if still_remaining != remaining:
                remaining, changed_s = still_remaining, self._clock()
        return remaining

    def _write(self, unchanged: Collection[str], writes: list[Operation]) -> None:
        """Write if the keys ``unchanged`` are as ``read_state`` found them. Raises DetsError otherwise."""
        keys = [f"{self._prefix}{key}" for key in unchanged]
        conditions = [modified_at(key, self._revision_of.get(key, 0)) for key in keys]
        if not self._etcd.transact(conditions, writes, [])[0]:
            raise DetsError("the cluster has changed in the meantime; nothing was done: try again")

    def _request_key(self, dpid: int) -> str:
        """Return the key of the placement request for a switch, without the cluster's prefix."""
        return f"want/{dpid:016x}"

    # -- checks of requests

    def _dpid(self, switch: str) -> int:
        """Return the dpid of a switch by name. Raises InvalidValueError."""
        if switch not in self._switches:
            names = ", ".join(sorted(self._switches))
            raise InvalidValueError("SWITCH", switch, f"is not in the configuration: {names}")
        return self._switches[switch]

    def _check_node(self, node: str, nodes: Collection[str]) -> None:
        """Raise InvalidValueError unless a node is one of the live ``nodes``."""
        if node not in nodes:
            live_nodes = ", ".join(sorted(nodes)) or "none"
            raise InvalidValueError("NODE", node, f"is not a live node: {live_nodes}")

    def _check_candidate(self, dpid: int, switch: str, node: str, view: ClusterView) -> None:
        """Raise InvalidValueError unless a node is live, not drained, and connected to the switch."""
        self._check_node(node, view.nodes)
        nodes = connected_candidates(dpid, view)
        allowed = f"allowed: {', '.join(sorted(nodes)) or 'none'}"
        if node in view.drained:
            raise InvalidValueError("NODE", node, f"is drained; {allowed}")
        if node not in nodes:
            raise InvalidValueError("NODE", node, f"is not connected to {switch}; {allowed}")
