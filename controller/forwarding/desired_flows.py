"""Desired against installed flow entries: what the core wants on each switch, and the messages that get it there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping

import numpy as np

from controller.columns import IntArray
from controller.fabric.port_numbers import is_nowhere
from controller.forwarding.flow_table import KEY, KEY_BYTES, FlowTable, FlowTemplate, KeyArray, effect_of, pack_key
from controller.openflow.constants import FlowModCommand
from controller.openflow.flows import Flow

# So many keys that were touched are compared at a time: those that are installed already cost a microsecond each.
_MAX_SCAN = 10_000


class DesiredFlows:
    """The flow entries the switches should have, by dpid; of ``only`` some switches, None: of all.

    Entries are put and dropped in groups, each named by what caused it, so that one host or one link replaces its own
    entries only. Those of which there are most are put by themselves (``put_entries``): their keys name them.
    ``pop_changed`` tells which entries the switches have yet to follow.
    """

    def __init__(self) -> None:
        self.only: set[int] | None = None
        self._groups: dict[Hashable, dict[int, tuple[Flow, ...]]] = {}
        self._tables: defaultdict[int, FlowTable] = defaultdict(FlowTable)
        self._touched: defaultdict[int, set[bytes]] = defaultdict(set)
        self._ordered: dict[int, list[bytes]] = {}  # of those that were too many at once, the next one last
        self._packed: tuple[Flow, bytes, FlowTemplate] | None = (
            None  # the last: many switches in turn have the same entry
        )

    def tracks(self, dpid: int) -> bool:
        """Return whether the entries of a switch are kept; what is put for another one is forgotten at once."""
        return self.only is None or dpid in self.only

    def forget(self, dpid: int) -> None:
        """Keep the entries of a switch no longer."""
        if self.only is not None:
            self.only.discard(dpid)
        for group in [group for group, parts in self._groups.items() if parts.pop(dpid, ()) and not parts]:
            del self._groups[group]
        self._tables.pop(dpid, None)
        self._touched.pop(dpid, None)
        self._ordered.pop(dpid, None)

    def put(self, group: Hashable, flows: Mapping[int, Iterable[Flow]]) -> None:
        """Make ``flows``, by dpid, all that ``group`` asks for."""
        if group not in self._groups and self.only is not None and self.only.isdisjoint(flows):
            return
        parts = self._groups.setdefault(group, {})
        for dpid in parts.keys() | flows.keys():
            self.put_at(group, dpid, flows.get(dpid, ()))

    def put_at(self, group: Hashable, dpid: int, flows: Iterable[Flow]) -> None:
        """Make ``flows`` all that ``group`` asks for at one switch."""
        if not self.tracks(dpid):
            return
        parts = self._groups.setdefault(group, {})
        new, old = tuple(flow for flow in flows if not is_nowhere(flow.match.in_port)), parts.pop(dpid, ())
        if new:
            parts[dpid] = new
        if new != old:
            self._remove(dpid, set(old).difference(new))
            for flow in new:
                self.put_entry(dpid, flow)

    def drop(self, group: Hashable) -> None:
        """Ask for nothing any more in the name of ``group``."""
        for dpid, flows in self._groups.pop(group, {}).items():
            self._remove(dpid, flows)

    def put_entry(self, dpid: int, flow: Flow) -> None:
        """Ask for an entry that no group has; not for one of a port by name that has no number."""
        if not self.tracks(dpid) or is_nowhere(flow.match.in_port):
            return
        if self._packed is None or self._packed[0] is not flow:
            self._packed = flow, pack_key(flow), effect_of(flow)
        _, packed, effect = self._packed
        self.put_packed(dpid, packed, flow.meter_id or 0, effect)

    def put_packed(self, dpid: int, packed: bytes, meter_id: int, effect: FlowTemplate) -> None:
        """Ask for an entry that no group has, of this packed key, meter (0: none) and effect."""
        if self.tracks(dpid) and self._tables[dpid].put_new(packed, meter_id, effect):
            self._touched[dpid].add(packed)

    def put_entries(self, dpid: int, keys: KeyArray, meter_id: IntArray, effect: FlowTemplate) -> None:
        """Ask for entries that no group has, in columns: packed keys, meters (0: none), and what all have in common."""
        if not self.tracks(dpid):
            return
        meters = meter_id.astype(np.uint32)
        new = self._tables[dpid].differing_rows(keys, meters, effect)
        self._tables[dpid].put_rows(keys[new], meters[new], effect)
        self._touched[dpid].update(keys[new].tolist())

    def drop_entry(self, dpid: int, packed: bytes) -> None:
        """Ask no more for an entry that no group has."""
        if self.tracks(dpid) and self._tables[dpid].has(packed):
            self._tables[dpid].discard(packed)
            self._touched[dpid].add(packed)

    def drop_entries(self, dpid: int, keys: KeyArray) -> None:
        """Ask no more for entries that no group has, by their packed keys."""
        if self.tracks(dpid):
            there = keys[self._tables[dpid].contains(keys)].tolist()
            for packed in there:
                self._tables[dpid].discard(packed)
            self._touched[dpid].update(there)

    def _remove(self, dpid: int, flows: Iterable[Flow]) -> None:
        for flow in flows:
            packed = pack_key(flow)
            if self._tables[dpid].holds(flow):
                self._tables[dpid].discard(packed)
            self._touched[dpid].add(packed)

    @property
    def pending(self) -> set[int]:
        """The switches of which entries were touched that nobody has taken yet."""
        return {dpid for dpid, keys in self._touched.items() if keys} | self._ordered.keys()

    def of_switch(self, dpid: int) -> FlowTable:
        """Return all entries that a switch should have."""
        return self._tables[dpid]

    def pop_changed(self, max_keys: int, installed: Mapping[int, FlowTable]) -> dict[int, set[bytes]]:
        """Return ``max_keys`` of the packed keys that were touched of which ``installed`` tables, by dpid, differ.

        What other switches are to have is forgotten: it is compared as a whole when they come. Switches take turns. Of
        one that has too many those come first that must go, then those of later tables, as in ``plan_flows``. Half of
        ``max_keys`` is for such ones while there are any, so that what is touched later need not wait for them.
        """
        for waiting in (self._touched, self._ordered):
            for dpid in waiting.keys() - installed.keys():
                del waiting[dpid]
        taken: dict[int, set[bytes]] = {}
        kept, looked_at = max_keys // 2 if self._ordered else 0, 0
        for dpid in list(self._touched):
            if max_keys <= kept or looked_at >= _MAX_SCAN:
                break
            keys = self._touched.pop(dpid)
            looked_at += len(keys)
            differing = self._tables[dpid].differing(installed[dpid], keys)
            if len(differing) > max_keys:
                self._ordered[dpid] = self._first(dpid, differing)[::-1] + self._ordered.pop(dpid, [])
            elif differing:
                taken[dpid] = differing
                max_keys -= len(differing)
        for dpid in list(self._ordered):
            if max_keys <= 0:
                break
            ordered = self._ordered.pop(dpid)
            some = ordered[-max_keys:]
            del ordered[-max_keys:]
            taken.setdefault(dpid, set()).update(some)
            max_keys -= len(some)
            if ordered:
                self._ordered[dpid] = ordered
        return taken

    def _first(self, dpid: int, keys: Collection[bytes]) -> list[bytes]:
        """Return keys in the order in which they are to be seen to."""
        ordered = sorted(keys, reverse=True)
        fitting = np.array([packed for packed in ordered if len(packed) <= KEY_BYTES], KEY)
        there = self._tables[dpid].contains(fitting)
        gone = fitting[~there].tolist()
        long = [packed for packed in ordered if len(packed) > KEY_BYTES]
        return [*gone, *long, *fitting[there].tolist()]


FlowMods = list[tuple[FlowModCommand, Flow]]


def plan_flows(desired: FlowTable, installed: FlowTable, keys: Collection[bytes] | None = None) -> FlowMods:
    """Return the flow-mods that turn ``installed`` into ``desired``, for some packed keys or for all.

    What must go goes first, so that tables do not overflow; then later tables before earlier ones, so that no frame is
    sent on to a table that is not ready for it.
    """
    delete: FlowMods = []
    add: FlowMods = []
    for packed in desired.differing(installed, keys):
        if (wanted := desired.flow(packed)) is not None:
            add.append((FlowModCommand.ADD, wanted))
        elif (there := installed.flow(packed)) is not None:
            delete.append((FlowModCommand.DELETE_STRICT, there))
    add.sort(key=lambda mod: (-mod[1].table_id, -mod[1].priority))
    return delete + add
