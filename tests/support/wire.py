"""The application and a wire fabric together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

from support.application import Application

from controller.forwarding.pipeline import Table
from controller.openflow.actions import Output
from controller.openflow.ethernet import FrameHeader, build_frame
from controller.openflow.flows import Flow
from controller.openflow.match import Match
from experiments.machine.controller_process import free_ports
from experiments.switch.datapath import Datapath
from experiments.switch.options import DatapathOptions
from experiments.wire.fabric import WireFabric

Endpoint = tuple[int, int]
LINK_BPS = 1e9
VLANS = (10, 20)
LIMITS = {10: "400M", 20: "500M"}
EVERYBODY = 2**48 - 1


def frame(source: int, destination: int, vlan_vid: int | None) -> bytes:
    """Return a frame of 60 bytes between two addresses."""
    return build_frame(FrameHeader(destination, source, vlan_vid, 0x88B5), b"").ljust(60, b"\0")


def configuration(edges: Mapping[int, Sequence[int]], **sections: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration of switches by dpid with these trunk ports of both VLANs, on free TCP ports."""
    openflow_port, rest_port = free_ports(2)
    openflow = {"listen": f"127.0.0.1:{openflow_port}", **sections.pop("openflow", {})}
    return {
        "openflow": openflow,
        "rest": {"listen": f"127.0.0.1:{rest_port}", **sections.pop("rest", {})},
        "vlans": {
            vid: {"send_limit": limit, "receive_limit": limit, "algorithm": "fs"} for vid, limit in LIMITS.items()
        },
        "switches": {
            f"s{dpid}": {
                "dpid": dpid,
                "ports": {port: {"capacity": "1G", "trunk": list(VLANS)} for port in ports},
            }
            for dpid, ports in edges.items()
        },
        **sections,
    }


class WireRun:
    """Switches of software and the application that controls them, for one ``with``; both are ready inside it.

    ``edges`` gives each switch's edge ports, ``links`` what connects the switches, ``options`` what kind they are, or
    each is by its dpid. ``switch`` are more keys of their configuration, ``each`` those of one, by dpid. Without
    ``well`` the switches are up inside it, and need not be well.
    """

    def __init__(
        self,
        folder: Path,
        edges: Mapping[int, Sequence[int]],
        links: Sequence[tuple[Endpoint, Endpoint]] = (),
        options: DatapathOptions | Mapping[int, DatapathOptions] | None = None,
        beside: tuple[Path, ...] | None = None,
        files: int | None = None,
        switch: Mapping[str, object] | None = None,
        each: Mapping[int, Mapping[str, object]] | None = None,
        well: bool = True,
        **sections: dict[str, Any],
    ) -> None:
        self.config = configuration(edges, **sections)
        for section in self.config["switches"].values():
            section |= {**(switch or {}), **(each or {}).get(section["dpid"], {})}
        self._well = well
        self.app = Application(self.config, folder, beside, files)
        port = int(self.config["openflow"]["listen"].rpartition(":")[2])
        self.fabric = WireFabric(("127.0.0.1", port), retry_s=0.1)
        self._links = list(links)
        for dpid, ports in edges.items():
            more = [end[1] for link in links for end in link if end[0] == dpid]
            kind = options.get(dpid) if isinstance(options, Mapping) else options
            self.fabric.add_switch(dpid, dict.fromkeys([*ports, *more], LINK_BPS), kind)
        for one, other in links:
            self.fabric.link(one, other)

    def __enter__(self) -> WireRun:
        self.app.start()
        self.fabric.start()
        try:
            if self._well:
                self.app.wait_ready()
            else:
                self.app.wait_for(lambda: set(self.health()["switches"].values()) == {"ready"}, "up", 30)
        except BaseException:
            self.__exit__(BaseException)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.app.__exit__()
        self.fabric.stop(check=kind is None)

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = 15.0) -> None:
        """Wait until a condition on the switches, which is looked at under their lock, is true."""

        def holds() -> object:
            with self.fabric.locked():
                return condition()

        self.app.wait_for(holds, what, timeout_s)

    def health(self) -> dict[str, Any]:
        """Return what the application says of itself and its switches."""
        return dict(self.app.get("/v1/health"))

    def switch(self, dpid: int) -> Datapath:
        """Return a switch; look at it under ``fabric.locked()``."""
        return self.fabric.switches[dpid]

    def flows(self, dpid: int, table: Table | None = None) -> list[Flow]:
        """Return the entries of a switch, or of one of its tables."""
        with self.fabric.locked():
            return [flow for flow in self.switch(dpid).tables.flows() if table in (None, flow.table_id)]

    def meters(self, dpid: int) -> dict[int, tuple[int, int]]:
        """Return (rate in kb/s, burst in kb) of a switch's meters by id."""
        with self.fabric.locked():
            meters = self.switch(dpid).meters
            return {number: meters.setting(number) for number in meters.ids().tolist()}

    def handled(self, dpid: int, kind: int) -> int:
        """Return how many messages of a type a switch has had so far."""
        with self.fabric.locked():
            return self.switch(dpid).handled.get(kind, 0)

    def wait_flooding(self, ports: Mapping[int, set[int]]) -> None:
        """Wait until each switch floods VLAN 10 out of exactly these ports."""

        def flooded(dpid: int) -> set[int]:
            flows = self.flows(dpid, Table.FORWARD)
            actions = [flow.actions for flow in flows if flow.match == Match(vlan_vid=10)]
            return {action.port_no for some in actions for action in some if isinstance(action, Output)}

        what = f"flooding over {dict(ports)}"
        self.wait(lambda: all(flooded(dpid) == wanted for dpid, wanted in ports.items()), what)

    def introduce(self, dpid: int, port_no: int, mac: int, vlan_vid: int = 10) -> None:
        """Let a host send a broadcast, again and again as hosts do, until every switch that it reaches leads to it."""
        there = Match(vlan_vid=vlan_vid, eth_dst=mac)
        said_s, reached = -math.inf, self._linked(dpid)

        def known() -> bool:
            nonlocal said_s
            if time.monotonic() - said_s > 1.0:
                said_s = time.monotonic()
                self.fabric.inject(dpid, port_no, frame(mac, EVERYBODY, vlan_vid))
            connected = [dpid for dpid in reached if self.fabric.connected(dpid)]
            return all(any(flow.match == there for flow in self.flows(dpid, Table.FORWARD)) for dpid in connected)

        self.wait(known, f"told of {mac:012x}")

    def _linked(self, dpid: int) -> set[int]:
        """Return a switch, and those that links lead to from it."""
        found, size = {dpid}, 0
        while len(found) > size:
            size = len(found)
            found |= {end[0] for link in self._links for end in link if found & {one[0] for one in link}}
        return found

    def offer(self, source: Endpoint, mac: int, target_mac: int, rate_bps: float, vlan_vid: int = 10) -> int:
        """Let a host send at a rate to another one; return the flow's number."""
        with self.fabric.locked():
            return self.fabric.rates.offer(*source, rate_bps, eth_src=mac, eth_dst=target_mac, vlan_vid=vlan_vid)


class OneSwitch:
    """A switch of a run that no link leads to, and a host at each of its three ports in each VLAN."""

    ports = (1, 2, 3)
    pairs = tuple(permutations(ports, 2))

    def __init__(self, run: WireRun, dpid: int) -> None:
        self.run, self.dpid, self.name = run, dpid, f"s{dpid}"

    @property
    def datapath(self) -> Datapath:
        """The switch; it is changed under ``run.fabric.locked()``."""
        return self.run.switch(self.dpid)

    def mac(self, port_no: int) -> int:
        """Return the address of the host at a port."""
        return self.dpid << 8 | port_no

    def introduce(self, vlan_vid: int = 10) -> None:
        """Let all hosts of a VLAN be known."""
        for port_no in self.ports:
            self.run.introduce(self.dpid, port_no, self.mac(port_no), vlan_vid)

    def passes(self, sender: int, receiver: int, vlan_vid: int = 10) -> bool:
        """Whether a frame of one host reaches another."""
        self.run.fabric.forget_received()
        self.run.fabric.inject(self.dpid, sender, frame(self.mac(sender), self.mac(receiver), vlan_vid))
        return len(self.run.fabric.received(self.dpid, receiver)) == 1

    def all_pass(self) -> bool:
        """Whether all hosts reach each other."""
        return all(self.passes(*pair) for pair in self.pairs)

    @contextmanager
    def offering(self, rate_bps: float, *pairs: tuple[int, int]) -> Iterator[None]:
        """What happens inside happens while hosts send at a rate to others."""
        flows = [self.run.offer((self.dpid, one), self.mac(one), self.mac(other), rate_bps) for one, other in pairs]
        yield
        with self.run.fabric.locked():
            self.run.fabric.rates.set_rates(flows, 0.0)

    def flows(self, table: Table | None = None) -> list[Flow]:
        """Return its entries, or those of a table."""
        return self.run.flows(self.dpid, table)

    def meters(self) -> dict[int, tuple[int, int]]:
        """Return (rate in kb/s, burst in kb) of its meters by id."""
        return self.run.meters(self.dpid)

    def listed(self, what: str) -> list[dict[str, Any]]:
        """Return its ``pairs``, or its ``unmetered_pairs``."""
        return [pair for pair in self.run.app.get("/v1/pairs")[what] if pair["sender"]["switch"] == self.name]

    def faults(self) -> list[str]:
        """Return what is wrong with it, as health says."""
        return list(self.run.health().get("faults", {}).get(self.name, ()))

    def events(self, kind: str) -> list[str]:
        """Return what events of a kind say of it."""
        return [event["text"] for event in self.run.app.events(kind) if event["switch"] == self.name]

    def set_abilities(self, **values: object) -> None:
        """Let it be another kind of switch from now on."""
        with self.run.fabric.locked():
            for name, value in values.items():
                setattr(self.datapath.abilities, name, value)

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 15.0) -> Any:
        """Return the value of a condition on the switch, or on the application, as soon as it is true."""
        return self.run.app.wait_for(condition, what, timeout_s)
