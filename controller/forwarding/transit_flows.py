"""Flow entries that forward frames to a host, at every switch except the host's own.

There is one flow entry for each host and switch, so that a changed link or a new host changes many of them at once. The
flow entries of a host have the same key at all switches; only their output port differs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache

import numpy as np

from controller.forwarding import pipeline
from controller.forwarding.desired_flows import DesiredFlows
from controller.forwarding.flow_table import KEY, FlowTemplate, KeyArray, effect_of, pack_key
from controller.forwarding.pairs import Host

_NO_METER = 0


class TransitFlows:
    """Keeps the flow entries in ``desired`` that forward frames to hosts behind other switches.

    They follow the paths of the last ``put_paths``: the output port by the dpids of a switch and of the destination's
    switch. Flow entries for a switch's own hosts are not here.
    """

    def __init__(self, desired: DesiredFlows) -> None:
        self._desired = desired
        self._next_port: Mapping[tuple[int, int], int] = {}
        self._keys_at: defaultdict[int, dict[Host, bytes]] = defaultdict(dict)  # by the dpid of the host's own switch
        self._columns: dict[int, KeyArray] = {}  # the same keys as columns, built on demand

    def place(self, host: Host, host_dpid: int, switches: Iterable[int]) -> None:
        """Let those of ``switches`` that have a path to the switch ``host_dpid`` forward frames to a host behind it."""
        packed = pack_key(pipeline.forward_to_switch(1, host.vlan_vid, host.mac))
        self._keys_at[host_dpid][host] = packed
        self._columns.pop(host_dpid, None)
        for dpid in switches:
            port_no = self._next_port.get((dpid, host_dpid))
            if port_no is not None:
                self._desired.put_packed(dpid, packed, _NO_METER, _towards(port_no))

    def forget(self, host: Host, host_dpid: int, switches: Iterable[int]) -> None:
        """Drop the flow entries to a host that was behind the switch ``host_dpid``."""
        packed = self._keys_at[host_dpid].pop(host)
        self._columns.pop(host_dpid, None)
        for dpid in switches:
            if (dpid, host_dpid) in self._next_port:
                self._desired.drop_entry(dpid, packed)

    def begin(self, dpid: int) -> Iterable[None]:
        """Make all flow entries of one switch, which has none; yield after those to each other switch's hosts."""
        for host_dpid in list(self._keys_at):
            port_no = self._next_port.get((dpid, host_dpid))
            if port_no is not None:
                self._put(dpid, port_no, [host_dpid])
                yield

    def put_paths(self, next_port: Mapping[tuple[int, int], int], is_tracked: Callable[[int], bool]) -> None:
        """Set the paths, and update the flow entries of tracked switches whose paths changed.

        ``next_port`` is the output port by (dpid, dpid of the destination's switch); ``is_tracked`` returns whether
        the flow entries of a switch are kept.
        """
        destinations: defaultdict[tuple[int, int | None], list[int]] = defaultdict(list)  # by switch and new port
        for dpid, host_dpid in {ends for ends, _ in self._next_port.items() ^ next_port.items()}:
            if self._keys_at.get(host_dpid) and is_tracked(dpid):
                destinations[dpid, next_port.get((dpid, host_dpid))].append(host_dpid)
        self._next_port = next_port
        for (dpid, port_no), host_dpids in destinations.items():
            self._put(dpid, port_no, host_dpids)

    def _put(self, dpid: int, port_no: int | None, host_dpids: Iterable[int]) -> None:
        """Let a switch forward frames to the hosts of other switches out of a port; None: drop the flow entries."""
        keys = np.concatenate([self._column(host_dpid) for host_dpid in host_dpids])
        if port_no is None:
            self._desired.drop_entries(dpid, keys)
        else:
            self._desired.put_entries(dpid, keys, np.full(len(keys), _NO_METER), _towards(port_no))

    def _column(self, host_dpid: int) -> KeyArray:
        """Return the keys of the flow entries to the hosts behind a switch, (hosts,)."""
        if host_dpid not in self._columns:
            self._columns[host_dpid] = np.array(list(self._keys_at[host_dpid].values()), KEY)
        return self._columns[host_dpid]


@cache
def _towards(port_no: int) -> FlowTemplate:
    """Return the effect of a flow entry that forwards out of a port to another switch."""
    return effect_of(pipeline.forward_to_switch(port_no, 1, 0))
