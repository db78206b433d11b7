"""What the resources work on, and the blueprint that they stand on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from flask import current_app, g
from flask_openapi3.blueprint import APIBlueprint
from pydantic import BaseModel

from apps.rest.http import problems
from apps.rest.http.body import MAX_BODY_BYTES
from apps.settings.settings import Caller, Settings
from controller.central.controller import CentralController
from controller.columns import FloatArray
from controller.config.changes import ConfigChange

Json = dict[str, Any]
Responses = dict[str | int, type[BaseModel] | Json | None]


class InForce(Protocol):
    """Knows which changes the switches have confirmed."""

    def changed(self, revision: int) -> None:
        """A change was made."""

    def view(self, revision: int) -> Json:
        """Return what ``models.Revision`` has; ``revision`` is the last change."""


class AtOnce:
    """Where no switches are driven: what is set is in force."""

    def changed(self, revision: int) -> None:
        """A change was made."""

    def view(self, revision: int) -> Json:
        """Return what ``models.Revision`` has."""
        return {"revision": revision, "installed_revision": revision, "waiting": [], "missing": []}


@dataclass
class Service:
    """What the resources work on. ``clock`` + ``epoch_s`` is the time of day in seconds since 1970."""

    central: CentralController
    settings: Settings
    clock: Callable[[], float]
    epoch_s: float
    health: Callable[[], Json]
    after_change: Callable[[], None]
    loop: Callable[[int], Json] | None
    in_force: InForce
    reload: Callable[..., list[ConfigChange]] | None
    sleep: Callable[[float], None]
    needs_if_match: bool
    most_streams: int
    streams: int = 0
    frames: dict[Any, Any] = field(default_factory=dict)
    columns: tuple[float, Any, list[FloatArray]] = (-math.inf, None, [])
    event_frames: dict[int, bytes] = field(default_factory=dict)


def service() -> Service:
    """Return what the application of the request works on."""
    return cast(Service, current_app.extensions["dets"])


def caller() -> Caller:
    """Return who sent the request."""
    return cast(Caller, g.caller)


def problem_response(description: str) -> Json:
    """Return the description of an answer that is a problem document."""
    schema = {"$ref": f"#/components/schemas/{problems.Problem.__name__}"}
    return {"description": description, "content": {problems.MIME_TYPE: {"schema": schema}}}


ANY: Responses = {
    401: problem_response("a token is needed, and none or an unknown one was given"),
    408: problem_response("the request did not come in time"),
    421: problem_response("without tokens only requests to localhost are served"),
    422: problem_response("a value is not acceptable"),
    429: problem_response("too many requests; Retry-After says when there is room again"),
    500: problem_response("the controller failed"),
    503: problem_response("too many connections, or the store cannot be used; nothing has changed"),
}
NOT_FOUND: Responses = {404: problem_response("there is no such thing; the answer says what there is")}
CHANGE: Responses = {
    403: problem_response("the token may only read, or a page of another site asks"),
    412: problem_response("If-Match: it was changed since"),
    428: problem_response("If-Match is needed"),
}
BAD_BODY: Responses = {
    400: problem_response("the body is not JSON"),
    413: problem_response(f"the body is longer than {MAX_BODY_BYTES} bytes, or than 4 MiB where it holds many values"),
    415: problem_response("the body is not application/json"),
}

api = APIBlueprint("v1", __name__, url_prefix="/v1", abp_responses=ANY)
