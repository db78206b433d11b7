"""The WSGI application of the REST interface: everything around the resources.

Requests run in the controller's own hub: after its body is read, a request runs to its end without yielding, so it sees
one state of the controller. Only a change yields, while it is stored on the disk; changes are made one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, cast

from flask import Response, current_app, g, request, stream_with_context
from flask_openapi3.models.info import Info
from pydantic import BaseModel, ValidationError

from apps.rest import api_page
from apps.rest.http import access, problems
from apps.rest.http.access import TokenStore
from apps.rest.http.body import MAX_BODY_BYTES, MAX_LONG_BODY_BYTES, JsonRequest, StrictJson, check_body
from apps.rest.http.deferred_description import DescribedApi
from apps.rest.http.problems import HttpRefusedError
from apps.rest.resources import change, fabric, history, hosts, lookup, read, series
from apps.rest.resources.service import ANY, Json, Service, api, operation_id, service
from apps.rest.schema import request_bodies, request_parameters
from apps.rest.schema.openapi_document import in_openapi_3_0, mark_wide_integers
from apps.rest.streams import event_stream
from controller.errors import InvalidValueError
from controller.rooms import is_installed, room

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METRICS: Json = {"description": "text", "content": {_METRICS_TYPE: {"schema": {"type": "string"}}}}

__all__ = ["change", "create_app", "event_stream", "fabric", "history", "hosts", "read", "series"]

_WITH_BODY = frozenset({"PATCH", "POST", "PUT"})
_WITHOUT_BODY = frozenset({"/v1/reload", "/v1/history/<revision>/undo"})  # rules
_LONG_BODIES = frozenset({"/v1/limits", "/v1/import"})
_MAX_PARAMETERS = 64  # of a query
_FIELDS = {
    model.__name__: tuple(field.alias or name for name, field in model.model_fields.items())
    for model in (vars(request_parameters) | vars(request_bodies)).values()
    if isinstance(model, type) and issubclass(model, BaseModel)
}


def create_app(
    running: Service, tokens: TokenStore | None = None, most_streams: int = 128, with_page: bool = True
) -> DescribedApi:
    """Return the WSGI application of the REST interface to a controller.

    Without ``tokens`` all clients have full access. At most ``most_streams`` clients follow the state at a time.
    ``with_page`` serves the web UI at ``/ui``.
    """
    app = DescribedApi(
        "dets.rest",
        info=Info(title="DETS controller", version="1.0.0", description="Limits of virtual nodes, and their state."),
        # The library writes securitySchemes: null, which is invalid, if there are none.
        security_schemes={"token": {"type": "http", "scheme": "bearer"}},
        validation_error_model=problems.Problem,
        operation_id_callback=operation_id,
        validation_error_callback=_refuse,
        doc_ui=False,
        static_folder=None,
    )
    app.json = StrictJson(app)
    app.request_class = JsonRequest
    # A redirect would not be a problem document, and a PATCH must not be redirected.
    app.url_map.merge_slashes = False
    app.extensions["dets"] = running
    app.extensions["dets.streams"] = event_stream.Streams(running, most_streams)
    app.extensions["dets.guarded"] = tokens is not None
    problems.install(app)

    def check_request() -> Response | None:
        access.reject_cross_origin(tokens)
        g.caller, g.scope = access.identify(tokens)
        _check_request()
        return running.remote_nodes.forwarded()

    app.before_request(check_request)
    app.after_request(lambda response: running.remote_nodes.completed(response))
    app.after_request(_add_headers)
    app.register_api(api)
    app.get("/docs", summary="This interface as a page.", responses={200: api_page.RESPONSE, **ANY})(show_docs)
    if with_page and is_installed("ui"):
        room("ui").add_to(app)
    about = "Metrics in Prometheus' text format, version 0.0.4."
    app.get("/metrics", summary=about, responses={200: _METRICS, **ANY})(show_metrics)
    return app


@api.get("/openapi.json", responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}})
def get_openapi(query: request_parameters.OpenapiQuery) -> Json:
    """Return the description of this interface (OpenAPI 3.1, or 3.0 with ``version=3.0``)."""
    servers = {"servers": [{"url": request.script_root}]} if request.script_root else {}
    return {**(in_openapi_3_0(_document()) if query.version == "3.0" else _document()), **servers}


def show_metrics(query: request_parameters.MetricsQuery) -> Response:
    """Return the metrics, in parts; with ``name[]`` only those of these names, as client libraries do."""
    here, names = service(), frozenset(name.encode() for name in query.names)

    def parts() -> Iterator[bytes]:
        for part in here.metrics():
            yield _samples_of(part, names) if names else part
            here.sleep(0.0)  # lets other greenlets run

    return Response(stream_with_context(parts()), mimetype=None, content_type=_METRICS_TYPE)


def _samples_of(part: bytes, names: frozenset[bytes]) -> bytes:
    """Return the samples of these names, without their description lines."""
    return b"".join(line for line in part.splitlines(keepends=True) if re.split(rb"[{ ]", line, maxsplit=1)[0] in names)


def show_docs(query: request_parameters.NoQuery) -> Response:
    """Show the description of this interface to people."""
    return api_page.response(_document())


def _document() -> Json:
    """Return the OpenAPI document. The first call describes all operations, and adds security and tags."""
    app = cast(DescribedApi, current_app)
    app.describe_all(api, lambda: service().sleep(0.0))
    document = app.api_doc
    if "security" not in document:
        document["security"] = [{"token": []}] if current_app.extensions["dets.guarded"] else [{}, {"token": []}]
        for path in access.OPEN & document["paths"].keys():
            document["paths"][path]["get"]["security"] = []
        for path, item in document["paths"].items():
            for operation in item.values():
                operation["tags"] = [path.removeprefix("/v1/").strip("/").partition("/")[0].removesuffix(".json")]
        tags = sorted({tag for item in document["paths"].values() for verb in item.values() for tag in verb["tags"]})
        document["tags"] = [{"name": tag} for tag in tags]
        mark_wide_integers(document)
    return cast(Json, document)


def _refuse(error: ValidationError) -> Response:
    """Return the response to invalid parameters or an invalid body; HttpRefusedError (404) for an unknown resource."""
    if request.method in _WITH_BODY:
        lookup.check_path(service().central, request.view_args or {})
    return problems.problem_from_validation(error, _FIELDS).response()


def _check_request() -> None:
    """Raise HttpRefusedError for a path with empty parts, a repeated parameter, too many parameters or a bad body."""
    path = str(request.environ["REQUEST_URI"]).partition("?")[0]
    if "//" in path or "%2f" in path.lower():
        rule = "the parts of a path are not empty and hold no slash, nor %2F for one"
        detail = f"there is nothing at {path[:100]}: {rule}; /v1/openapi.json lists what there is"
        raise HttpRefusedError(HTTPStatus.NOT_FOUND, "not-found", detail)
    if request.routing_exception is not None:
        return
    if (count := request.query_string.count(b"&") + 1) > _MAX_PARAMETERS:
        raise problems.invalid(InvalidValueError("query", count, f"are more parameters than {_MAX_PARAMETERS}"))
    for name, values in request.args.lists():
        if len(values) > 1 and request.path != "/metrics":
            raise problems.invalid(InvalidValueError(name, values, "is given more than once"))
    if request.method in _WITH_BODY and str(request.url_rule) not in _WITHOUT_BODY:
        max_bytes = MAX_LONG_BODY_BYTES if request.path in _LONG_BODIES else MAX_BODY_BYTES
        check_body(cast(JsonRequest, request), max_bytes, lambda: service().sleep(0.0))


def _add_headers(response: Response) -> Any:
    """Forbid caches and guesses of the content type."""
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
