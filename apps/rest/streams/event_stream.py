"""Live state and events as Server-Sent Events.

A state is built and serialized once for all clients with equal parameters. A slow client skips states: whenever it is
ready to receive, it gets the present state, and no states wait for it.
"""

from __future__ import annotations

import json as plain_json
import math
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from urllib.parse import urlencode

from flask import Response, current_app, json, request

from apps.rest.http.problems import HttpRefusedError, invalid
from apps.rest.resources import lookup, views
from apps.rest.resources.service import NOT_FOUND, Json, Service, api, service
from apps.rest.schema import request_parameters
from apps.rest.streams.column_state import Columns, keys_of, state_of
from controller.errors import InvalidValueError
from controller.events import Event

_MAX_VNS = 1000
# Clients that request the same state within this time get the same bytes.
_FRESH_S = 0.2
_MAX_EVENT_FRAMES = 1000
_STREAM = {
    "description": "events `keys` and `state` (live state), and `event` (as in /v1/events, its number as id)",
    "content": {
        "text/event-stream": {
            "schema": {
                "type": "object",
                "description": "one event",
                "properties": {"event": {"type": "string"}, "data": {"type": "string"}, "id": {"type": "string"}},
                "required": ["event", "data"],
            }
        }
    },
}


@api.get("/stream", responses={200: _STREAM, **NOT_FOUND})
def follow_stream(query: request_parameters.StreamQuery) -> Response:
    """Follow the live state and the events, as Server-Sent Events.

    Without a filter the state has a row per VLAN with sums over its VNs, otherwise one per VN. ``Last-Event-ID``
    resumes the events after that number.
    """
    here = service()
    vlan, switch = query.given("vlan"), query.given("switch")
    if vlan is not None:
        vlan = str(lookup.vlan_vid(here.central, vlan, "vlan"))  # a stream keeps its VLAN when the name changes
    rows = None if vlan is None and switch is None else lookup.vn_rows(here.central, vlan, switch)
    if rows is not None and len(rows) > _MAX_VNS:
        reason = f"picks {len(rows)} VNs, and a stream shows at most {_MAX_VNS}: give vlan and switch"
        raise invalid(InvalidValueError("vlan" if vlan is not None else "switch", vlan or switch, reason))
    streams: Streams = current_app.extensions["dets.streams"]
    if streams.open >= streams.most:
        detail = f"{streams.open} streams are open already, the most there may be"
        raise HttpRefusedError(
            HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", detail, headers={"Retry-After": "10"}
        )
    last = request.headers.get("Last-Event-ID", "")
    after = int(last) if last.isascii() and last.isdecimal() and len(last) < 19 else None
    receiver = query.given("pairs_of")
    if receiver is not None and rows is None:
        raise invalid(InvalidValueError("pairs_of", receiver, "needs vlan or switch"))
    if receiver is not None:
        lookup.vn_row_of(here.central, receiver, "pairs_of")
    picked = Columns(vlan, switch, receiver)
    follower = _StreamClient(
        streams, picked, query.interval_ms / 1e3, query.count, after, here.remote_nodes.forwarded_headers()
    )
    return Response(follower, mimetype="text/event-stream", headers={"X-Accel-Buffering": "no"})


class Streams:
    """What all streams share: the number of open ones, and events that are serialized once for all clients."""

    def __init__(self, service: Service, max_streams: int) -> None:
        self.here, self.most, self.open = service, max_streams, 0
        # By contents, and whether other nodes take part: when the state was made, and the state as an event.
        self._states: dict[tuple[Columns, bool], tuple[float, bytes]] = {}
        self._being_made: set[tuple[Columns, bool]] = set()
        self._events: dict[int, bytes] = {}  # by number
        self._named: tuple[object, ...] = ()  # what ``named`` returned for ``_states``

    def event(self, event: Event) -> bytes:
        """Return an event of the controller as a Server-Sent Event, serialized once for all clients."""
        frame = self._events.get(event.number)
        if frame is None:
            if len(self._events) >= _MAX_EVENT_FRAMES:
                self._events.clear()
            text = json.dumps(views.event_views(self.here, [event])[0])
            frame = self._events[event.number] = f"id: {event.number}\nevent: event\ndata: {text}\n\n".encode()
        return frame

    def state(self, picked: Columns, headers: Mapping[str, str] | None) -> bytes:
        """Return the state as a Server-Sent Event, at most _FRESH_S old.

        ``headers`` are those of requests to other nodes; without them it is this node's state only. While one client
        waits for other nodes, others get the previous state.
        """
        here, now_s = self.here, self.here.clock()
        if not _same(self._named, named := self.named()):
            self._states, self._named = {}, named
        key = picked, headers is not None
        made_s, frame = self._states.get(key, (-math.inf, b""))
        if now_s - made_s < _FRESH_S or (frame and key in self._being_made):  # an old state is better than a wait
            return frame
        state = state_of(here, picked)
        if headers is not None:
            self._being_made.add(key)
            try:
                state = here.remote_nodes.whole(here, state, _target(picked), headers)
            finally:
                self._being_made.discard(key)
        frame = b"event: state\ndata: " + _compact(state) + b"\n\n"
        made = self._states.items()
        self._states = {key: kept for key, kept in made if now_s - kept[0] < _FRESH_S or key in self._being_made}
        self._states[key] = here.clock(), frame
        return frame

    def named(self) -> tuple[object, ...]:
        """Return the objects on which the keys of rows depend: new ones after a change of configuration or links."""
        return self.here.central.fabric, self.here.observer.links.up

    def keys(self, picked: Columns) -> bytes:
        """Return the keys of a stream of columns, as an event."""
        return b"event: keys\ndata: " + _compact(keys_of(self.here, picked)) + b"\n\n"


def _same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    """Return whether two tuples consist of the same objects; equal objects do not suffice."""
    return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))


def _target(picked: Columns) -> str:
    """Return the target of requests to other nodes for one state."""
    query = {key: part for key, part in picked._asdict().items() if part is not None}
    return "/v1/stream?" + urlencode({"count": 1, **query})


def _compact(state: Json) -> bytes:
    return plain_json.dumps(state, separators=(",", ":")).encode()


class _StreamClient:
    """The stream of one client, as an iterator of bytes. It counts as open until the server calls ``close``.

    It ends after ``max_states`` states. Its events begin after the number ``after``; None: with the next new event.
    ``forwarded_headers`` are those of ``Streams.state``.
    """

    def __init__(
        self,
        streams: Streams,
        picked: Columns,
        interval_s: float,
        max_states: int,
        after: int | None,
        forwarded_headers: Mapping[str, str] | None,
    ) -> None:
        self._streams, self._picked, self._interval_s, self._states_left = streams, picked, interval_s, max_states
        self._forwarded_headers = forwarded_headers
        self._after = after if after is not None else streams.here.central.events.last
        self._due_s = streams.here.clock()
        self._open = True
        self._named: tuple[object, ...] = ()  # Streams.named() when the keys were last sent
        streams.open += 1

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Wait for the client's interval; return the events since the last call, new keys if any, and the state."""
        here = self._streams.here
        if not self._states_left:
            raise StopIteration
        wait_s = self._due_s - here.clock()
        if wait_s > 0.0:
            here.sleep(wait_s)
        self._due_s = max(self._due_s + self._interval_s, here.clock())
        self._states_left -= 1
        try:
            return self._events() + self._new_keys() + self._streams.state(self._picked, self._forwarded_headers)
        except HttpRefusedError:  # the new configuration lacks the selected VLAN or switch
            raise StopIteration from None

    def close(self) -> None:
        """Close the stream."""
        if self._open:
            self._open = False
            self._streams.open -= 1

    def _new_keys(self) -> bytes:
        """Return new keys if the configuration or the links have changed."""
        if _same(self._named, now := self._streams.named()):
            return b""
        self._named = now
        return self._streams.keys(self._picked)

    def _events(self) -> bytes:
        """Return the events since the last call."""
        events = self._streams.here.central.events.newer_than(self._after)
        if not events:
            return b""
        self._after = events[-1].number
        return b"".join(map(self._streams.event, events))
