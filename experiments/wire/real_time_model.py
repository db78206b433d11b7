"""The model fabric in real time, its switches connected to a running controller over TCP.

    with WireModel(model, ("127.0.0.1", 6653)) as wire:
        controller.wait_ready({switch.name for switch in model.fabric.switches})
        wire.announce_hosts()
        with wire.locked():
            flow = model.connect(...)
        wire.run(wire.now_s + 10.0)

The model is the clock: it is brought up to real time in whole slots before any message is handled, so that counters,
durations and time-outs use one time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from controller.fabric.topology import PortId
from controller.forwarding.pipeline import Table
from controller.openflow.ethernet import BROADCAST
from controller.openflow.match import Match
from experiments.model.fabric import ModelFabric, mac_of
from experiments.model.flow_tracing import frame_of
from experiments.wire.controller_connection import ControllerConnection
from experiments.wire.fabric import WireFabric

REPORT_INTERVAL_S = 0.055
ANNOUNCE_INTERVAL_S = 1.0  # interval of the hosts' broadcasts, until all switches have learned them
ANNOUNCE_TIMEOUT_S = 30.0  # time for all switches to learn all hosts
TICK_S = 0.005


class WireModel(WireFabric):
    """A model in real time whose switches use OpenFlow.

    Changes of the model from outside belong under ``with wire.locked():``. ``longest_step_s`` is the longest time
    without any message of a switch: above an interval, this machine was too busy for a meaningful run.
    """

    def __init__(
        self, model: ModelFabric, controller: tuple[str, int], standbys: Sequence[tuple[str, int]] = ()
    ) -> None:
        super().__init__(controller, clock=lambda: model.now_s, tick_s=TICK_S, standbys=standbys)
        self.model = model
        self.longest_step_s = 0.0
        self._began_s = time.monotonic() - model.now_s
        self._reported_s = 0.0
        self.switches.update(model.switches)
        for datapath in model.switches.values():
            for _ in standbys:
                datapath.add_controller()
        for end, other in model.links.items():
            self.link((end.dpid, end.port_no), (other.dpid, other.port_no))

    @property
    def now_s(self) -> float:
        """The model's time."""
        return self.model.now_s

    def announce_hosts(self) -> None:
        """Let every host broadcast repeatedly until all switches have learned all hosts.

        Raises TimeoutError if they do not.
        """
        announced_s = -math.inf
        vns = list(self.model.received)

        def all_learned() -> bool:
            nonlocal announced_s
            if time.monotonic() - announced_s > ANNOUNCE_INTERVAL_S:
                announced_s = time.monotonic()
                for vn in vns:
                    port: PortId = self.model.edge_port(vn)
                    self.inject(port.dpid, port.port_no, frame_of(mac_of(vn), BROADCAST, vn.vlan_vid))
            expected = {Match(vlan_vid=vn.vlan_vid, eth_dst=mac_of(vn)) for vn in vns}
            forwarded = (
                {flow.match for flow in datapath.tables.flows() if flow.table_id == Table.FORWARD}
                for datapath in self.switches.values()
            )
            return all(expected <= matches for matches in forwarded)

        self.wait_for(all_learned, ANNOUNCE_TIMEOUT_S)

    def run(self, until_s: float) -> None:
        """Wait until the model's time is ``until_s``; raises the error that stopped the model, if any."""
        while self.model.now_s < until_s - self.model.slot_s / 2:
            for task in self._tasks:
                if task.done() and not task.cancelled():
                    task.result()
            time.sleep(max(min(until_s - self.model.now_s, 0.25), TICK_S))

    def _follow(self) -> None:
        """Bring the model up to real time, with the present tables."""
        model = self.model
        now_s = math.floor((time.monotonic() - self._began_s) / model.slot_s) * model.slot_s
        self.longest_step_s = max(self.longest_step_s, now_s - model.now_s)
        model.follow_tables()
        model.run(now_s)
        model.count_hits()

    def _handle(self, connection: ControllerConnection, data: bytes) -> None:
        """Bring the model up to real time, then process the bytes."""
        with self._lock:
            self._follow()
            super()._handle(connection, data)

    def _pass_time(self) -> None:
        """Bring the model up to real time; send the packet-ins of each interval."""
        self._follow()
        if self.model.now_s - self._reported_s >= REPORT_INTERVAL_S:
            self._reported_s = self.model.now_s
            self.model.report_frames()
        super()._pass_time()

    async def _tick(self) -> None:
        self._began_s = time.monotonic() - self.model.now_s
        await super()._tick()
