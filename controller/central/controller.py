"""The central controller: one DETS for a whole fabric, from what switches report to what they are told.

It does no input and output and reads no clock: a fabric calls it with what happened and takes the messages that follow
(``take_updates``). The same object runs against a model in virtual time, software switches and Open vSwitch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from controller.allocation.registry import make_any_algorithm
from controller.central import interval, reconciliation
from controller.central.pair_meters import PairMeters
from controller.central.reconciliation import InstalledTables
from controller.central.state import FabricState
from controller.errors import InvalidValueError
from controller.events import EventKind
from controller.fabric.description import Config
from controller.fabric.topology import PortId
from controller.fabric.vns import NewLimits
from controller.forwarding.desired_flows import FlowKey, plan_flows
from controller.forwarding.host_search import HostSearch, Question
from controller.forwarding.hosts_and_paths import Host
from controller.forwarding.pipeline import Table
from controller.limits.hose_model import WAYS
from controller.loop import step
from controller.loop.policies import Policy, algorithm_groups, lending_vlans
from controller.metering.enforcement import settle
from controller.openflow.flows import Flow, UnknownFlow
from controller.openflow.frames import TAGGED_HEADER_BYTES, FrameHeader, parse_frame
from controller.openflow.messages import FlowRemoved, PacketIn
from controller.switch.adoption import Awaiting
from controller.switch.record import SwitchUpdate
from controller.whatif.shadow import Shadow


class CentralController(FabricState):
    """DETS for the fabric of one configuration."""

    def __init__(self, config: Config, on_event: Callable[[EventKind, str], None] | None = None) -> None:
        super().__init__(config, on_event)
        self.pairs = PairMeters(self)
        self._search = HostSearch()

    def take_over(self, fresh: CentralController) -> None:
        """Be what ``fresh``, which must not be used any more, is: who refers to this object need not know."""
        on_event, search = self._on_event, self._search
        vars(self).update(vars(fresh))
        self._on_event, self._search = on_event, search
        self.pairs = PairMeters(self)

    # -- switches

    def bring_up(
        self, dpid: int, flows: Iterable[Flow | UnknownFlow], meters: NDArray[np.void], now_s: float
    ) -> Iterator[None]:
        """A switch of the configuration comes, with these flow entries and meters (METER_CONFIG) in its tables.

        1) Hosts and pairs that an earlier run left are adopted, with their meters as they stand.
        2) What is missing or different is put right at once.
        3) What is ours and of no use is removed by an ``audit`` once no switch is awaited: until then it may be of use.

        The work is done in pieces, so that others may run between them, and is given up when the switch goes. Until it
        is done no other switch may be brought up, and the configuration not become another. ``note_up`` ends it.
        """
        return reconciliation.bring_up(self, self.pairs, dpid, flows, meters, now_s)

    def note_up(self, dpid: int, now_s: float) -> None:
        """Note that a switch has been brought up."""
        reconciliation.note_up(self, dpid, now_s)

    def switch_connected(
        self, dpid: int, flows: Iterable[Flow | UnknownFlow], meters: NDArray[np.void], now_s: float
    ) -> None:
        """A switch of the configuration has connected: bring it up in one piece."""
        for _ in self.bring_up(dpid, flows, meters, now_s):
            pass
        self.note_up(dpid, now_s)

    def switch_disconnected(self, dpid: int, now_s: float) -> None:
        """A switch has gone; its meters and entries stand as they are."""
        record = self.switches[dpid]
        record.connected = False
        record.awaiting = Awaiting()
        record.take_update()
        self.network.switch_down(dpid)
        self.note(EventKind.SWITCH_DOWN, f"switch {record.switch.name} ({dpid:016x}) is down", now_s)

    def port_down(self, dpid: int, port_no: int, now_s: float) -> None:
        """A port has lost its link, or is no more."""
        self.network.port_down(PortId(dpid, port_no))

    def tables(self, dpid: int) -> InstalledTables:
        """Return what a switch's tables should hold once all that was taken by ``take_updates`` is done."""
        record = self.switches[dpid]
        return InstalledTables(dict(record.installed), self.wanted_meters(record))

    def audit(
        self,
        dpid: int,
        expected: InstalledTables,
        flows: Mapping[FlowKey, Flow],
        meters: NDArray[np.void],
        now_s: float,
        only: Collection[FlowKey] | None = None,
    ) -> Iterator[int]:
        """Compare a switch's tables with what they should hold and mend what is ours; yield how much was wrong.

        ``expected`` is what ``tables`` returned when the switch was asked for its ``flows`` (those of ours) and
        ``meters`` (METER_CONFIG); what has changed since then is left for the next time. Only entries with keys in
        ``only`` are compared when all others are known to be as they should be. The work is done in pieces, so that
        others may run between them, and is given up when the switch goes.
        """
        return reconciliation.audit(self, self.pairs, dpid, expected, flows, meters, now_s, only)

    # -- what switches report

    def frame_reported(self, dpid: int, packet: PacketIn, now_s: float) -> None:
        """A frame came up: from an unknown source (LEARN) or from a pair without an entry (RATE_CONTROL).

        Raises ProtocolError when the frame is cut short.
        """
        header = parse_frame(packet.data)
        port = PortId(dpid, packet.in_port)
        if header.vlan_vid is None or self.network.edge_port(port) is None:
            return
        if packet.table_id == Table.LEARN:
            self.learn(Host(header.vlan_vid, header.eth_src), port, now_s)
            self._look_for(header, port, packet.data, now_s)
        elif packet.table_id == Table.RATE_CONTROL:
            pair = self.network.pair_seen(Host(header.vlan_vid, header.eth_dst), port)
            if pair is not None:
                self.pairs.seen(pair, now_s)

    def _look_for(self, header: FrameHeader, port: PortId, frame: bytes, now_s: float) -> None:
        sought = Host(header.vlan_vid or 0, header.eth_dst)
        edge = self.network.edge_port(port)
        if header.is_multicast or edge is None or self.network.knows(sought):
            return
        as_sent = header if edge.tagged else header._replace(vlan_vid=None)
        self._search.look_for(sought, port, as_sent, frame[TAGGED_HEADER_BYTES:], now_s)

    def take_questions(self, now_s: float) -> list[Question]:
        """Return the frames that ask silent hosts where they are; each is to pass its switch's tables."""
        return self._search.take_due(self.network.knows, now_s)

    def hello_heard(self, sender: PortId, receiver: PortId, now_s: float) -> bool:
        """A hello of one switch reached another; tell whether that brought a link up."""
        up = self.network.hear_hello(sender, receiver, now_s)
        if up:
            ends = " and ".join(f"{self.switch_name(end.dpid)}:{end.port_no}" for end in (sender, receiver))
            self.note(EventKind.LINK_UP, f"link between {ends} is up", now_s)
        return up

    def entry_removed(self, dpid: int, removed: FlowRemoved, now_s: float) -> None:
        """An entry of ours has aged."""
        match = removed.match
        if match is None or match.in_port is None or match.vlan_vid is None:
            return
        self.switches[dpid].uninstall([FlowKey(removed.table_id, removed.priority, match)])
        port = PortId(dpid, match.in_port)
        if removed.table_id == Table.LEARN and match.eth_src is not None:
            self.network.source_aged(Host(match.vlan_vid, match.eth_src), port)
        elif removed.table_id == Table.RATE_CONTROL and match.eth_dst is not None:
            pair = self.network.pair_aged(Host(match.vlan_vid, match.eth_dst), port)
            if pair is not None:
                self.pairs.aged(pair)

    # -- the interval

    def interval(
        self,
        stats: Mapping[int, interval.MeterStats],
        received_s: Mapping[int, float],
        now_s: float,
        confirmed_s: Mapping[int, float] | None = None,
    ) -> step.StepResult:
        """Run one control interval on the meter-stats (METER_STATS) of the switches, which came at ``received_s``.

        ``confirmed_s`` is when switches had set the meters that they were last told to set, where that is known.
        """
        self.pairs.flush()
        return interval.run_interval(self, stats, received_s, now_s, confirmed_s or {})

    def tick(self, now_s: float) -> None:
        """Let links expire and the tree settle; call it every interval."""
        before = self.network.topology.links()
        self.network.tick(now_s)
        gone = before - self.network.topology.links()
        if gone:
            self.note(EventKind.LINKS_DOWN, f"{len(gone)} links are silent and so are down", now_s)

    def settle(self, now_s: float) -> None:
        """The controller is about to stop, and its meters stay: set them to the exact rates of their limits."""
        enforcement, changes = settle(self.state.enforcement, now_s)
        counters = self.state.counters.modified(changes.rows, now_s)
        self.state = replace(self.state, enforcement=enforcement, counters=counters)
        interval.queue_changes(self, changes)

    def take_updates(self) -> dict[int, SwitchUpdate]:
        """Return the messages that are due, by dpid, for the switches that are connected."""
        self.pairs.flush()
        self.network.find_paths()
        for dpid, keys in self.network.desired.take_changes().items():
            record = self.switches[dpid]
            if not record.connected:
                continue
            wanted = self.network.desired.of_switch(dpid)
            record.update.set_flows(plan_flows(wanted, record.installed, keys))
            record.hold(keys, wanted)
        due = {dpid: record.update for dpid, record in self.switches.items() if record.connected and len(record.update)}
        for dpid in due:
            self.switches[dpid].take_update()
        return due

    # -- limits and algorithms

    def set_limits(self, row: int, now_s: float, **limits: Unpack[NewLimits]) -> None:
        """Give a VN new limits and ceilings, in force from the next interval on; what is not given stays.

        Raises InvalidValueError, with nothing changed, when a port or a link could not carry what the limits allow, or
        a ceiling is below its limit or above its port's capacity.
        """
        vns = self.vns.with_limits(row, **limits)
        promised = [way for way in WAYS if f"{way}_limit_bps" in limits]
        if promised:
            self.admitted.check(vns, row, sending=None if len(promised) == 2 else promised == ["send"])
        before, self.vns = self.vns, vns
        if "send_limit_bps" in limits or before.send_most_bps[row] != vns.send_most_bps[row]:
            self._set_send_meter(row)
        words = [f"{key.removesuffix('_bps').replace('_', ' ')} {_shown(rate)}" for key, rate in limits.items()]
        self.note(EventKind.LIMIT_CHANGED, f"{self.vn_name(row)}: {', '.join(words)}", now_s)

    def _set_send_meter(self, row: int) -> None:
        record = self.record_of_sender(row)
        if record.connected and record.can.uses_meters:
            meter_id = record.send_meter[row]
            record.update.put_meters({meter_id: self.wanted_meters(record)[meter_id]}, [meter_id])

    def set_algorithm(self, vlan_vid: int, name: str, parameters: Mapping[str, object], now_s: float) -> None:
        """Give a VLAN another allocation algorithm, from the next interval on.

        Raises InvalidValueError, with nothing changed, for an unknown VLAN or algorithm, or bad parameters.
        """
        if vlan_vid not in self.policies:
            raise InvalidValueError("vlan_vid", vlan_vid, "is not a VLAN of the configuration")
        make_any_algorithm(name, parameters)
        self.policies = {**self.policies, vlan_vid: Policy(name, dict(parameters))}
        most_bps = self.vns.send_most_bps
        self.vns = self.vns.with_lending(lending_vlans(self.policies))
        for row in np.flatnonzero(self.vns.send_most_bps != most_bps).tolist():
            self._set_send_meter(row)
        before, self.groups = self.groups, algorithm_groups(self.vns, self.policies)
        self.state = step.with_groups(self.state, before, self.groups)
        self.note(EventKind.ALGORITHM_CHANGED, f"VLAN {vlan_vid}: {name} {dict(parameters) or ''}".rstrip(), now_s)

    def set_shadow(self, vlan_vid: int, shadow: Policy | None, now_s: float) -> None:
        """Compute an algorithm beside the one that a VLAN has, or none any more, from the next interval on.

        Raises InvalidValueError, with nothing changed, for an unknown VLAN or algorithm, or bad parameters.
        """
        if vlan_vid not in self.policies:
            raise InvalidValueError("vlan_vid", vlan_vid, "is not a VLAN of the configuration")
        policies = {vid: policy for vid, policy in self.shadow.policies.items() if vid != vlan_vid}
        if shadow is not None:
            policies[vlan_vid] = Policy(shadow.algorithm, dict(shadow.parameters))
        self.shadow = Shadow.of(self.vns, policies)
        words = "none" if shadow is None else f"{shadow.algorithm} {dict(shadow.parameters) or ''}".rstrip()
        self.note(EventKind.ALGORITHM_CHANGED, f"VLAN {vlan_vid}: shadow {words}", now_s)


def _shown(rate_bps: object) -> str:
    return "none" if rate_bps is None else f"{rate_bps} bit/s"
