"""Flow entries that forward frames to a host, at every switch except the host's own.

There is one for each host and switch, so that a link change or a new host changes many at once. At one switch they
differ by the port only; a host's key is the same at all switches.
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
    """The flow entries to hosts behind other switches, in ``desired``, for the paths that were put last.

    Paths are ports by (switch, destination switch), dpids. A switch's flow entries for its own hosts are not here.
    """

    def __init__(self, desired: DesiredFlows) -> None:
        self._desired = desired
        self._next_port: Mapping[tuple[int, int], int] = {}
        self._keys_at: defaultdict[int, dict[Host, bytes]] = defaultdict(dict)  # by the dpid of the host's own switch
        self._columns: dict[int, KeyArray] = {}  # the same keys as columns, built on demand

    def place(self, host: Host, host_dpid: int, switches: Iterable[int]) -> None:
        """Let other switches forward frames to a host behind the switch ``host_dpid``, where a path leads."""
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
        """Make the flow entries of one switch, which has none; yield after each batch."""
        for host_dpid in list(self._keys_at):
            port_no = self._next_port.get((dpid, host_dpid))
            if port_no is not None:
                self._put(dpid, port_no, [host_dpid])
                yield

    def put_paths(self, next_port: Mapping[tuple[int, int], int], keeps: Callable[[int], bool]) -> None:
        """Update the flow entries of the tracked switches to these paths, where they changed."""
        turned: defaultdict[tuple[int, int | None], list[int]] = defaultdict(list)
        for dpid, host_dpid in {ends for ends, _ in self._next_port.items() ^ next_port.items()}:
            if self._keys_at.get(host_dpid) and keeps(dpid):
                turned[dpid, next_port.get((dpid, host_dpid))].append(host_dpid)
        self._next_port = next_port
        for (dpid, port_no), to in turned.items():
            self._put(dpid, port_no, to)

    def _put(self, dpid: int, port_no: int | None, to: Iterable[int]) -> None:
        """Let a switch forward frames for some other switches' hosts out of a port; None: drop the flow entries."""
        keys = np.concatenate([self._column(host_dpid) for host_dpid in to])
        if port_no is None:
            self._desired.drop_entries(dpid, keys)
        else:
            self._desired.put_entries(dpid, keys, np.full(len(keys), _NO_METER), _towards(port_no))

    def _column(self, host_dpid: int) -> KeyArray:
        if host_dpid not in self._columns:
            self._columns[host_dpid] = np.array(list(self._keys_at[host_dpid].values()), KEY)
        return self._columns[host_dpid]


@cache
def _towards(port_no: int) -> FlowTemplate:
    return effect_of(pipeline.forward_to_switch(port_no, 1, 0))
