"""One node of a cluster: its requests to etcd, and how the control loop uses the replies.

The control loop calls ``poll_etcd`` after each interval. Requests begin only there, so that a stuck loop sends none and
loses the lease. Requests run next to the loop, which never waits for etcd:

1. The lease is refreshed, or a new one is granted.
2. The active key, the epoch, the tokens and the settings' head are read. A linearizable read needs a majority of etcd's
   members, so a reply shows more than one living member. It writes nothing, since a full etcd rejects writes. If no
   node has the active key, a transaction takes it. Expired leases of other nodes are revoked first: etcd itself would
   need up to 0.5 s more.
3. Settings that the other node has changed are applied.
4. In sharded mode the owners and the nodes are read as well, and unowned switches are taken (``etcd_membership``). The
   active node is then the one that accepts changes of settings.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from apps.cluster.etcd_client import EtcdClient, EtcdError, KeyValue, created_at, get, put
from apps.cluster.etcd_membership import EtcdMembership
from apps.cluster.etcd_store import EtcdStore
from apps.cluster.etcd_tokens import EtcdTokens
from apps.settings.errors import StoreError
from controller.cluster.leadership import REVISION_BITS, Leadership, LeaseSnapshot, generation_id
from controller.cluster.lease_expiry import LeaseExpiry
from controller.cluster.ownership import Ownership
from controller.errors import DetsError
from controller.fabric.config_model import Cluster
from controller.openflow.constants import ControllerRole

LOG = logging.getLogger("dets.cluster")
ASK_INTERVAL_S, URGENT_INTERVAL_S = 0.25, 0.05


def etcd_of(cluster: Cluster) -> EtcdClient:
    """Return the client of a cluster's etcd."""
    return EtcdClient(cluster.etcd, cluster.ca, cluster.certificate, cluster.key)


def prefix_of(cluster: Cluster) -> str:
    """Return the prefix of a cluster's keys."""
    return f"/dets/{cluster.name}/"


class ClusterNode:
    """This node: its lease, and what etcd's replies allow the node to do.

    ``clock`` continues while the machine sleeps; ``spawn`` calls a function in a greenlet of its own.

    ``follow`` applies the store's present contents, and returns whether it did; it may raise StoreError. ``start_over``
    discards the state of switches from an earlier time as the active node: others have changed them since.
    ``watch_lease`` is the lease watchdog, which gets each new lease; None if there is none.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Callable[[], float],
        spawn: Callable[..., object],
        run: Callable[..., Any] = lambda function, *arguments: function(*arguments),
    ) -> None:
        self.cluster, self.etcd, self.prefix = cluster, etcd_of(cluster), prefix_of(cluster)
        self.leadership = Leadership(cluster.lease_ttl_s)
        self.store = EtcdStore(self.etcd, self.prefix, self._token, self._refusal, run)
        self.tokens = EtcdTokens(self.etcd, self.prefix)
        self.follow: Callable[[], bool] = lambda: True
        self.start_over: Callable[[], None] = lambda: None
        self.watch_lease: Callable[[int | None], None] = lambda lease_id: None
        self.active_url = ""
        self.problem = ""  # the error of the last request to etcd
        self._clock, self._spawn = clock, spawn
        self._key = f"{self.prefix}active"
        self._expiry_of: dict[int, LeaseExpiry] = {}  # other nodes' leases, by lease id
        self._request_pending = False
        self._requested_s = -math.inf
        self._reply: LeaseSnapshot | None = None  # what etcd has replied since the last ``poll_etcd``
        self._lease_expired = False
        self._generation: int | None = None  # None: this node is not active
        self._last_generation: int | None = None  # under which this node was active last
        self._watched_lease: int | None = None
        self._has_left = False
        self.takeovers = 0
        self.shared = EtcdMembership(cluster, self.prefix) if cluster.mode == "sharded" else None
        self.ownership = Ownership(self.leadership)

    def active_generation(self) -> int | None:
        """Return the generation under which this node may change switches now, None if it may not."""
        return self.leadership.active_generation(self._clock())

    def is_lease_valid(self) -> bool:
        """Return whether this node may rely on its lease now."""
        return self.leadership.is_lease_valid(self._clock())

    def write_generation(self, dpid: int) -> int | None:
        """Return the generation under which this node may change a switch now, None if it may not."""
        return self.active_generation() if self.shared is None else self.ownership.write_generation(dpid, self._clock())

    def desired_role(self, dpid: int) -> tuple[ControllerRole, int] | None:
        """Return the role to request from a switch now, or None."""
        now_s = self._clock()
        return self.leadership.desired_role(now_s) if self.shared is None else self.ownership.desired_role(dpid, now_s)

    def lease_age_s(self) -> float:
        """Return the age of the last answered request to etcd; infinite before the first."""
        return self._clock() - self.leadership.confirmed_s

    def poll_etcd(self) -> None:
        """Process etcd's reply, if one has arrived, and send the next request if it is due. Never waits."""
        reply, self._reply = self._reply, None
        if self._lease_expired:
            self._lease_expired = False
            self.leadership.invalidate()
        if reply is not None and not self._has_left:
            self.leadership.update(reply)
            if self.shared is not None:
                self.shared.apply_snapshot()
                self.ownership.owners = self.shared.owners
        if self.leadership.lease_id != self._watched_lease:
            self._watched_lease = self.leadership.lease_id
            self.watch_lease(self._watched_lease)
        generation = self.active_generation()
        if generation != self._generation:
            self._generation = generation
            self._on_generation(generation)
        now_s = self._clock()
        interval_s = URGENT_INTERVAL_S if self._needs_fast_polling(now_s) else ASK_INTERVAL_S
        is_due = now_s - self._requested_s >= interval_s
        if is_due and not self._request_pending and not self._has_left:
            self._request_pending, self._requested_s = True, now_s
            self._spawn(self._request, now_s)

    def release_lease(self) -> None:
        """Release the lease, so that another node takes over at once. This node changes nothing from here on."""
        self._has_left = True
        lease_id = self.leadership.lease_id
        self.leadership.invalidate()
        if lease_id is not None:
            try:
                self.etcd.revoke(lease_id)
            except EtcdError as error:
                LOG.warning("the lease could not be released and must expire: %s", error)

    def describe(self) -> dict[str, Any]:
        """Return the cluster's part of ``/v1/health``."""
        generation, age_s = self.active_generation(), self.lease_age_s()
        etcd_is_silent = age_s > self.cluster.lease_ttl_s
        if generation is not None and self.shared is None:
            role = "active"
        elif etcd_is_silent:
            role = "no-etcd"
        else:
            role = "standby" if self.shared is None else "sharded"
        return {
            "node": self.cluster.node,
            "role": role,
            "active": self.leadership.active or None,
            "active_url": self.active_url or None,
            "generation": generation,
            "etcd": self.problem or None,
            "lease_age_s": round(age_s, 3) if math.isfinite(age_s) else None,
        }

    # -- next to the loop

    def _request(self, began_s: float) -> None:
        """Exchange state with etcd, and store the reply or the error for ``poll_etcd``."""
        try:
            self._reply = self._exchange(began_s)
            if self.problem:
                LOG.info("etcd responds again")
            self.problem = ""
        except (DetsError, AttributeError, LookupError, TypeError, ValueError) as error:  # or an invalid response
            problem = str(error) if isinstance(error, DetsError) else f"an answer that is not etcd's: {error!r}"
            if not self.problem:
                LOG.warning("etcd has not refreshed this node's lease: %s", problem)
            self.problem = problem
        finally:
            self._request_pending = False

    def _exchange(self, began_s: float) -> LeaseSnapshot | None:
        """Do the numbered steps above; return what etcd has replied, None if this node's lease has expired in etcd."""
        lease_id = self.leadership.lease_id
        if lease_id is None:
            lease_id = self.etcd.grant(self.cluster.lease_ttl_s)  # 1
        elif not self.etcd.keep_alive(lease_id):
            self._lease_expired = True
            return None
        keys = self._key, f"{self.prefix}epoch", f"{self.prefix}head"
        own_reads = [*map(get, keys), get(self.tokens.place, prefix=True)]
        reads = own_reads if self.shared is None else [*own_reads, *self.shared.reading]
        results = self.etcd.read(*reads)  # 2
        other_leases = {key.lease_id for key in results[0]} - {lease_id}
        if self.shared is not None:
            other_leases |= self.shared.monitored_leases(results[len(own_reads) :], lease_id)
        expired = self._revoke_expired(other_leases)
        if not results[0] or results[0][0].lease_id in expired:
            local_node = json.dumps({"node": self.cluster.node, "url": self.cluster.rest_advertise}).encode()
            claim = put(self._key, local_node, lease_id)
            _, results = self.etcd.transact([created_at(self._key, 0)], [claim, *reads], reads)
        elif expired:
            results = self.etcd.read(*reads)
        active, epoch_keys, head, tokens = results[: len(own_reads)]
        epoch = int(epoch_keys[0].value) if epoch_keys else 0
        if self.shared is not None:  # 4
            self.shared.synchronize(self.etcd, results[len(own_reads) :], lease_id, epoch, self._clock())
        self.tokens.update(tokens)
        if (head[0].mod_revision if head else 0) != self.store.head_revision:
            self.follow()  # 3
        return self._snapshot(began_s, lease_id, active[0], epoch)

    def _needs_fast_polling(self, now_s: float) -> bool:
        """Return whether a node has not refreshed its lease for over a second, or switches change owners."""
        # Remaining times are rounded down: with two seconds less than the whole, more than one has passed.
        lease_is_old = any(expiry.remaining_s <= self.cluster.lease_ttl_s - 2 for expiry in self._expiry_of.values())
        return lease_is_old or (self.shared is not None and self.shared.needs_fast_polling(now_s))

    def _revoke_expired(self, lease_ids: set[int]) -> set[int]:
        """Revoke those of other nodes' leases that have expired, and return their ids."""
        self._expiry_of = {lease_id: self._expiry_of.get(lease_id) or LeaseExpiry() for lease_id in lease_ids}
        expired = set()
        for lease_id, expiry in self._expiry_of.items():
            requested_s = self._clock()
            if expiry.observe(self.etcd.remaining_ttl_s(lease_id), requested_s, self._clock()):
                LOG.info("the lease of another node has run out")
                with suppress(EtcdError):
                    self.etcd.revoke(lease_id)
                expired.add(lease_id)
        return expired

    def _snapshot(self, began_s: float, lease_id: int, active: KeyValue, epoch: int) -> LeaseSnapshot:
        """Return the state of leases from the active key, and store the active node's URL."""
        active_node = json.loads(active.value)
        self.active_url = str(active_node["url"])
        generation = generation_id(epoch, active.create_revision)
        return LeaseSnapshot(began_s, lease_id, str(active_node["node"]), active.lease_id, generation)

    def _on_generation(self, generation: int | None) -> None:
        """Handle a new generation id of this node; None: this node is no longer active."""
        if generation is None:
            consequence = "changes no switch" if self.shared is None else "accepts no changes of settings"
            LOG.warning("this node is no longer active: it %s", consequence)
            return
        if self._last_generation == generation:
            LOG.info("this node is active again; no other node was active in between")
            return
        if self._last_generation is not None and self.shared is None:
            self.start_over()
        self._last_generation = generation
        self.takeovers += 1
        LOG.info("this node is active, under generation id %d", generation)
        self._spawn(self._note_file)

    def _note_file(self) -> None:
        """Store a revision for a changed configuration file, if this node is active: ``follow`` does that, too."""
        try:
            self.follow()
        except StoreError as error:
            LOG.warning("%s", error)

    def _token(self) -> int | None:
        """Return the create_revision of the active key while this node has it, otherwise None."""
        generation = self.active_generation()
        return None if generation is None else generation & (1 << REVISION_BITS) - 1

    def _refusal(self) -> str:
        """Return why this node stores no changes now, and where they can be made."""
        if self.leadership.active and self.leadership.active != self.cluster.node:
            active_node = f"node {self.leadership.active} at {self.active_url}"
            reason = "is on standby" if self.shared is None else "is not the active node of the sharded cluster"
            return f"node {self.cluster.node} {reason}: make changes at {active_node}"
        reason = self.problem or "etcd has not refreshed its lease"
        return f"node {self.cluster.node} changes nothing now: {reason}"
