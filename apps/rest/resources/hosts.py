"""The known hosts: the location of each address, since when, and its previous location."""

from __future__ import annotations

import numpy as np

from apps.rest.http.problems import invalid, not_found
from apps.rest.resources import lookup, views
from apps.rest.resources.pagination import make_cursor, read_cursor, stale
from apps.rest.resources.service import NOT_FOUND, Json, api, service
from apps.rest.schema import request_parameters, responses
from controller.columns import BoolArray
from controller.config.value_types import MAX_VLAN_VID
from controller.errors import InvalidValueError
from controller.forwarding.pairs import Host
from controller.openflow.ethernet import format_mac, parse_mac


@api.get("/hosts", responses={200: responses.Hosts, **NOT_FOUND})
def list_hosts(query: request_parameters.HostQuery) -> Json:
    """List the known hosts, by VLAN and address: the location of each, since when, and its previous location."""
    here = service()
    mac = None if query.given("mac") is None else parse_mac("mac", query.mac)
    known = here.central.network.known
    found = known.some(_vns(query), mac, _behind(query.cursor), query.limit + 1)
    shown = type(found)._make(column[: query.limit] for column in found)
    more = len(found.mac) > query.limit
    cursor = make_cursor(int(shown.vlan_vid[-1]), format_mac(int(shown.mac[-1]))) if more else None
    return {"next": cursor, "hosts": views.host_views(here, shown)}


@api.get("/hosts/<mac>", responses={200: responses.HostLocations, **NOT_FOUND})
def get_host(path: request_parameters.HostPath, query: request_parameters.NoQuery) -> Json:
    """Show the location of an address in each VLAN in which it is known, since when, and its previous location."""
    here = service()
    everywhere = np.ones(len(here.central.vns), dtype=np.bool_)
    found = here.central.network.known.some(everywhere, parse_mac("mac", path.mac), None, MAX_VLAN_VID)
    if not len(found.mac):
        raise not_found("mac", path.mac, "is not the address of a known host; /v1/hosts lists them")
    return {"hosts": views.host_views(here, found)}


def _vns(query: request_parameters.HostQuery) -> BoolArray:
    """Return the mask of the VNs of a query, (vns,). Raises HttpRefusedError."""
    central = service().central
    rows = lookup.vn_rows(central, query.given("vlan"), query.given("switch"))
    if (name := query.given("port")) is not None:
        switch = query.given("switch")
        if switch is None:
            raise invalid(InvalidValueError("port", name, "needs the switch that it is a port of"))
        rows = rows[central.vns.port_no[rows] == lookup.port_of(central, switch, name, "port")[1].port_no]
    chosen = np.zeros(len(central.vns), dtype=np.bool_)
    chosen[rows] = True
    return chosen


def _behind(cursor: str) -> Host | None:
    """Return the last host of the previous page, which may be gone."""
    key = read_cursor(cursor, int, str)
    if key is None:
        return None
    try:
        mac = parse_mac("cursor", key[1])
    except InvalidValueError as error:
        raise stale(cursor) from error
    if not 0 < key[0] <= MAX_VLAN_VID:
        raise stale(cursor)
    return Host(key[0], mac)
