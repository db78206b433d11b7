"""Resources for the web UI besides the state: the last five minutes, and the session."""

from __future__ import annotations

from flask import current_app, g

from apps.rest.http.problems import invalid
from apps.rest.resources import lookup, views
from apps.rest.resources.service import NOT_FOUND, Json, api, caller, service
from apps.rest.schema import fabric_responses, request_parameters
from controller import __version__
from controller.errors import InvalidValueError
from controller.monitoring.time_series import SERIES_COLUMNS


@api.get("/series", responses={200: fabric_responses.SeriesView, **NOT_FOUND})
def get_series(query: request_parameters.SeriesQuery) -> Json:
    """Show the last five minutes of a VLAN, or of a VN since it was first requested; give one of both."""
    here = service()
    central, series = here.central, here.observer.series
    here.observer.sync_vns()
    vlan, vn = query.given("vlan"), query.given("vn")
    if (vlan is None) == (vn is None):
        raise invalid(InvalidValueError("vlan", vlan or "", "give either vlan or vn: 10, or 10/s1/3"))
    if vn is None:
        rows = series.vlan_series(lookup.vlan_vid(central, vlan or "", "vlan"))
    else:
        rows = series.vn_series(central.vns, lookup.vn_row_of(central, vn, "vn"), here.clock())
    return {
        "at": [round(here.epoch_s + at_s, 3) for at_s in rows.at_s.tolist()],
        "receive_limit_bps": views.json_rates(rows.limit_bps),
        **{
            name: {key: views.json_rates(values[:, at]) for at, key in enumerate(SERIES_COLUMNS)}
            for name, values in (("mean", rows.mean_bps), ("max", rows.max_bps))
        },
    }


@api.get("/session", responses={200: fabric_responses.SessionView})
def get_session(query: request_parameters.NoQuery) -> Json:
    """Show the client's identity and scope."""
    here, who = service(), caller()
    return {
        "who": who.who,
        "address": who.address,
        "scope": g.scope,
        "authentication": "token" if current_app.extensions["dets.guarded"] else "none",
        "if_match": "required" if here.needs_if_match else "optional",
        "version": __version__,
        "interval_ms": here.central.config.interval_ms,
    }
