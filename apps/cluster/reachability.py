"""The switches that a node reaches, which it publishes in a sharded cluster.

An open connection proves little: with packet loss it stays open for minutes. So a switch counts as reachable while it
replies. A switch under control sends its counters in every interval; the others are probed every second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from controller.capability.capabilities import Capabilities
from controller.central.controller import CentralController
from controller.errors import InvalidValueError
from controller.openflow.messages import encode_role_request
from controller.partition.probe_results import encode_probe_results, import_probe_results

if TYPE_CHECKING:
    from apps.cluster.etcd_membership import EtcdMembership
    from apps.cluster.role_manager import RoleManager
    from apps.runtime.connection.switch_connection import Reply, SwitchConnection

_PORTS = "ports"
PROBE_INTERVAL_S = 1.0
ANSWER_S = 1.0
"""in which a switch answers that is reached"""


class PolledSwitch(Protocol):
    """A switch under control, or in bring-up; ``counted_s`` is when its last counters arrived, infinite before."""

    @property
    def counted_s(self) -> float:
        """Return the arrival of its last counters, in seconds of the clock."""


class PortNames(Protocol):
    """The first names of edge ports, which the next owner of a switch needs."""

    def encode(self, dpid: int) -> dict[str, str]:
        """Return the port names of a switch by number."""

    def import_names(self, dpid: int, names: Mapping[str, str]) -> None:
        """Import the port names from another node."""


class _Probe(NamedTuple):
    """A role request that tests whether a switch replies, sent at ``sent_s``.

    ``replied_before`` is whether the switch replied to the last probe on the same connection.
    """

    connection: SwitchConnection
    reply: Reply
    sent_s: float
    replied_before: bool


class SwitchReachability:
    """The reachability that ``EtcdMembership`` uses.

    ``peers`` are the switches under control or in bring-up, ``ready`` returns those under control.

    ``now_s`` is the clock of both.
    """

    def __init__(
        self,
        shared: EtcdMembership,
        roles: RoleManager,
        central: CentralController,
        peers: Mapping[int, PolledSwitch],
        ready: Callable[[], Collection[int]],
        now_s: Callable[[], float],
        names: PortNames,
    ) -> None:
        self._names = names
        self._shared, self._roles, self._central, self._now_s = shared, roles, central, now_s
        self._peers, self._ready = peers, ready
        shared.reached, shared.controlled = self.reached, self.controlled
        shared.handover_state, shared.import_handover_state = self._handover_state, self._import_handover_state
        self._probes: dict[int, _Probe] = {}  # by dpid: one probe at a time

    def round(self) -> None:
        """Probe the switches that are due. Never waits."""
        now_s, old_probes, self._probes = self._now_s(), self._probes, {}
        for dpid in self._roles.reached() - self._peers.keys():
            connection, probe = self._roles.connection(dpid), old_probes.get(dpid)
            if connection is None:
                continue
            is_new = probe is None or probe.connection is not connection
            if probe is None or is_new or (probe.reply.done and now_s - probe.sent_s >= PROBE_INTERVAL_S):
                # If the connection is not new, the last probe's reply has arrived: it is ``done``.
                probe = _Probe(connection, connection.ask(encode_role_request), now_s, not is_new)
            self._probes[dpid] = probe

    def reached(self) -> set[int]:
        """Return the dpids of the switches that are connected and reply."""
        now_s = self._now_s()
        pending = {dpid: probe for dpid, probe in self._probes.items() if not probe.reply.done}
        silent = {
            dpid for dpid, probe in pending.items() if not probe.replied_before or now_s - probe.sent_s > ANSWER_S
        }
        silent |= {dpid for dpid, peer in self._peers.items() if now_s - peer.counted_s > ANSWER_S}
        return self._roles.reached() - silent

    def controlled(self) -> set[int]:
        """Return the dpids of the switches that their owners have under control, as far as this node knows."""
        local, remote = self._ready(), self._central.fabric.share.remote_switches
        owners = self._shared.owners.items()
        return {dpid for dpid, owner in owners if dpid in (local if owner.node == self._shared.me else remote)}

    def _handover_state(self, dpid: int) -> bytes | None:
        """Return the state of a switch for its next owner: test results, and the names of its ports."""
        probe_results, names = encode_probe_results(self._capabilities(dpid)), self._names.encode(dpid)
        if probe_results is None and not names:
            return None
        return json.dumps({**json.loads(probe_results or b"{}"), _PORTS: names}).encode()

    def _import_handover_state(self, dpid: int, data: bytes) -> None:
        """Import the last owner's state of a switch. Raises InvalidValueError."""
        try:
            names = json.loads(data).pop(_PORTS, {})
            self._names.import_names(dpid, dict(names))
            has_probe_results = json.loads(data).keys() != {_PORTS}
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidValueError("tested", data[:100], f"is not a switch's handover state: {error!r}") from None
        if has_probe_results:
            import_probe_results(self._capabilities(dpid), data)

    def _capabilities(self, dpid: int) -> Capabilities:
        return self._central.switches[dpid].capabilities
