"""The interface of the resources to the controller, and their blueprint."""

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
    """The other controllers of the fabric, for requests that need them: there are none."""

    def forwarded(self) -> Response | None:
        """Return another node's response to the request, None if this one must respond."""
        return None

    def completed(self, response: Response) -> Response:
        """Return this node's response, merged with the others' data."""
        return response

    def forwarded_headers(self) -> Mapping[str, str] | None:
        """Return the headers for requests to other nodes; None: no other node is needed."""
        return None

    def whole(self, service: Service, local: Json, target: str, headers: Mapping[str, str]) -> Json:
        """Return this node's state merged with the others', from requests for ``target`` with ``headers``."""
        return local


class Service:
    """The controller for requests: this class drives no switches; a running controller overrides its methods.

    ``clock`` is the clock of ``central`` in seconds; ``clock`` + ``epoch_s`` is the time of day in seconds since 1970.
    Without ``settings`` they are kept in memory. All methods are called in the thread that serves the request, which
    must be the one that runs ``central``.
    """

    remote_nodes = RemoteNodes()

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
            weakref.finalize(self, store.close)  # only the service has it
        self.settings = settings
        self.epoch_s = time.time() - clock()

    def health(self) -> Json:
        """Return the contents of ``/v1/health``."""
        return {"status": "ready", "switches": {}}

    def on_change(self, revision: int) -> None:
        """Send the messages of a change that was made and stored; if this fails the client gets a 500."""

    def revision_status(self, revision: int) -> Json:
        """Return the contents of ``health.Revision``; ``revision`` is the last change."""
        return {
            "revision": revision,
            "installed_revision": revision,
            "unconfirmed_switches": [],
            "disconnected_switches": [],
        }

    def loop(self, after: int) -> Json | None:
        """Return the statistics of the rounds after a given one, None without a control loop."""
        return None

    def reload(self, dry_run: bool) -> ConfigDiff | None:
        """Read the configuration file again and apply it; None without a file. Raises ConfigError."""
        return None

    def metrics(self) -> Iterator[bytes]:
        """Yield the page of metrics in parts."""
        return iter(())

    def sleep(self, duration_s: float) -> None:
        """Let other greenlets run for at least ``duration_s``."""
        time.sleep(duration_s)


def service() -> Service:
    """Return the service of the request's application."""
    return cast(Service, current_app.extensions["dets"])


def caller() -> Caller:
    """Return the sender of the request."""
    return cast(Caller, g.caller)


def problem_response(description: str) -> Json:
    """Return the description of a response that is a problem document."""
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
    """Return the name of an operation in generated clients, from the name of its function: listVns for list_vns."""
    first, *more = name.split("_")
    return first + "".join(map(str.capitalize, more))


api = DescribedBlueprint("v1", __name__, url_prefix="/v1", abp_responses=ANY, operation_id_callback=operation_id)
