"""The resources under ``/v1`` and the WSGI application that serves them.

Requests run in the controller's own hub: one that has read its body runs to its end without giving way, so it sees one
state of the controller, and a change is made as a whole or not at all.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from flask import Response, current_app, request
from flask_openapi3.blueprint import APIBlueprint
from flask_openapi3.models.info import Info
from flask_openapi3.openapi import OpenAPI
from pydantic import BaseModel, ValidationError

from apps.rest import lookup, models, problems, representation
from apps.rest.body import MAX_BODY_BYTES, MAX_READ_BYTES, StrictJson, check_body
from controller.algorithms import make_any_algorithm
from controller.central import CentralController
from controller.errors import InvalidValueError
from controller.policies import Policy
from controller.recording import Recorder

Json = dict[str, Any]
Responses = dict[str | int, type[BaseModel] | Json | None]

# The hub waits for one answer to end, and an explanation may take a solution of the whole network.
_MOST_EXPLAINED = 100
_CHANGING = frozenset({"PATCH", "POST", "PUT"})
_REQUESTS: tuple[type[BaseModel], ...] = (
    models.NoQuery,
    models.VnQuery,
    models.EventQuery,
    models.VlanPatch,
    models.VnPatch,
    models.RecordingAction,
)
_SHADOW = {"shadow", "shadow_parameters"}
_FIELDS = {model.__name__: tuple(model.model_fields) for model in _REQUESTS}


def _problem(description: str) -> Json:
    schema = {"$ref": f"#/components/schemas/{problems.Problem.__name__}"}
    return {"description": description, "content": {problems.MIME_TYPE: {"schema": schema}}}


_REFUSED: Responses = {422: _problem("a value is not acceptable"), 500: _problem("the controller failed")}
_NOT_FOUND: Responses = {404: _problem("there is no such thing; the answer says what there is")}
_BAD_BODY: Responses = {
    400: _problem("the body is not JSON"),
    413: _problem(f"the body is longer than {MAX_BODY_BYTES} bytes"),
    415: _problem("the body is not application/json"),
}

api = APIBlueprint("v1", __name__, url_prefix="/v1", abp_responses=_REFUSED)


@dataclass(frozen=True)
class Service:
    """What the resources work on."""

    central: CentralController
    clock: Callable[[], float]
    health: Callable[[], Json]
    after_change: Callable[[], None]
    loop: Callable[[int], Json] | None


def create_app(
    central: CentralController,
    clock: Callable[[], float],
    health: Callable[[], Json],
    after_change: Callable[[], None],
    loop: Callable[[int], Json] | None = None,
) -> OpenAPI:
    """Return the WSGI application of the REST interface.

    ``clock`` gives the seconds that ``central`` counts in, ``health`` what ``/v1/health`` answers. ``after_change`` is
    called after each accepted change, to send what follows from it. When it fails the client is told (500), and the
    change stands. All of them are called in the thread that serves the request, which must be the one that runs
    ``central``. ``loop`` tells how the rounds of the control loop after one went, where there is such a loop.
    """
    app = OpenAPI(
        "dets.rest",
        info=Info(title="DETS controller", version="1.0.0", description="Limits of virtual nodes, and their state."),
        # The library writes securitySchemes: null, which is not valid, unless it is given some.
        security_schemes={},
        validation_error_model=problems.Problem,
        validation_error_callback=_refuse,
        doc_ui=False,
        static_folder=None,
    )
    app.json = StrictJson(app)
    app.config["MAX_CONTENT_LENGTH"] = MAX_READ_BYTES
    # A redirect would not be a problem document, and a PATCH must not go anywhere but where it was sent.
    app.url_map.merge_slashes = False
    app.extensions["dets"] = Service(central, clock, health, after_change, loop)
    problems.install(app)
    app.before_request(_check_request)
    app.after_request(_add_headers)
    app.register_api(api)
    return app


# -- the resources


@api.get("/health", responses={200: models.Health})
def get_health(query: models.NoQuery) -> Json:
    """Tell whether the controller works and which switches are ready."""
    return _service().health()


@api.get("/loop", responses={200: models.Loop, **_NOT_FOUND})
def get_loop(query: models.LoopQuery) -> Json:
    """Tell how long the last rounds of the control loop took, and what it missed."""
    loop = _service().loop
    if loop is None:
        raise problems.not_found("loop", "", "no control loop runs here")
    return loop(query.after)


@api.get("/vlans", responses={200: models.Vlans})
def list_vlans(query: models.NoQuery) -> Json:
    """List the VLANs."""
    central = _service().central
    return {"vlans": representation.vlan_views(central, list(central.config.vlans))}


@api.get("/vlans/<vlan_vid>", responses={200: models.VlanView, **_NOT_FOUND})
def get_vlan(path: models.VlanPath, query: models.NoQuery) -> Json:
    """Show a VLAN."""
    central = _service().central
    return representation.vlan_views(central, [lookup.vlan_vid(central, path.vlan_vid)])[0]


@api.patch("/vlans/<vlan_vid>", responses={200: models.VlanView, **_NOT_FOUND, **_BAD_BODY})
def change_vlan(path: models.VlanPath, query: models.NoQuery, body: models.VlanPatch) -> Json:
    """Change a VLAN's algorithm, its parameters or its shadow, from the next control interval on: all, or none."""
    service = _service()
    vid = lookup.vlan_vid(service.central, path.vlan_vid)
    policy = service.central.policies[vid]
    given = body.given()
    shadow = _new_shadow(service.central.shadow.policies.get(vid), given)
    name = given.get("algorithm", policy.algorithm)
    kept = policy.parameters if name == policy.algorithm else {}
    with problems.refusing_bad_values():
        if shadow is not None:
            make_any_algorithm(shadow.algorithm, shadow.parameters, key="shadow", parameters_key="shadow_parameters")
        elif given.get("shadow_parameters"):
            raise InvalidValueError("shadow_parameters", given["shadow_parameters"], "stands without a shadow")
        if given.keys() - _SHADOW:
            service.central.set_algorithm(vid, name, given.get("parameters", kept), service.clock())
        if given.keys() & _SHADOW:
            service.central.set_shadow(vid, shadow, service.clock())
    view = representation.vlan_views(service.central, [vid])[0]
    service.after_change()
    return view


@api.get("/vns", responses={200: models.Vns, **_NOT_FOUND})
def list_vns(query: models.VnQuery) -> Json:
    """List VNs with their limits and their state."""
    central = _service().central
    rows = lookup.vn_rows(central, query.given("vlan"), query.given("switch"))
    return {"vns": representation.vn_views(central, rows)}


@api.get("/vns/<vlan_vid>/<switch>/<port_no>", responses={200: models.VnView, **_NOT_FOUND})
def get_vn(path: models.VnPath, query: models.NoQuery) -> Json:
    """Show a VN with its limits and its state."""
    central = _service().central
    return representation.vn_views(central, lookup.vn_row(central, path))[0]


@api.patch("/vns/<vlan_vid>/<switch>/<port_no>", responses={200: models.VnView, **_NOT_FOUND, **_BAD_BODY})
def change_vn(path: models.VnPath, query: models.NoQuery, body: models.VnPatch) -> Json:
    """Change a VN's limits, from the next control interval on: all that are given, or none."""
    service = _service()
    row = lookup.vn_row(service.central, path)
    with problems.refusing_bad_values():
        service.central.set_limits(int(row[0]), service.clock(), **body.given())
    view = representation.vn_views(service.central, row)[0]
    service.after_change()
    return view


@api.get("/ports", responses={200: models.Ports})
def list_ports(query: models.NoQuery) -> Json:
    """List the edge ports with what their VNs may use of them and what they carry."""
    return {"ports": representation.port_views(_service().central)}


@api.get("/entries", responses={200: models.Entries, **_NOT_FOUND})
def list_entries(query: models.VnQuery) -> Json:
    """List the pairs of VNs that talk; a filter by switch is by the sender's."""
    central = _service().central
    rows = lookup.entry_rows(central, query.given("vlan"), query.given("switch"))
    return {"entries": representation.entry_views(central, rows)}


@api.get(
    "/entries/<vlan_vid>/<sender_switch>/<sender_port_no>/<receiver_switch>/<receiver_port_no>/explanation",
    responses={200: models.ExplanationView, **_NOT_FOUND},
)
def explain_entry(path: models.EntryPath, query: models.NoQuery) -> Json:
    """Tell what binds an entry's limit, and what would bind it next."""
    central = _service().central
    row = lookup.entry_row(central, path)
    return representation.explanation_views(central, np.array([row], dtype=np.int64))[0]


@api.get("/vns/<vlan_vid>/<switch>/<port_no>/explanations", responses={200: models.Explanations, **_NOT_FOUND})
def explain_vn(path: models.VnPath, query: models.NoQuery) -> Json:
    """Tell what binds the limits of the entries of which a VN is the sender or the receiver."""
    central = _service().central
    rows = lookup.entries_of(central, int(lookup.vn_row(central, path)[0]))
    explained = representation.explanation_views(central, rows[:_MOST_EXPLAINED])
    return {"explanations": explained, "entries": len(rows)}


@api.get("/events", responses={200: models.Events})
def list_events(query: models.EventQuery) -> Json:
    """List what happened."""
    events = _service().central.events.after(0)
    newer = [event for event in events if event.number > query.after]
    return {"events": representation.event_views(newer), "last": events[-1].number if events else 0}


@api.get("/recording", responses={200: models.Recording})
def get_recording(query: models.NoQuery) -> Json:
    """Tell whether the control intervals are being recorded."""
    return _recording_view(_service().central.recorder)


@api.post("/recording", responses={200: models.Records, **_BAD_BODY})
def change_recording(query: models.NoQuery, body: models.RecordingAction) -> Json:
    """Start to record the control intervals, take what was recorded, or stop. The controller keeps no file."""
    central = _service().central
    recorder = central.recorder
    if body.action == "start":
        if recorder is not None and not recorder.overrun:
            raise problems.invalid(InvalidValueError("action", "start", "is not possible: a recording is under way"))
        central.recorder = Recorder()
        return {**_recording_view(central.recorder), "records": ""}
    if recorder is None:
        raise problems.invalid(InvalidValueError("action", body.action, "is not possible: nothing is being recorded"))
    if body.action == "stop":
        central.recorder = None
    shown = {**_recording_view(central.recorder), "overrun": recorder.overrun}
    return {**shown, "records": base64.b64encode(recorder.take()).decode()}


@api.get("/openapi.json", responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}})
def get_openapi(query: models.NoQuery) -> Json:
    """Return the description of this interface (OpenAPI 3.1)."""
    return cast(Json, cast(OpenAPI, current_app).api_doc)


# -- around the resources


def _new_shadow(before: Policy | None, given: Json) -> Policy | None:
    """Return the shadow that a VLAN is to have; another one starts with its default parameters unless told."""
    name = given.get("shadow", before.algorithm if before else None)
    if name is None:
        return None
    kept = before.parameters if before is not None and name == before.algorithm else {}
    return Policy(name, given.get("shadow_parameters", kept))


def _recording_view(recorder: Recorder | None) -> Json:
    overrun = recorder is not None and recorder.overrun
    return {"running": recorder is not None and not overrun, "overrun": overrun}


def _service() -> Service:
    return cast(Service, current_app.extensions["dets"])


def _refuse(error: ValidationError) -> Response:
    return problems.of_validation(error, _FIELDS).response()


def _check_request() -> None:
    if request.routing_exception is not None:
        return
    for name, values in request.args.lists():
        if len(values) > 1:
            raise problems.invalid(InvalidValueError(name, values, "is given more than once"))
    if request.method in _CHANGING:
        check_body(request)


def _add_headers(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
