"""A fabric in virtual time with several controllers in sharded mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from support.fabrics import Fabric

from controller.central.controller import CentralController
from controller.cluster.ownership import Owner
from controller.fabric.config_model import Config
from controller.fabric.topology import PortId
from controller.partition.node_partition import NodePartition
from controller.switch.switch_record import SwitchRecord, SwitchUpdate


class Nodes:
    """Controllers by name, with the interface of one. Messages arrive an interval after they were sent."""

    def __init__(self, config: Config, owner: Mapping[int, str]) -> None:
        self.centrals = {name: CentralController(config) for name in sorted(set(owner.values()))}
        self.sharing = {name: NodePartition(central, name) for name, central in self.centrals.items()}
        self.owner, self.dead = dict(owner), set[str]()
        self.up: set[int] = set()
        self._generation = dict.fromkeys(owner, 1)
        self._messages: list[tuple[str, str, bytes]] = []
        self._token = dict.fromkeys(self.centrals, 1)
        self.announce_owners(0.0)

    def announce_owners(self, now_s: float, to: Iterable[str] | None = None) -> None:
        """Tell all live nodes, or those of ``to``, the owners of the live nodes' switches."""
        owners = {
            dpid: Owner(name, 1, self._generation[dpid]) for dpid, name in self.owner.items() if name not in self.dead
        }
        for name in self.live() if to is None else to:
            self.sharing[name].update_owners(owners, self._token[name], now_s)

    def restart(self, name: str, now_s: float) -> None:
        """Restart a node before its death is detected: it keeps its switches, and has no state."""
        self.centrals[name] = CentralController(self.config)
        self.sharing[name] = NodePartition(self.centrals[name], name)
        self._token[name] += 1
        self.up -= {dpid for dpid, owner in self.owner.items() if owner == name}
        self.announce_owners(now_s)

    def set_owner(self, dpid: int, name: str, now_s: float, known_to: Iterable[str] | None = None) -> None:
        """Make a node the owner of a switch; announce it to all nodes, or to those of ``known_to``."""
        self.owner[dpid] = name
        self._generation[dpid] += 1
        self.announce_owners(now_s, known_to)

    def live(self) -> list[str]:
        return [name for name in self.centrals if name not in self.dead]

    def controller_of(self, dpid: int) -> CentralController | None:
        """Return the controller of a switch; None if it is dead."""
        return None if self.owner[dpid] in self.dead else self.centrals[self.owner[dpid]]

    # -- the interface of a controller

    @property
    def any(self) -> CentralController:
        return self.centrals[self.live()[0]]

    @property
    def network(self) -> Any:
        return self.any.network

    @property
    def vns(self) -> Any:
        return self.any.vns

    @property
    def fabric(self) -> Any:
        return self.any.fabric

    @property
    def config(self) -> Any:
        return self.any.config

    @property
    def switches(self) -> dict[int, SwitchRecord]:
        return {dpid: self.centrals[name].switches[dpid] for dpid, name in self.owner.items()}

    def switch_connected(self, dpid: int, *holds: Any) -> None:
        central = self.controller_of(dpid)
        assert central is not None
        self.up.add(dpid)
        central.switch_connected(dpid, *holds)

    def switch_disconnected(self, dpid: int, now_s: float) -> None:
        self.up.discard(dpid)
        if (central := self.controller_of(dpid)) is not None:
            central.switch_disconnected(dpid, now_s)

    def on_discovery_frame(self, sender: PortId, receiver: PortId, now_s: float) -> None:
        central = self.controller_of(receiver.dpid)
        if central is not None and self.controller_of(sender.dpid) is not None:
            central.on_discovery_frame(sender, receiver, now_s)

    def on_packet_in(self, dpid: int, *report: Any) -> None:
        if (central := self.controller_of(dpid)) is not None:
            central.on_packet_in(dpid, *report)

    def drain_updates(self) -> dict[int, SwitchUpdate]:
        due: dict[int, SwitchUpdate] = {}
        for name in self.live():
            for dpid, update in self.centrals[name].drain_updates().items():
                assert self.owner[dpid] == name
                due[dpid] = update
        return due

    def tick(self, now_s: float) -> None:
        for name in self.live():
            self.centrals[name].tick(now_s)

    def interval(self, stats: Mapping[int, Any], received_s: Mapping[int, float], now_s: float) -> None:
        messages, self._messages = self._messages, []
        for sender, receiver, data in messages:
            if not {sender, receiver} & self.dead:
                self.sharing[receiver].receive(sender, data, now_s)
        for name in self.live():
            for _ in self.sharing[name].apply_host_updates(now_s):
                pass
            own = {dpid: found for dpid, found in stats.items() if self.owner[dpid] == name and dpid in self.up}
            self.centrals[name].interval(own, {dpid: received_s[dpid] for dpid in own}, now_s)
            self.sharing[name].end_interval([dpid for dpid in self.up if self.owner[dpid] == name], now_s)
            self._messages += [(name, receiver, data) for receiver, data in self.sharing[name].drain_messages().items()]


class ShardedFabric(Fabric):
    """Switches with several controllers; ``owner`` names each switch's, by dpid."""

    central: Any

    def __init__(self, config: Config, links: Iterable[tuple[PortId, PortId]], owner: Mapping[int, str]) -> None:
        self.nodes = Nodes(config, owner)
        super().__init__(config, links, self.nodes)  # type: ignore[arg-type]

    def kill(self, name: str) -> None:
        """Let a node die: its switches keep their state."""
        self.nodes.dead.add(name)
        self.nodes.up -= {dpid for dpid, owner in self.nodes.owner.items() if owner == name}

    def take_over(self, dpid: int, name: str) -> None:
        """Let a node take over a dead node's switch, and bring it up."""
        self.nodes.set_owner(dpid, name, self.now_s)
        self.connect(dpid)
