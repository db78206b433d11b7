"""What the resources work on, and the blueprint that they stand on."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from flask import Response, current_app, g
from pydantic import BaseModel

from apps.rest.http import problems
from apps.rest.http.body import MAX_BODY_BYTES
from apps.rest.http.deferred_description import DescribedBlueprint
from apps.settings.settings import Caller, Settings
from apps.settings.store import Store
from apps.settings.store_file import MEMORY
from controller.central.controller import CentralController
from controller.config.config_summary import ConfigDiff
from controller.monitoring.observer import Observer

Json = dict[str, Any]
Responses = dict[str | int, type[BaseModel] | Json | None]


class RemoteNodes:
    """The other controllers of the fabric, as requests have to do with them: there are none."""

    def forwarded(self) -> Response | None:
        """Return what another one answers to the request, None where this one has to."""
        return None

    def completed(self, response: Response) -> Response:
        """Return this one's answer with what the others know."""
        return response

    def asked(self) -> Mapping[str, str] | None:
        """Return the headers with which others are asked for their part of what is asked here; None: nobody is."""
        return None

    def whole(self, service: Service, local: Json, target: str, asked: Mapping[str, str]) -> Json:
        """Return this one's state with that of the others, who are ``asked`` for the target."""
        return local


class Service:
    """The controller as requests see it: this one drives no switches; one that runs overrides what it does.

    ``clock`` gives the seconds that ``central`` counts in; ``clock`` + ``epoch_s`` is the time of day in seconds since
    1970. Without ``settings`` what is set is kept in memory. All methods are called in the thread that serves the
    request, which must be the one that runs ``central``.
    """

    others = RemoteNodes()

    def __init__(
        self,
        central: CentralController,
        clock: Callable[[], float],
        settings: Settings | None = None,
        needs_if_match: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self.central, self.clock, self.needs_if_match = central, clock, needs_if_match
        self.observer = Observer(central) if observer is None else observer
        if settings is None:
            store = Store(MEMORY)
            settings = Settings(central, store, clock)
            weakref.finalize(self, store.close)  # nobody else knows it
        self.settings = settings
        self.epoch_s = time.time() - clock()

    def health(self) -> Json:
        """Return what ``/v1/health`` answers."""
        return {"status": "ready", "switches": {}}

    def on_change(self, revision: int) -> None:
        """Send what follows from a change that was made and stored; when this fails the client gets a 500."""

    def revision_status(self, revision: int) -> Json:
        """Return what ``health.Revision`` has; ``revision`` is the last change."""
        return {
            "revision": revision,
            "installed_revision": revision,
            "unconfirmed_switches": [],
            "disconnected_switches": [],
        }

    def loop(self, after: int) -> Json | None:
        """Return how the rounds of the control loop after one went, None without such a loop."""
        return None

    def reload(self, dry_run: bool) -> ConfigDiff | None:
        """Read the configuration file again and put it in force; None without a file. Raises ConfigError."""
        return None

    def metrics(self) -> Iterator[bytes]:
        """Yield the page of metrics piece by piece."""
        return iter(())

    def sleep(self, duration_s: float) -> None:
        """Let others in the process run for at least so long."""
        time.sleep(duration_s)


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
    504: problem_response("the active node of the cluster did not answer; the change may have been made"),
}
BAD_BODY: Responses = {
    400: problem_response("the body is not JSON"),
    413: problem_response(f"the body is longer than {MAX_BODY_BYTES} bytes, or than 4 MiB where it holds many values"),
    415: problem_response("the body is not application/json"),
}


def operation_id(*, name: str, path: str, method: str) -> str:
    """Return how generated clients call an operation, by the name of its function: listVns for list_vns."""
    first, *more = name.split("_")
    return first + "".join(map(str.capitalize, more))


api = DescribedBlueprint("v1", __name__, url_prefix="/v1", abp_responses=ANY, operation_id_callback=operation_id)
