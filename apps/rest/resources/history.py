"""Overrides, and the history of changes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from apps.rest.http import problems
from apps.rest.resources import lookup, views
from apps.rest.resources.pagination import make_cursor, page_by_position, read_cursor
from apps.rest.resources.preconditions import with_etag
from apps.rest.resources.service import NOT_FOUND, Json, api, service
from apps.rest.schema import change_responses, request_parameters
from apps.rest.schema.request_parameters import MAX_REVISION
from apps.settings.settings import Settings
from controller.errors import InvalidValueError
from controller.limits.overrides import VnName
from controller.units import with_whole_numbers

_FORMAT = "dets-overrides-1"
_BATCH_SIZE = 500


@api.get("/overrides", responses={200: change_responses.OverrideList})
def list_overrides(query: request_parameters.OverrideQuery) -> Json:
    """List the overrides, whether they are effective, and the file's values."""
    settings = service().settings
    # VLANs by id, then VNs.
    names: list[int | VnName] = [vid for vid, _ in sorted(settings.overrides.vlan_overrides())]
    names += settings.overrides.vn_override_names()
    if query.active is not None:
        inactive = settings.values.ineffective
        names = [name for name in names if (name in inactive) != query.active]
    shown, following = page_by_position(names, query.cursor, query.limit)
    return {"next": following, "overrides": views.override_views(settings, shown), "revision": settings.revision}


@api.get("/history", responses={200: change_responses.History, **NOT_FOUND})
def list_history(query: request_parameters.HistoryQuery) -> Json:
    """List who changed what and when, newest first; with a filter a page may be shorter than ``limit``, or empty."""
    settings, central = service().settings, service().central
    switch = query.given("switch")
    vlan = lookup.historic_vlan(central, query.given("vlan"))
    place = (vlan, switch, lookup.historic_port(central, switch, query.given("port")))
    key = read_cursor(query.cursor, int)
    before = min(max(key[0], 0), MAX_REVISION) if key is not None else MAX_REVISION
    found = settings.history(before, query.limit + 1)
    shown = found[: query.limit]
    cursor = make_cursor(shown[-1].revision) if len(found) > query.limit else None
    if place != (None, None, None):
        if place[0] is None:
            raise problems.invalid(InvalidValueError("vlan", "", "is needed with switch and port"))
        shown = [change for change in shown if settings.change_concerns(change.revision, place)]
    changes = [{key: value for key, value in asdict(change).items() if key != "items"} for change in shown]
    return {"next": cursor, "changes": changes}


@api.get("/history/<revision>", responses={200: change_responses.ChangeDetail, **NOT_FOUND})
def get_change(path: request_parameters.ChangePath, query: request_parameters.NoQuery) -> Json:
    """Show a change with every value as it was before and after."""
    settings = service().settings
    change = asdict(lookup.change(settings, path.revision))
    return {**change, "items": [_item_view(settings, item) for item in change["items"]]}


@api.get("/export", responses={200: change_responses.Export})
def export_overrides(query: request_parameters.NoQuery) -> Any:
    """Return all overrides as one document, which ``/v1/import`` accepts."""
    here = service()
    overrides, revision = here.settings.overrides, here.settings.revision
    vns = []
    for count, (name, override) in enumerate(overrides.vn_overrides(), 1):
        vns.append({**name._asdict(), **with_whole_numbers(override.values)})
        if count % _BATCH_SIZE == 0:
            here.sleep(0.0)  # all values were read before: a change now cannot mix two revisions
    vlans = [{"vlan_vid": vid, "values": with_whole_numbers(vlan.values)} for vid, vlan in overrides.vlan_overrides()]
    return with_etag({"format": _FORMAT, "vlans": vlans, "vns": vns}, revision)


def _item_view(settings: Settings, item: Json) -> Json:
    port = None if item["switch"] is None else views.port_label(settings, item["switch"], item["port_no"])
    return {**with_whole_numbers(item), "port": port}
