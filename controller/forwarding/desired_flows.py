"""Desired against installed flow entries: what each switch should have, and the flow-mods that install it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping

import numpy as np

from controller.columns import IntArray
from controller.fabric.port_numbers import is_nowhere
from controller.forwarding.flow_table import KEY, KEY_BYTES, FlowTable, FlowTemplate, KeyArray, effect_of, pack_key
from controller.openflow.constants import FlowModCommand
from controller.openflow.flows import Flow

# Changed keys that one call compares: a key costs a microsecond even if the switch has its flow entry already.
_MAX_SCAN = 10_000


class DesiredFlows:
    """The desired flow entries of the switches in ``only``, by dpid; None: of all switches.

    Most flow entries stand alone: they are put and dropped one by one or in columns, by their packed keys
    (``pack_key``: table, priority and match). The others belong to *groups*. A group has all flow entries of one cause,
    at one or more switches; the cause, such as ``("source", host)`` or ``("edge", dpid, port_no)``, names the group. A
    group is replaced or dropped as a whole, so that a change of one host or port touches no other flow entries. It is
    not an OpenFlow group.

    ``pop_changed`` returns the packed keys of flow entries that switches do not have yet, or must delete.
    """

    def __init__(self) -> None:
        self.only: set[int] | None = None
        self._groups: dict[Hashable, dict[int, tuple[Flow, ...]]] = {}  # each group's flow entries by dpid
        self._tables: defaultdict[int, FlowTable] = defaultdict(FlowTable)  # all desired flow entries by dpid
        self._touched: defaultdict[int, set[bytes]] = defaultdict(set)  # packed keys put or dropped, not yet compared
        # Differing packed keys of switches with more of them than one call returns, by dpid; the next key last.
        self._ordered: dict[int, list[bytes]] = {}
        # The last packed flow entry: many switches get the same one in turn.
        self._packed: tuple[Flow, bytes, FlowTemplate] | None = None

    def tracks(self, dpid: int) -> bool:
        """Return whether the flow entries of a switch are tracked; those of other switches are ignored."""
        return self.only is None or dpid in self.only

    def forget(self, dpid: int) -> None:
        """Forget the desired flow entries of a switch; if ``only`` has the switch, stop tracking it.

        Flow entries that are installed stay: the switch is another node's now.
        """
        if self.only is not None:
            self.only.discard(dpid)
        for group in [group for group, parts in self._groups.items() if parts.pop(dpid, ()) and not parts]:
            del self._groups[group]
        self._tables.pop(dpid, None)
        self._touched.pop(dpid, None)
        self._ordered.pop(dpid, None)

    def put(self, group: Hashable, flows: Mapping[int, Iterable[Flow]]) -> None:
        """Replace all flow entries of ``group`` by ``flows``, by dpid; at other switches the group has none then."""
        if group not in self._groups and self.only is not None and self.only.isdisjoint(flows):
            return
        parts = self._groups.setdefault(group, {})
        for dpid in parts.keys() | flows.keys():
            self.put_at(group, dpid, flows.get(dpid, ()))

    def put_at(self, group: Hashable, dpid: int, flows: Iterable[Flow]) -> None:
        """Replace the flow entries of ``group`` at one switch by ``flows``.

        Flow entries with an in_port that has a name but no number at the switch yet are left out.
        """
        if not self.tracks(dpid):
            return
        parts = self._groups.setdefault(group, {})
        new, old = tuple(flows), parts.pop(dpid, ())  # a tuple is not copied: the switches of a group may share it
        if any(is_nowhere(flow.match.in_port) for flow in new):
            new = tuple(flow for flow in new if not is_nowhere(flow.match.in_port))
        if new:
            parts[dpid] = new
        if new != old:
            self._remove(dpid, set(old).difference(new))
            for flow in new:
                self.put_entry(dpid, flow)

    def drop(self, group: Hashable) -> None:
        """Drop all flow entries of ``group``."""
        for dpid, flows in self._groups.pop(group, {}).items():
            self._remove(dpid, flows)

    def put_entry(self, dpid: int, flow: Flow) -> None:
        """Put one flow entry that stands alone, or replace the one with its key.

        Ignored if the switch is not tracked, or if the flow's in_port has a name but no number at the switch yet.
        """
        if not self.tracks(dpid) or is_nowhere(flow.match.in_port):
            return
        # Callers put one Flow at many switches in a row: it is packed once.
        if self._packed is None or self._packed[0] is not flow:
            self._packed = flow, pack_key(flow), effect_of(flow)
        _, packed, effect = self._packed
        self.put_packed(dpid, packed, flow.meter_id or 0, effect)

    def put_packed(self, dpid: int, packed: bytes, meter_id: int, effect: FlowTemplate) -> None:
        """Put a flow entry that stands alone, by packed key, meter (0: none) and effect."""
        if self.tracks(dpid) and self._tables[dpid].put_new(packed, meter_id, effect):
            self._touched[dpid].add(packed)

    def put_entries(self, dpid: int, keys: KeyArray, meter_id: IntArray, effect: FlowTemplate) -> None:
        """Put flow entries that stand alone, in columns: packed keys, meters (0: none), (flows,) each; one effect."""
        if not self.tracks(dpid):
            return
        meters = meter_id.astype(np.uint32)
        new = self._tables[dpid].differing_rows(keys, meters, effect)
        self._tables[dpid].put_rows(keys[new], meters[new], effect)
        self._touched[dpid].update(keys[new].tolist())

    def drop_entry(self, dpid: int, packed: bytes) -> None:
        """Drop a flow entry that stands alone, by its packed key."""
        if self.tracks(dpid) and self._tables[dpid].has(packed):
            self._tables[dpid].discard(packed)
            self._touched[dpid].add(packed)

    def drop_entries(self, dpid: int, keys: KeyArray) -> None:
        """Drop flow entries that stand alone, by their packed keys, (flows,)."""
        if self.tracks(dpid):
            present = keys[self._tables[dpid].contains(keys)].tolist()
            for packed in present:
                self._tables[dpid].discard(packed)
            self._touched[dpid].update(present)

    def _remove(self, dpid: int, flows: Iterable[Flow]) -> None:
        """Drop a group's flow entries, except those that others with the same keys have replaced."""
        for flow in flows:
            packed = pack_key(flow)
            if self._tables[dpid].holds(flow):
                self._tables[dpid].discard(packed)
            self._touched[dpid].add(packed)

    @property
    def pending(self) -> set[int]:
        """The dpids of switches with changed flow entries that ``pop_changed`` has not returned yet."""
        return {dpid for dpid, keys in self._touched.items() if keys} | self._ordered.keys()

    def flows_at(self, dpid: int) -> FlowTable:
        """Return all desired flow entries of a switch."""
        return self._tables[dpid]

    def pop_changed(self, max_keys: int, installed: Mapping[int, FlowTable]) -> dict[int, set[bytes]]:
        """Return at most ``max_keys`` changed packed keys, by dpid, of flow entries that differ from ``installed``.

        ``installed`` are the tables of the connected switches, by dpid. Changes at other switches are discarded: their
        tables are compared as a whole when they connect.

        A switch with more differing keys than remain of ``max_keys`` gets its keys in parts, in later calls too, in the
        order of ``_in_order``. Half of ``max_keys`` is reserved for such switches, and the rest for new changes, so
        that neither waits for the other.
        """
        for changes in (self._touched, self._ordered):
            for dpid in changes.keys() - installed.keys():
                del changes[dpid]
        # From here on ``max_keys`` is what remains of it.
        popped: dict[int, set[bytes]] = {}
        reserved, compared = max_keys // 2 if self._ordered else 0, 0
        for dpid in list(self._touched):
            if max_keys <= reserved or compared >= _MAX_SCAN:
                break
            keys = self._touched.pop(dpid)
            compared += len(keys)
            differing = self._tables[dpid].differing(installed[dpid], keys)
            if len(differing) > max_keys:
                # Keys that are left from earlier calls stay at the end: they come first.
                self._ordered[dpid] = self._in_order(dpid, differing)[::-1] + self._ordered.pop(dpid, [])
            elif differing:
                popped[dpid] = differing
                max_keys -= len(differing)
        for dpid in list(self._ordered):
            if max_keys <= 0:
                break
            remaining = self._ordered.pop(dpid)
            next_keys = remaining[-max_keys:]
            del remaining[-max_keys:]
            popped.setdefault(dpid, set()).update(next_keys)
            max_keys -= len(next_keys)
            if remaining:
                self._ordered[dpid] = remaining
        return popped

    def _in_order(self, dpid: int, keys: Collection[bytes]) -> list[bytes]:
        """Return packed keys in the order in which their flow-mods must be sent, as in ``plan_flows``.

        Deletions come first, then the few keys that are too long for columns, then later tables before earlier ones.
        """
        ordered = sorted(keys, reverse=True)
        fitting = np.array([packed for packed in ordered if len(packed) <= KEY_BYTES], KEY)
        present = self._tables[dpid].contains(fitting)
        removed = fitting[~present].tolist()
        long = [packed for packed in ordered if len(packed) > KEY_BYTES]
        return [*removed, *long, *fitting[present].tolist()]


FlowMods = list[tuple[FlowModCommand, Flow]]


def plan_flows(desired: FlowTable, installed: FlowTable, keys: Collection[bytes] | None = None) -> FlowMods:
    """Return the flow-mods that turn ``installed`` into ``desired``, for some packed keys or for all (None).

    Deletions come first, so that tables do not overflow; then later tables before earlier ones, so that no frame goes
    to a table that is not ready.
    """
    delete: FlowMods = []
    add: FlowMods = []
    for packed in desired.differing(installed, keys):
        if (desired_flow := desired.flow(packed)) is not None:
            add.append((FlowModCommand.ADD, desired_flow))
        elif (installed_flow := installed.flow(packed)) is not None:
            delete.append((FlowModCommand.DELETE_STRICT, installed_flow))
    add.sort(key=lambda mod: (-mod[1].table_id, -mod[1].priority))
    return delete + add
