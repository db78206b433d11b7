"""Active pairs of VNs, their meters, and the flow entries that lead a pair's frames through its meter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain, pairwise

import numpy as np

from controller.columns import BoolArray, IntArray
from controller.fabric.config_model import FIRST_NAMED, LAST_NAMED
from controller.fabric.port_numbers import PortNumbers
from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable
from controller.forwarding import pipeline
from controller.forwarding.desired_flows import DesiredFlows
from controller.forwarding.flow_table import effect_of, pack_key
from controller.forwarding.host_flow_columns import PAIR, build_keys
from controller.forwarding.marking_flows import MarkingFlows
from controller.forwarding.pairs import Host, Pair
from controller.openflow.match import Match

_UNKNOWN = -1  # neither a meter nor a row


class MeteringFlows:
    """The pairs with their meters, or None if no meter is left, and their flow entries in ``desired``.

    ``hosts_of_vn`` returns the known hosts of a VN. Flow entries age when they are idle for ``mac_ageing_s``.
    """

    def __init__(
        self,
        desired: DesiredFlows,
        vns: VnTable,
        hosts_of_vn: Callable[[int], Collection[Host]],
        marked: MarkingFlows,
        numbers: PortNumbers,
        mac_ageing_s: int,
    ) -> None:
        self._port_numbers = numbers
        self._desired, self._vns, self._hosts_of_vn, self._marked = desired, vns, hosts_of_vn, marked
        self._mac_ageing_s = mac_ageing_s
        self._meters_to: defaultdict[int, dict[int, int | None]] = defaultdict(dict)  # by receiver and sender
        self._sender_count = np.zeros(len(vns), dtype=np.int64)  # by receiver
        self._numbers: dict[int, int] = {}  # see _know
        self._unused: set[Pair] = set()

    def has(self, pair: Pair) -> bool:
        """Return whether a pair is known here, with a meter or without one because none is left."""
        return pair.sender in self._meters_to[pair.receiver]

    def has_each(self, sender: IntArray, receiver: IntArray) -> BoolArray:
        """Return which pairs are known here, in columns, (pairs,), as ``has`` does for one."""
        ends = zip(sender.tolist(), receiver.tolist(), strict=True)
        return np.array([one in self._meters_to.get(to, ()) for one, to in ends], dtype=np.bool_)

    def to(self, row: int) -> list[Pair]:
        """Return the pairs that send to a VN."""
        return [Pair(sender, row) for sender in self._meters_to[row]]

    def receivers(self) -> IntArray:
        """Return the rows of the receiving VNs of all pairs, in ascending order."""
        return np.flatnonzero(self._sender_count)

    def hosts_of(self, pair: Pair) -> list[Host]:
        """Return the receiver's hosts to which the pair's sender has a flow entry."""
        return [host for host in self._hosts_of_vn(pair.receiver) if self.has_entry(pair, host)]

    def inherit(self, pair: Pair, meter_id: int | None, hosts: Iterable[Host]) -> None:
        """Take over a pair with its meter, and its flow entries to these hosts."""
        self._know(pair, meter_id)
        for host in hosts:
            self.put_entry(pair, host)

    def add(self, meter_of: Mapping[Pair, int | None]) -> None:
        """Add pairs with their meters; their frames pass these from now on; None: no meter is left."""
        for pair, meter_id in meter_of.items():
            self._know(pair, meter_id)
        if meter_of:
            self.put_all(*np.array(list(meter_of), dtype=np.int64).T)

    def add_columns(self, sender: IntArray, receiver: IntArray, meter_id: IntArray) -> None:
        """Add pairs, in columns, with their meters; ``put_all`` makes their flow entries."""
        order, one = np.argsort(receiver, kind="stable"), self._numbers.setdefault  # ``one`` is as in _know
        rows, starts = np.unique(receiver[order], return_index=True)
        for row, (start, end) in zip(rows.tolist(), pairwise([*starts.tolist(), len(order)]), strict=True):
            mine = order[start:end]
            senders, meters = sender[mine].tolist(), meter_id[mine].tolist()
            self._meters_to[row].update(zip(map(one, senders, senders), map(one, meters, meters), strict=True))
            self._sender_count[row] = len(self._meters_to[row])

    def _know(self, pair: Pair, meter_id: int | None) -> None:
        """Store a pair's meter. Equal numbers share one object, which would otherwise take 32 bytes for each pair."""
        one = self._numbers.setdefault
        meter_id = None if meter_id is None else one(meter_id, meter_id)
        self._meters_to[pair.receiver][one(pair.sender, pair.sender)] = meter_id
        self._sender_count[pair.receiver] = len(self._meters_to[pair.receiver])

    def put_all(self, sender: IntArray, receiver: IntArray) -> None:
        """Let the frames of these pairs, in columns, pass their meters, if the pairs are still known.

        There is a flow entry for each host of the receiver. The entries of one switch are put in two columns, since
        those of frames that may be marked have another effect.
        """
        no_meters: dict[int, int | None] = {}
        ends = zip(sender.tolist(), receiver.tolist(), strict=True)
        ids = [
            self._meters_to.get(receiver_row, no_meters).get(sender_row, _UNKNOWN) or 0
            for sender_row, receiver_row in ends
        ]
        meter_id = np.array(ids, dtype=np.int64)  # 0: no meter; _UNKNOWN: the pair is gone and gets no entries
        rows, macs = self._to_hosts(np.where(meter_id == _UNKNOWN, _UNKNOWN, receiver))
        # From here on a row is a pair and one of its receiver's hosts.
        vns, sender, receiver, meter_id = self._vns, sender[rows], receiver[rows], meter_id[rows]
        may_be_marked = self._marked.crosses_mask(sender, receiver)
        order, parts = vns.by_switch(sender)
        for dpid, start, end in parts:
            for marked in (False, True):
                positions = order[start:end]
                positions = positions[may_be_marked[positions] == marked]
                if len(positions):
                    # The effect does not depend on port, VLAN, address and meter, which are placeholders here.
                    effect = effect_of(pipeline.rate_control(1, 1, 0, None, self._mac_ageing_s, marks=marked))
                    in_port = self._port_numbers.numbers(dpid, vns.port_no[sender[positions]])
                    # A port by name that is unbound has no number at the switch.
                    present = (in_port < FIRST_NAMED) | (in_port > LAST_NAMED)
                    positions, in_port = positions[present], in_port[present]
                    keys = build_keys(PAIR, in_port, vns.vlan_vid[sender[positions]], macs[positions])
                    self._desired.put_entries(dpid, keys, meter_id[positions], effect)

    def _to_hosts(self, receiver: IntArray) -> tuple[IntArray, IntArray]:
        """Return a row for each host of each of these VNs (_UNKNOWN has none): the VN's position, and the address."""
        rows, which = np.unique(receiver, return_inverse=True)
        macs = [[host.mac for host in self._hosts_of_vn(row)] if row != _UNKNOWN else [] for row in rows.tolist()]
        counts = np.array([len(some) for some in macs], dtype=np.int64)
        # For each of ``receiver``: the number of its hosts, and the position of the first one in ``address``.
        each, first = counts[which], (np.cumsum(counts) - counts)[which]
        # 0, 1, 2 ... for the hosts of each of ``receiver``.
        within = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
        address = np.array(list(chain.from_iterable(macs)), dtype=np.int64)
        return np.repeat(np.arange(len(receiver)), each), address[np.repeat(first, each) + within]

    def remove(self, pair: Pair) -> None:
        """Remove a pair, which lost its meter."""
        self._meters_to[pair.receiver].pop(pair.sender, None)
        self._sender_count[pair.receiver] = len(self._meters_to[pair.receiver])
        for host in self._hosts_of_vn(pair.receiver):
            self.drop_entry(pair, host)

    def forget_senders(self, rows: frozenset[int]) -> None:
        """Drop the flow entries of the pairs with these senders (rows of VNs), because their port lost its number.

        The pairs become unused, and return when they send again.
        """
        for receiver, meters in list(self._meters_to.items()):
            for pair in [Pair(sender, receiver) for sender in meters if sender in rows]:
                for host in self._hosts_of_vn(receiver):
                    self.drop_entry(pair, host)
                self._unused.add(pair)

    def forget_host(self, row: int, host: Host) -> None:
        """Drop the flow entries of all pairs to a forgotten host of a VN."""
        for pair in self.to(row):
            self.drop_entry(pair, host)
            if not self.in_use(pair):
                self._unused.add(pair)

    def drain_unused(self) -> set[Pair]:
        """Return the pairs whose meters became unused because their hosts were forgotten, and clear them."""
        unused, self._unused = self._unused, set()
        return {pair for pair in unused if self.has(pair) and not self.in_use(pair)}

    def in_use(self, pair: Pair) -> bool:
        """Return whether a flow entry uses a pair's meter."""
        return any(self.has_entry(pair, host) for host in self._hosts_of_vn(pair.receiver))

    def put_entry(self, pair: Pair, host: Host) -> None:
        """Let a pair's frames to a host pass the pair's meter."""
        sender = self._vns.key(pair.sender)
        number = self._port_numbers.number(PortId(sender.dpid, sender.port_no))
        marks = self._marked.crosses(pair)
        meter_id = self._meters_to[pair.receiver][pair.sender]
        flow = pipeline.rate_control(number, host.vlan_vid, host.mac, meter_id, self._mac_ageing_s, marks=marks)
        self._desired.put_entry(sender.dpid, flow)

    def drop_entry(self, pair: Pair, host: Host) -> None:
        """Drop the flow entry of a pair's frames to a host."""
        self._desired.drop_entry(*self._entry_of(pair, host))

    def has_entry(self, pair: Pair, host: Host) -> bool:
        """Return whether a pair's frames to a host have a flow entry."""
        dpid, packed = self._entry_of(pair, host)
        return self._desired.flows_at(dpid).has(packed)

    def _entry_of(self, pair: Pair, host: Host) -> tuple[int, bytes]:
        """Return the switch and the packed key of the flow entry of a pair's frames to a host.

        No other flow entry has this key: the one for frames within the receiver's VN (pipeline.forward_within_vn) has
        the receiver's port as in_port.
        """
        sender = self._vns.key(pair.sender)
        number = self._port_numbers.number(PortId(sender.dpid, sender.port_no))
        match = Match(in_port=number, vlan_vid=host.vlan_vid, eth_dst=host.mac)
        return sender.dpid, pack_key(PAIR._replace(match=match))
