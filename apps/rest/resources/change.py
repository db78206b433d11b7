"""Changes of resources: checked, stored, applied, and only then acknowledged."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Any

import numpy as np
from flask import Response

from apps.rest.http import problems
from apps.rest.http.problems import HttpRefusedError, refusing_bad_values
from apps.rest.resources import lookup, views
from apps.rest.resources.preconditions import require_revision, with_etag
from apps.rest.resources.service import BAD_BODY, CHANGE, NOT_FOUND, Json, Service, api, caller, service
from apps.rest.schema import bulk_values, change_responses, request_bodies, request_parameters, responses, value_types
from apps.settings.settings import ChangeOutcome
from controller.config.yaml_document import ConfigError
from controller.errors import InvalidValueError
from controller.fabric.config_model import Vlan
from controller.limits.change_validation import check_used, check_vn, complete_vlan
from controller.limits.effective_settings import UnfitError
from controller.limits.overrides import VnName
from controller.units import with_whole_numbers


@api.patch("/vlans/<vlan_vid>", responses={200: responses.VlanView, **NOT_FOUND, **BAD_BODY, **CHANGE})
def change_vlan(
    path: request_parameters.VlanPath,
    query: request_parameters.ChangeQuery,
    header: request_parameters.IfMatch,
    body: request_bodies.VlanPatch,
) -> Response:
    """Change values of a VLAN, from the next control interval on: all given values, or none."""
    here = service()
    vid = lookup.vlan_vid(here.central, path.vlan_vid)
    expect = require_revision(lambda: here.settings.vlan_revision(vid))
    with problems.refusing_bad_values():
        before = here.central.config.vlans[vid]
        values = complete_vlan(before, body.given(), here.central.config.interval_ms)
        if "weight" in values:
            after = replace(before, **values)
            check_used("weights", "weight", after.weight, after.algorithm, after.shadow)
        outcome = here.settings.change_vlan(vid, values, caller(), expect=expect, dry_run=query.dry_run)
    view = views.vlan_views(here, [vid], outcome)[0]
    return _answer(here, outcome, query.dry_run, with_etag(view, here.settings.vlan_revision(vid)))


@api.patch("/vns/<vlan_vid>/<switch>/<port_no>", responses={200: responses.VnView, **NOT_FOUND, **BAD_BODY, **CHANGE})
def change_vn(
    path: request_parameters.VnPath,
    query: request_parameters.ChangeQuery,
    header: request_parameters.IfMatch,
    body: request_bodies.VnPatch,
) -> Response:
    """Change a VN's limits, ceilings and weight, from the next control interval on: all given values, or none."""
    here = service()
    row = int(lookup.vn_row(here.central, path)[0])
    name, given = here.settings.file.names[row], body.given()
    # By name from here on: while this change waits for others to be stored, a reload may happen.
    expect = require_revision(lambda: here.settings.revision_of(name))
    with problems.refusing_bad_values():
        check_vn(here.central.vns, here.central.config.vlans[name.vlan_vid], row, given)
        outcome = here.settings.change_vns({name: given}, caller(), expect=expect, dry_run=query.dry_run)
    rows = np.array([here.settings.file.row_of[name]], dtype=np.int64)
    view = views.vn_views(here, rows, outcome)[0]
    return _answer(here, outcome, query.dry_run, with_etag(view, here.settings.revision_of(name)))


@api.post("/limits", responses={200: change_responses.ChangeResult, **BAD_BODY, **CHANGE})
def change_limits(
    query: request_parameters.ChangeQuery, header: request_parameters.IfMatch, body: request_bodies.ManyLimits
) -> Response:
    """Change limits, ceilings and weights of many VNs in one transaction: all, or none."""
    here = service()
    settings = here.settings
    if body.limits == []:
        raise problems.invalid(InvalidValueError("limits", [], "changes nothing: give at least one"))

    def check(key: str, name: VnName, values: bulk_values.Values) -> None:
        row = settings.file.row_of.get(name)
        if row is None:
            raise InvalidValueError(key, str(name), "is not a VN of the configuration: /v1/vns lists those")
        check_vn(here.central.vns, here.central.config.vlans[name.vlan_vid], row, values, f"{key}.")

    changes = bulk_values.read_vns("limits", body.limits, lookup.Ids(here.central), check, lambda: here.sleep(0.0))
    expect = require_revision(lambda: settings.revision)
    with problems.refusing_bad_values():
        try:
            outcome = settings.change_vns(changes, caller(), "limits", expect=expect, dry_run=query.dry_run)
        except UnfitError as error:
            at = list(changes).index(settings.file.names[error.row])
            raise InvalidValueError(f"limits.{at}.{error.key}", error.value, error.reason) from error
    return _done(here, outcome, query.dry_run)


@api.delete("/vlans/<vlan_vid>/overrides", responses={200: change_responses.ChangeResult, **NOT_FOUND, **CHANGE})
def reset_vlan(
    path: request_parameters.VlanPath, query: request_parameters.ChangeQuery, header: request_parameters.IfMatch
) -> Response:
    """Remove the overrides of a VLAN: the file's values are effective again."""
    here = service()
    vid = lookup.override_vlan(here.settings, path.vlan_vid)
    expect = require_revision(lambda: here.settings.vlan_revision(vid))
    with problems.refusing_bad_values():
        outcome = here.settings.reset([vid], [], caller(), expect=expect, dry_run=query.dry_run)
    return _done(here, outcome, query.dry_run)


@api.delete(
    "/vns/<vlan_vid>/<switch>/<port_no>/overrides",
    responses={200: change_responses.ChangeResult, **NOT_FOUND, **CHANGE},
)
def reset_vn(
    path: request_parameters.VnPath, query: request_parameters.ChangeQuery, header: request_parameters.IfMatch
) -> Response:
    """Remove the overrides of a VN: the values of the file or of its VLAN are effective again."""
    here = service()
    name = lookup.override_vn(here.settings, here.central, path)
    expect = require_revision(lambda: here.settings.revision_of(name))
    with problems.refusing_bad_values():
        outcome = here.settings.reset([], [name], caller(), expect=expect, dry_run=query.dry_run)
    return _done(here, outcome, query.dry_run)


@api.delete("/overrides", responses={200: change_responses.ChangeResult, **CHANGE})
def reset_overrides(query: request_parameters.ChangeQuery, header: request_parameters.NeededIfMatch) -> Response:
    """Remove all overrides: only the file is effective again. Needs If-Match."""
    here = service()
    expect = require_revision(lambda: here.settings.revision, always=True)
    outcome = here.settings.replace_all("reset", {}, {}, caller(), expect=expect, dry_run=query.dry_run)
    return _done(here, outcome, query.dry_run)


@api.post("/history/<revision>/undo", responses={200: change_responses.ChangeResult, **NOT_FOUND, **CHANGE})
def undo_change(
    path: request_parameters.ChangePath, query: request_parameters.ChangeQuery, header: request_parameters.IfMatch
) -> Response:
    """Undo a change by a new change: all of it, or none."""
    here = service()
    undone = lookup.change(here.settings, path.revision)
    expect = require_revision(lambda: here.settings.revision)
    with problems.refusing_bad_values():
        outcome = here.settings.undo(undone, caller(), expect=expect, dry_run=query.dry_run)
    return _done(here, outcome, query.dry_run)


@api.post("/import", responses={200: change_responses.ReplaceResult, **BAD_BODY, **CHANGE})
def import_overrides(
    query: request_parameters.ChangeQuery, header: request_parameters.NeededIfMatch, body: request_bodies.Import
) -> Response:
    """Replace all overrides by a document of ``/v1/export``. Needs If-Match.

    Overrides that do not fit the configuration are stored, but not effective.
    """
    here = service()
    config, ids = here.central.config, lookup.Ids(here.central)
    vns = bulk_values.read_vns("vns", body.vns, ids, lambda key, name, given: None, lambda: here.sleep(0.0))
    unnamed = Vlan(0, "", "fp", {}, 1.0, None, None)
    vlans = bulk_values.read_vlans(
        "vlans",
        body.vlans,
        ids,
        lambda vid, given: complete_vlan(config.vlans.get(vid, unnamed), given, config.interval_ms),
    )
    expect = require_revision(lambda: here.settings.revision, always=True)
    outcome = here.settings.replace_all("import", vlans, vns, caller(), expect=expect, dry_run=query.dry_run)
    named: list[int | VnName] = list(outcome.values.inactive_vlans)
    inactive = [*named, *outcome.values.inactive_vns][: value_types.MAX_PAGE]
    more = {"inactive": views.override_views(here.settings, inactive, outcome)}
    return _done(here, outcome, query.dry_run, more)


def _done(service: Service, outcome: ChangeOutcome, dry_run: bool, more: Json | None = None) -> Response:
    return _answer(
        service,
        outcome,
        dry_run,
        with_etag({"revision": outcome.revision, "changed": outcome.changed, **(more or {})}, outcome.revision),
    )


def _answer(service: Service, outcome: ChangeOutcome, dry_run: bool, response: Response) -> Response:
    if dry_run:
        response.headers["Dry-Run"] = "true"
    else:
        service.on_change(outcome.revision)
    return response


@api.post("/reload", responses={200: change_responses.ReloadResult, **CHANGE})
def reload_configuration(query: request_parameters.ChangeQuery, header: request_parameters.IfMatch) -> Response:
    """Read the configuration file again and apply it; return the differences. On any error nothing changes.

    Unchanged parts are not affected. Overrides take precedence over the new file.
    """
    here = service()
    require_revision(lambda: here.settings.revision)()
    try:
        with refusing_bad_values():
            diff = here.reload(query.dry_run)
    except ConfigError as error:
        raise HttpRefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "configuration", str(error)) from error
    if diff is None:
        detail = "this controller was not started from a file"
        raise HttpRefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "no-file", detail)
    listed = [{"path": item.path, "before": _plain(item.before), "after": _plain(item.after)} for item in diff.changes]
    result = {"revision": here.settings.revision, "summary": diff.summary, "changes": listed}
    return with_etag(result, here.settings.revision)


def _plain(value: Any) -> Any:
    return with_whole_numbers(value) if value is None or isinstance(value, bool | int | float | str) else str(value)
