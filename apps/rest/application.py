"""The WSGI application of the REST interface: everything around the resources.

Requests run in the controller's own hub: one that has read its body runs to its end without giving way, so it sees one
state of the controller. Only a change gives way, while it is kept on the disk; changes are made one at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from flask import Response, current_app, g, request, stream_with_context
from flask_openapi3.models.info import Info
from flask_openapi3.openapi import OpenAPI
from pydantic import BaseModel, ValidationError

from apps.rest import page
from apps.rest.http import access, problems
from apps.rest.http.body import MAX_BODY_BYTES, MAX_LONG_BODY_BYTES, JsonRequest, StrictJson, check_body
from apps.rest.resources import change, history, show, stream
from apps.rest.resources.service import ANY, AtOnce, InForce, Json, Service, api, service
from apps.rest.schema import requests
from apps.settings.settings import Settings
from apps.settings.store import Store
from apps.settings.store_file import MEMORY
from apps.settings.tokens import Tokens
from controller.central.controller import CentralController
from controller.config.changes import ConfigChange
from controller.errors import InvalidValueError

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METRICS: Json = {"description": "text", "content": {_METRICS_TYPE: {"schema": {"type": "string"}}}}

__all__ = ["change", "create_app", "history", "show", "stream"]

_WITH_BODY = frozenset({"PATCH", "POST", "PUT"})
_WITHOUT_BODY = frozenset({"/v1/reload"})
_LONG_BODIES = frozenset({"/v1/limits", "/v1/import"})
_FIELDS = {
    model.__name__: tuple(field.alias or name for name, field in model.model_fields.items())
    for model in vars(requests).values()
    if isinstance(model, type) and issubclass(model, BaseModel)
}


def create_app(
    central: CentralController,
    clock: Callable[[], float],
    health: Callable[[], Json],
    after_change: Callable[[], None],
    loop: Callable[[int], Json] | None = None,
    *,
    settings: Settings | None = None,
    tokens: Tokens | None = None,
    in_force: InForce | None = None,
    sleep: Callable[[float], None] = time.sleep,
    metrics: Callable[[], Iterator[bytes]] | None = None,
    reload: Callable[..., list[ConfigChange]] | None = None,
    needs_if_match: bool = False,
    most_streams: int = 128,
) -> OpenAPI:
    """Return the WSGI application of the REST interface.

    ``clock`` gives the seconds that ``central`` counts in, ``health`` what ``/v1/health`` answers. ``after_change`` is
    called after each accepted change, to send what follows from it. When it fails the client is told (500), and the
    change stands. All of them are called in the thread that serves the request, which must be the one that runs
    ``central``. ``loop`` tells how the rounds of the control loop after one went, where there is such a loop.

    Without ``settings`` what is set is kept in memory; without ``tokens`` everybody may do everything. ``in_force``
    knows what the switches have confirmed. ``sleep`` lets others in the process run.
    """
    app = OpenAPI(
        "dets.rest",
        info=Info(title="DETS controller", version="1.0.0", description="Limits of virtual nodes, and their state."),
        # The library writes securitySchemes: null, which is not valid, unless it is given some.
        security_schemes={"token": {"type": "http", "scheme": "bearer"}},
        validation_error_model=problems.Problem,
        validation_error_callback=_refuse,
        doc_ui=False,
        static_folder=None,
    )
    app.json = StrictJson(app)
    app.request_class = JsonRequest
    # A redirect would not be a problem document, and a PATCH must not go anywhere but where it was sent.
    app.url_map.merge_slashes = False
    app.extensions["dets"] = Service(
        central=central,
        settings=settings or Settings(central, Store(MEMORY), clock),
        clock=clock,
        epoch_s=time.time() - clock(),
        health=health,
        after_change=after_change,
        loop=loop,
        in_force=in_force or AtOnce(),
        reload=reload,
        sleep=sleep,
        needs_if_match=needs_if_match,
        most_streams=most_streams,
    )
    problems.install(app)

    def check_request() -> None:
        access.refuse_pages_of_others(tokens)
        g.caller = access.identify(tokens)
        _check_request()

    app.before_request(check_request)
    app.after_request(_add_headers)
    app.register_api(api)
    app.get("/docs", summary="This interface as a page.", responses={200: page.RESPONSE, **ANY})(show_docs)
    if metrics is not None:
        about = "Metrics in Prometheus' text format, version 0.0.4."
        app.get("/metrics", summary=about, responses={200: _METRICS, **ANY})(show_metrics)
        app.extensions["dets.metrics"] = metrics
    app.extensions["dets.guarded"] = tokens is not None
    return app


@api.get("/openapi.json", responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}})
def get_openapi(query: requests.NoQuery) -> Json:
    """Return the description of this interface (OpenAPI 3.1)."""
    return _document()


def show_metrics(query: requests.NoQuery) -> Response:
    """Return the metrics, a piece at a time."""
    sleep = service().sleep

    def pieces() -> Iterator[bytes]:
        for piece in current_app.extensions["dets.metrics"]():
            yield piece
            sleep(0.0)

    return Response(stream_with_context(pieces()), mimetype=None, content_type=_METRICS_TYPE)


def show_docs(query: requests.NoQuery) -> Response:
    """Show the description of this interface to people."""
    return page.response(_document())


def _document() -> Json:
    document = cast(OpenAPI, current_app).api_doc
    if current_app.extensions["dets.guarded"] and "security" not in document:
        document["security"] = [{"token": []}]
        for path in access.OPEN:
            document["paths"][path]["get"]["security"] = []
    return cast(Json, document)


def _refuse(error: ValidationError) -> Response:
    return problems.of_validation(error, _FIELDS).response()


def _check_request() -> None:
    if request.routing_exception is not None:
        return
    for name, values in request.args.lists():
        if len(values) > 1:
            raise problems.invalid(InvalidValueError(name, values, "is given more than once"))
    if request.method in _WITH_BODY and request.path not in _WITHOUT_BODY:
        most_bytes = MAX_LONG_BODY_BYTES if request.path in _LONG_BODIES else MAX_BODY_BYTES
        check_body(cast(JsonRequest, request), most_bytes, lambda: service().sleep(0.0))


def _add_headers(response: Response) -> Any:
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
