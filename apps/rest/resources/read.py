"""The read-only resources: VLANs, VNs, ports, pairs and explanations, events, the loop, the progress of changes."""

from __future__ import annotations

import base64
from http import HTTPStatus
from typing import Any

import numpy as np
from flask import Response

from apps.rest.http import problems
from apps.rest.resources import lookup, views
from apps.rest.resources.pagination import make_cursor, read_cursor, stale
from apps.rest.resources.preconditions import with_etag
from apps.rest.resources.service import BAD_BODY, CHANGE, NOT_FOUND, Json, api, service
from apps.rest.schema import health, request_bodies, request_parameters, responses
from controller.columns import IntArray
from controller.errors import InvalidValueError
from controller.limits.overrides import VnName
from controller.whatif.recording import Recorder

# Explanations per pass of the hub: one may need a solution of the whole network.
_MAX_EXPLAINED = 100


@api.get("/health", responses={200: health.Health})
def get_health(query: request_parameters.NoQuery) -> Json:
    """Show whether the controller works and which switches are ready."""
    return service().health()


@api.get("/live", responses={200: health.Probe})
def get_live(query: request_parameters.NoQuery) -> Json:
    """Respond while the process serves requests: a liveness probe."""
    return {"status": "live"}


@api.get("/ready", responses={200: health.Probe})
def get_ready(query: request_parameters.NoQuery) -> Json:
    """Respond while this process can do its work, otherwise 503 with the reason.

    The state of switches does not count.
    """
    shown = service().health()
    faults = [f"{name}: {loop['fault']}" for name, loop in shown.get("loops", {}).items() if loop["fault"]]
    if (cluster := shown.get("cluster")) and cluster["etcd"]:
        faults.append(f"etcd: {cluster['etcd']}")
    if faults:
        raise problems.HttpRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "not-ready", "; ".join(faults))
    return {"status": "ready"}


@api.get("/revision", responses={200: health.Revision})
def get_revision(query: request_parameters.NoQuery) -> Json:
    """Show the last change, and the last one that the switches have confirmed."""
    here = service()
    return here.revision_status(here.settings.revision)


@api.get("/loop", responses={200: health.Loop, **NOT_FOUND})
def get_loop(query: request_parameters.LoopQuery) -> Json:
    """Show the durations of the last rounds of the control loop, and its missed deadlines."""
    rounds = service().loop(query.after)
    if rounds is None:
        raise problems.not_found("loop", "", "no control loop runs here")
    return rounds


@api.get("/vlans", responses={200: responses.Vlans})
def list_vlans(query: request_parameters.PageQuery) -> Json:
    """List the VLANs, by id."""
    here = service()
    key = read_cursor(query.cursor, int)
    vids = sorted(here.central.config.vlans)
    left = [vid for vid in vids if key is None or vid > key[0]]
    shown, more = left[: query.limit], len(left) > query.limit
    cursor = make_cursor(shown[-1]) if more else None
    shown_views = views.vlan_views(here, shown)
    return {"next": cursor, "vlans": shown_views, "revision": here.settings.revision}


@api.get("/vlans/<vlan_vid>", responses={200: responses.VlanView, **NOT_FOUND})
def get_vlan(path: request_parameters.VlanPath, query: request_parameters.NoQuery) -> Response:
    """Show a VLAN."""
    here = service()
    vid = lookup.vlan_vid(here.central, path.vlan_vid)
    return with_etag(views.vlan_views(here, [vid])[0], here.settings.vlan_revision(vid))


@api.get("/vns", responses={200: responses.Vns, **NOT_FOUND})
def list_vns(query: request_parameters.VnListQuery) -> Json:
    """List VNs with their limits and their state."""
    here = service()
    rows = lookup.vn_rows(here.central, query.given("vlan"), query.given("switch"))
    if query.violated:
        rows = rows[here.central.fabric.guarantees.violated[rows]]
    rows, more = _page_of_rows(rows, _row_behind(query.cursor), query.limit)
    cursor = make_cursor(*here.settings.file.names[rows[-1]]) if more else None
    return {"next": cursor, "vns": views.vn_views(here, rows), "revision": here.settings.revision}


@api.get("/vns/<vlan_vid>/<switch>/<port_no>", responses={200: responses.VnView, **NOT_FOUND})
def get_vn(path: request_parameters.VnPath, query: request_parameters.NoQuery) -> Response:
    """Show a VN with its limits and its state."""
    here = service()
    row = lookup.vn_row(here.central, path)
    return with_etag(views.vn_views(here, row)[0], here.settings.vn_revision(int(row[0])))


@api.get("/ports", responses={200: responses.Ports, **NOT_FOUND})
def list_ports(query: request_parameters.PortQuery) -> Json:
    """List the edge ports with the commitments of their VNs and their load."""
    central = service().central
    ports = lookup.ports(central, query.given("switch"), query.given("name"))
    key = read_cursor(query.cursor, str, int)
    if key is not None:
        names = [(switch.name, port.port_no) for switch, port in ports]
        if key not in names:
            raise stale(query.cursor)
        ports = ports[names.index(key) + 1 :]
    shown = ports[: query.limit]
    cursor = make_cursor(shown[-1][0].name, shown[-1][1].port_no) if len(ports) > query.limit else None
    return {"next": cursor, "ports": views.port_views(service(), shown)}


@api.get("/ports/<switch>/<port_no>", responses={200: responses.PortView, **NOT_FOUND})
def get_port(path: request_parameters.PortPath, query: request_parameters.NoQuery) -> Json:
    """Show an edge port."""
    here = service()
    return views.port_views(here, [lookup.port_of(here.central, path.switch, path.port_no)])[0]


@api.get("/pairs", responses={200: responses.Pairs, **NOT_FOUND})
def list_pairs(query: request_parameters.VnQuery) -> Json:
    """List the active pairs of VNs; a filter by switch is by the sender's."""
    here = service()
    central, entries = here.central, here.central.state.entries
    rows = lookup.pair_rows(central, query.given("vlan"), query.given("switch"))
    # The cursor is the last pair's VLAN, the sender's switch and port, and the receiver's. Pairs are in the order of
    # receivers, then senders.
    key = read_cursor(query.cursor, int, str, int, str, int)
    if key is not None:  # the pair itself may have aged: continue after its position
        receiver, sender = (here.settings.file.row_of.get(VnName(key[0], *end)) for end in (key[3:], key[1:3]))
        if receiver is None or sender is None:
            raise stale(query.cursor)
        behind = (entries.receiver > receiver) | ((entries.receiver == receiver) & (entries.sender > sender))
        rows = rows[behind[rows]]
    rows, more = _page_of_rows(rows, -1, query.limit)
    names = here.settings.file.names
    cursor = None
    if more:
        sender, receiver = names[entries.sender[rows[-1]]], names[entries.receiver[rows[-1]]]
        cursor = make_cursor(*sender, *receiver[1:])
    senders = lookup.vn_rows(central, query.given("vlan"), query.given("switch"))
    unmetered = views.unmetered_views(central, senders)  # all of them, on every page
    return {"next": cursor, "pairs": views.pair_views(central, rows), "unmetered_pairs": unmetered}


@api.get(
    "/pairs/<vlan_vid>/<sender_switch>/<sender_port_no>/<receiver_switch>/<receiver_port_no>/explanation",
    responses={200: responses.ExplanationView, **NOT_FOUND},
)
def explain_pair(path: request_parameters.PairPath, query: request_parameters.NoQuery) -> Json:
    """Show what binds a pair's limit, and what would bind it next."""
    central = service().central
    row = lookup.pair_row(central, path)
    return views.explanation_views(central, np.array([row], dtype=np.int64))[0]


@api.get("/vns/<vlan_vid>/<switch>/<port_no>/explanations", responses={200: responses.Explanations, **NOT_FOUND})
def explain_vn(path: request_parameters.VnPath, query: request_parameters.NoQuery) -> Json:
    """Show what binds the limits of the pairs with a VN as sender or receiver."""
    central = service().central
    rows = lookup.pairs_of_vn(central, int(lookup.vn_row(central, path)[0]))
    explained = views.explanation_views(central, rows[:_MAX_EXPLAINED])
    return {"explanations": explained, "pair_count": len(rows)}


@api.get("/events", responses={200: responses.Events, **NOT_FOUND})
def list_events(query: request_parameters.EventQuery) -> Json:
    """List events, oldest first."""
    here = service()
    switch, vlan = query.given("switch"), lookup.historic_vlan(here.central, query.given("vlan"))
    newer = [
        event
        for event in here.central.events.newer_than(query.after)
        if query.kind in (None, event.kind) and vlan in (None, event.vlan_vid) and switch in (None, event.switch)
    ][: query.limit]
    return {"events": views.event_views(here, newer), "last": here.central.events.last}


@api.get("/recording", responses={200: health.Recording})
def get_recording(query: request_parameters.NoQuery) -> Json:
    """Show whether the control intervals are being recorded."""
    return _recording_view(service().central.recorder)


@api.post("/recording", responses={200: health.Records, **BAD_BODY, 403: CHANGE[403]})
def change_recording(query: request_parameters.NoQuery, body: request_bodies.RecordingAction) -> Json:
    """Start to record the control intervals, drain the records, or stop. The controller keeps no file."""
    central = service().central
    recorder = central.recorder
    if body.action == "start":
        if not central.fabric.share.is_whole:
            reason = "is not possible: this node sees a part of the fabric (cluster.mode)"
            raise problems.invalid(InvalidValueError("action", "start", reason))
        if recorder is not None and not recorder.overrun:
            reason = "is not possible: a recording is under way; stop ends it, whoever began it"
            raise problems.invalid(InvalidValueError("action", "start", reason))
        central.recorder = Recorder()
        return {**_recording_view(central.recorder), "records": ""}
    if recorder is None:
        raise problems.invalid(InvalidValueError("action", body.action, "is not possible: nothing is being recorded"))
    if body.action == "stop":
        central.recorder = None
    shown = {**_recording_view(central.recorder), "overrun": recorder.overrun}
    return {**shown, "records": base64.b64encode(recorder.drain()).decode()}


def _recording_view(recorder: Recorder | None) -> dict[str, Any]:
    """Return the state of a recording as JSON; None: nothing is recorded."""
    overrun = recorder is not None and recorder.overrun
    return {"running": recorder is not None and not overrun, "overrun": overrun}


def _row_behind(cursor: str) -> int:
    """Return the row of the VN in a cursor, -1 without a cursor."""
    key = read_cursor(cursor, int, str, int)
    if key is None:
        return -1
    row = service().settings.file.row_of.get(VnName(*key))
    if row is None:
        raise stale(cursor)
    return row


def _page_of_rows(rows: IntArray, last: int, limit: int) -> tuple[IntArray, bool]:
    """Return the next ``limit`` of ascending rows after row ``last``, and whether there are more."""
    following = rows[np.searchsorted(rows, last, side="right") :]
    return following[:limit], len(following) > limit
