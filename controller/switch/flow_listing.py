"""The flow entries that a switch lists, kept so that listing them again costs only what has changed."""

from __future__ import annotations

from collections.abc import Callable

from controller.forwarding.desired_flows import FlowKey, flow_key
from controller.openflow.buffers import Buffer
from controller.openflow.flows import Flow, UnknownFlow, decode_entry, list_entries
from controller.switch.adoption import is_own

# So many entries are compared, or decoded, before others in the process get their turn.
_LISTED_AT_ONCE, _DECODED_AT_ONCE = 2_000, 250


class FlowListing:
    """What a switch said last of its entries; ``own`` are those of the controller, by key.

    Thousands of entries are compared as bytes, in a set, and only what came or went is decoded.
    """

    def __init__(self) -> None:
        self.own: dict[FlowKey, Flow] = {}
        self._entries: dict[bytes, Flow | UnknownFlow] = {}

    @property
    def flows(self) -> list[Flow | UnknownFlow]:
        """All entries, those of others too."""
        return list(self._entries.values())

    def read(self, body: Buffer, breathe: Callable[[], None] = lambda: None) -> set[FlowKey]:
        """Take the body of a flow-stats reply; return the keys of own entries that came, went or are others now.

        ``breathe`` lets others in the process run, before anything is taken. Raises ProtocolError when malformed, with
        nothing taken.
        """
        listed: set[bytes] = set()
        new: list[bytes] = []
        for raw in list_entries(body):
            if raw not in listed and raw not in self._entries:
                new.append(raw)
            listed.add(raw)
            if len(listed) % _LISTED_AT_ONCE == 0:
                breathe()
        came: dict[bytes, Flow | UnknownFlow] = {}
        own: dict[FlowKey, Flow] = {}
        for raw in new:
            flow = came[raw] = decode_entry(raw)
            if is_own(flow):
                own[flow_key(flow)] = flow
            if len(came) % _DECODED_AT_ONCE == 0:
                breathe()
        changed = set()
        some_went = len(listed) - len(new) < len(self._entries)
        for raw in self._entries.keys() - listed if some_went else ():
            flow = self._entries.pop(raw)
            if is_own(flow):
                changed.add(flow_key(flow))
        for key in changed:
            self.own.pop(key, None)
        self._entries.update(came)
        self.own.update(own)
        return changed | own.keys()
