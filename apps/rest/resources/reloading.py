"""The configuration file, read again on request."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from flask import Response

from apps.rest.http.problems import RefusedError, refusing_bad_values
from apps.rest.resources.conditions import expecting, tagged
from apps.rest.resources.service import CHANGE, api, service
from apps.rest.schema import answers, requests
from controller.config.load import ConfigError


@api.post("/reload", responses={200: answers.Reloaded, **CHANGE})
def reload_configuration(query: requests.ChangeQuery, header: requests.IfMatch) -> Response:
    """Read the configuration file again and put it in force, and tell what differs; all is as before on any error.

    What did not change is not touched. What was set at run time is laid over the new file.
    """
    here = service()
    if here.reload is None:
        detail = "this controller was not started from a file"
        raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "no-file", detail)
    expecting(lambda: here.settings.revision)()
    try:
        with refusing_bad_values():
            changes = here.reload(dry_run=query.dry_run)
    except ConfigError as error:
        raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "configuration", str(error)) from error
    if changes and not query.dry_run:
        here.in_force.changed(here.settings.revision)
    told = [{"path": one.path, "before": _plain(one.before), "after": _plain(one.after)} for one in changes]
    return tagged({"revision": here.settings.revision, "changes": told}, here.settings.revision)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
