"""Which switches a node reaches, as it tells the nodes that it shares them with.

A connection that stands says little: where packets are lost it stands for minutes. So a switch counts as reached while
it answers. One that is under control sends its counters in every interval; the others are asked each second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from controller.capability.capabilities import Capabilities
from controller.capability.probe_results import encode_probe_results, import_probe_results
from controller.central.controller import CentralController
from controller.errors import InvalidValueError
from controller.openflow.messages import encode_role_request

if TYPE_CHECKING:
    from apps.cluster.etcd_membership import EtcdMembership
    from apps.cluster.role_manager import RoleManager
    from apps.runtime.connection.switch_connection import Reply, SwitchConnection

_PORTS = "ports"
PROBE_INTERVAL_S = 1.0
ANSWER_S = 1.0
"""in which a switch answers that is reached"""


class PolledSwitch(Protocol):
    """A switch under control, or on its way; ``counted_s`` is when its counters came last, infinite before."""

    @property
    def counted_s(self) -> float:
        """Seconds of the clock."""


class PortNames(Protocol):
    """The names that edge ports had first, which the next owner of a switch has to know."""

    def encode(self, dpid: int) -> dict[str, str]:
        """Return those of a switch by number."""

    def believe(self, dpid: int, names: Mapping[str, str]) -> None:
        """Take those that another node knew."""


class _Asked(NamedTuple):
    connection: SwitchConnection
    reply: Reply
    at_s: float
    answered: bool
    """whether it has answered the question before"""


class SwitchReachability:
    """What ``shared`` asks. ``peers`` are the switches under control or on their way, ``ready`` returns the former.

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
        shared.tested, shared.believe = self._handover_state, self._believe
        self._asked: dict[int, _Asked] = {}  # by dpid: one question at a time

    def round(self) -> None:
        """Ask the switches that are due. Waits for nothing."""
        now_s, before, self._asked = self._now_s(), self._asked, {}
        for dpid in self._roles.reached() - self._peers.keys():
            connection, asked = self._roles.connection(dpid), before.get(dpid)
            if connection is None:
                continue
            new = asked is None or asked.connection is not connection
            if asked is None or new or (asked.reply.done and now_s - asked.at_s >= PROBE_INTERVAL_S):
                asked = _Asked(connection, connection.ask(encode_role_request), now_s, not new)
            self._asked[dpid] = asked

    def reached(self) -> set[int]:
        """Return the switches that are connected and answer."""
        now_s = self._now_s()
        waiting = {dpid: one for dpid, one in self._asked.items() if not one.reply.done}
        silent = {dpid for dpid, one in waiting.items() if not one.answered or now_s - one.at_s > ANSWER_S}
        silent |= {dpid for dpid, peer in self._peers.items() if now_s - peer.counted_s > ANSWER_S}
        return self._roles.reached() - silent

    def controlled(self) -> set[int]:
        """Return the switches that their owners have under control, as far as this node knows."""
        mine, elsewhere = self._ready(), self._central.fabric.share.elsewhere
        owners = self._shared.owners.items()
        return {dpid for dpid, one in owners if dpid in (mine if one.node == self._shared.me else elsewhere)}

    def _handover_state(self, dpid: int) -> bytes | None:
        """Return what is known of a switch, for its next owner: what tests have shown, and the names of its ports."""
        findings, names = encode_probe_results(self._can(dpid)), self._names.encode(dpid)
        if findings is None and not names:
            return None
        return json.dumps({**json.loads(findings or b"{}"), _PORTS: names}).encode()

    def _believe(self, dpid: int, data: bytes) -> None:
        """Take what the last owner knew. Raises InvalidValueError."""
        try:
            names = json.loads(data).pop(_PORTS, {})
            self._names.believe(dpid, dict(names))
            tested = json.loads(data).keys() != {_PORTS}
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidValueError("tested", data[:100], f"is not what is known of a switch: {error!r}") from None
        if tested:
            import_probe_results(self._can(dpid), data)

    def _can(self, dpid: int) -> Capabilities:
        return self._central.switches[dpid].capabilities
