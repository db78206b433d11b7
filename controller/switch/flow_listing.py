"""The flow entries that a switch lists, kept so that listing them again costs only what has changed."""

from __future__ import annotations

from collections.abc import Callable

from controller.forwarding.desired_flows import FlowKey, flow_key
from controller.openflow.buffers import Buffer
from controller.openflow.flows import Flow, UnknownFlow, decode_entry, list_entries
from controller.switch.adoption import is_own

# So many entries are compared, or decoded, before others in the process get their turn.
_LISTED_AT_ONCE, _DECODED_AT_ONCE = 2_000, 250
# So many entries of so many bytes are remembered for other switches: one for each host of a large fabric.
MOST_SHARED, SHARED_BYTES = 50_000, 200


class SharedEntries:
    """Entries that many switches hold alike, each kept and decoded once: those that name neither port nor meter.

    Every switch has an entry for every host of its VLANs, so that 200 switches with 3,200 hosts hold 640,000 of them.
    What switches list may be anything: once there are MOST_SHARED, all are forgotten.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[bytes, Flow | UnknownFlow]] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._known)

    def decode(self, raw: bytes) -> tuple[bytes, Flow | UnknownFlow]:
        """Return the same bytes and what they mean; raises ProtocolError when malformed."""
        known = self._known.get(raw)
        if known is None:
            known = raw, decode_entry(raw)
            flow = known[1]
            if len(raw) <= SHARED_BYTES and is_own(flow) and flow.meter_id is None and flow.match.in_port is None:
                if len(self._known) >= MOST_SHARED:
                    self._known.clear()
                self._known[raw] = known
        return known


class FlowListing:
    """What a switch said last of its entries; ``own`` are those of the controller, by key.

    Thousands of entries are compared as bytes, in a set, and only what came or went is decoded. ``shared`` is that of
    all switches.
    """

    def __init__(self, shared: SharedEntries) -> None:
        self._shared = shared
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
            same, flow = self._shared.decode(raw)
            came[same] = flow
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
