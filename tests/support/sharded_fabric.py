"""A fabric in virtual time whose switches are shared out over several controllers."""

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
    """Controllers by name, which a fabric takes for one. Messages are heard an interval after they were sent."""

    def __init__(self, config: Config, owner: Mapping[int, str]) -> None:
        self.centrals = {name: CentralController(config) for name in sorted(set(owner.values()))}
        self.sharing = {name: NodePartition(central, name) for name, central in self.centrals.items()}
        self.owner, self.dead = dict(owner), set[str]()
        self.up: set[int] = set()
        self._generation = dict.fromkeys(owner, 1)
        self._messages: list[tuple[str, str, bytes]] = []
        self._token = dict.fromkeys(self.centrals, 1)
        self.owners_are_known(0.0)

    def owners_are_known(self, now_s: float, to: Iterable[str] | None = None) -> None:
        """All live nodes learn whose the switches of live nodes are, or some."""
        owners = {
            dpid: Owner(name, 1, self._generation[dpid]) for dpid, name in self.owner.items() if name not in self.dead
        }
        for name in self.live() if to is None else to:
            self.sharing[name].update_owners(owners, self._token[name], now_s)

    def begin_again(self, name: str, now_s: float) -> None:
        """A node starts again before anybody has seen it die: it owns what it owned, and knows nothing."""
        self.centrals[name] = CentralController(self.config)
        self.sharing[name] = NodePartition(self.centrals[name], name)
        self._token[name] += 1
        self.up -= {dpid for dpid, owner in self.owner.items() if owner == name}
        self.owners_are_known(now_s)

    def take(self, dpid: int, name: str, now_s: float, known_to: Iterable[str] | None = None) -> None:
        """A node becomes the owner of a switch; all learn of it, or some."""
        self.owner[dpid] = name
        self._generation[dpid] += 1
        self.owners_are_known(now_s, known_to)

    def live(self) -> list[str]:
        return [name for name in self.centrals if name not in self.dead]

    def controller_of(self, dpid: int) -> CentralController | None:
        """Return the controller of a switch, None if it is dead."""
        return None if self.owner[dpid] in self.dead else self.centrals[self.owner[dpid]]

    # -- as a fabric calls a controller

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
        for speaker, hearer, data in messages:
            if not {speaker, hearer} & self.dead:
                self.sharing[hearer].receive(speaker, data, now_s)
        for name in self.live():
            for _ in self.sharing[name].apply_host_updates(now_s):
                pass
            own = {dpid: found for dpid, found in stats.items() if self.owner[dpid] == name and dpid in self.up}
            self.centrals[name].interval(own, {dpid: received_s[dpid] for dpid in own}, now_s)
            self.sharing[name].end_interval([dpid for dpid in self.up if self.owner[dpid] == name], now_s)
            self._messages += [(name, hearer, data) for hearer, data in self.sharing[name].drain_messages().items()]


class SharedFabric(Fabric):
    """Switches of which each belongs to one of several controllers; ``owner`` names it, by dpid."""

    central: Any

    def __init__(self, config: Config, links: Iterable[tuple[PortId, PortId]], owner: Mapping[int, str]) -> None:
        self.nodes = Nodes(config, owner)
        super().__init__(config, links, self.nodes)  # type: ignore[arg-type]

    def kill(self, name: str) -> None:
        """A node dies: its switches go on as they are."""
        self.nodes.dead.add(name)
        self.nodes.up -= {dpid for dpid, owner in self.nodes.owner.items() if owner == name}

    def take_over(self, dpid: int, name: str) -> None:
        """A node takes a dead node's switch, and brings it up."""
        self.nodes.take(dpid, name, self.now_s)
        self.connect(dpid)
