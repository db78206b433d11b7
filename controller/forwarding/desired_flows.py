"""Desired against installed flow entries: what the core wants on each switch, and the messages that get it there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from controller.openflow.constants import FlowModCommand
from controller.openflow.flows import Flow
from controller.openflow.match import Match


class FlowKey(NamedTuple):
    """What makes two entries the same entry to a switch (OpenFlow 1.3.5, section 5.2)."""

    table_id: int
    priority: int
    match: Match


def flow_key(flow: Flow) -> FlowKey:
    """Return the key of an entry."""
    return FlowKey(flow.table_id, flow.priority, flow.match)


class DesiredFlows:
    """The flow entries the switches should have, by dpid.

    Entries are put and dropped in groups, each named by what caused it, so that one host or one link replaces its own
    entries only. ``take_changes`` tells which entries were touched since it was last called.
    """

    def __init__(self) -> None:
        self._groups: dict[Hashable, dict[int, tuple[Flow, ...]]] = {}
        self._flows: defaultdict[int, dict[FlowKey, Flow]] = defaultdict(dict)
        self._touched: defaultdict[int, set[FlowKey]] = defaultdict(set)

    def __contains__(self, group: Hashable) -> bool:
        return group in self._groups

    def put(self, group: Hashable, flows: Mapping[int, Iterable[Flow]]) -> None:
        """Make ``flows``, by dpid, all that ``group`` asks for."""
        parts = self._groups.setdefault(group, {})
        for dpid in parts.keys() | flows.keys():
            self.put_at(group, dpid, flows.get(dpid, ()))

    def put_at(self, group: Hashable, dpid: int, flows: Iterable[Flow]) -> None:
        """Make ``flows`` all that ``group`` asks for at one switch."""
        parts = self._groups.setdefault(group, {})
        new, old = tuple(flows), parts.pop(dpid, ())
        if new:
            parts[dpid] = new
        if new == old:
            return
        self._remove(dpid, old)
        for flow in new:
            self._flows[dpid][flow_key(flow)] = flow
            self._touched[dpid].add(flow_key(flow))

    def drop(self, group: Hashable) -> None:
        """Ask for nothing any more in the name of ``group``."""
        for dpid, flows in self._groups.pop(group, {}).items():
            self._remove(dpid, flows)

    def _remove(self, dpid: int, flows: Iterable[Flow]) -> None:
        for flow in flows:
            if self._flows[dpid].get(flow_key(flow)) == flow:
                del self._flows[dpid][flow_key(flow)]
            self._touched[dpid].add(flow_key(flow))

    @property
    def pending(self) -> bool:
        """Whether entries were touched that nobody has taken yet."""
        return any(self._touched.values())

    def groups(self) -> list[Hashable]:
        """Return the names of all groups."""
        return list(self._groups)

    def of_switch(self, dpid: int) -> Mapping[FlowKey, Flow]:
        """Return all entries that a switch should have."""
        return self._flows[dpid]

    def take_changes(self) -> dict[int, set[FlowKey]]:
        """Return the keys touched since the last call, by dpid."""
        touched, self._touched = self._touched, defaultdict(set)
        return touched


FlowMods = list[tuple[FlowModCommand, Flow]]


def plan_flows(
    desired: Mapping[FlowKey, Flow], installed: Mapping[FlowKey, Flow], keys: Iterable[FlowKey] | None = None
) -> FlowMods:
    """Return the flow-mods that turn ``installed`` into ``desired``, for some keys or for all.

    What must go goes first, so that tables do not overflow; then later tables before earlier ones, so that no frame is
    sent on to a table that is not ready for it.
    """
    chosen = desired.keys() | installed.keys() if keys is None else set(keys)
    delete = [
        (FlowModCommand.DELETE_STRICT, installed[key]) for key in chosen if key in installed and key not in desired
    ]
    add = [
        (FlowModCommand.ADD, desired[key]) for key in chosen if key in desired and desired[key] != installed.get(key)
    ]
    add.sort(key=lambda mod: (-mod[1].table_id, -mod[1].priority))
    return delete + add
