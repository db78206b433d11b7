"""The resources of the fabric itself: switches and the links between them."""

from __future__ import annotations

import numpy as np

from apps.rest.resources import views
from apps.rest.resources.pagination import page_by_position
from apps.rest.resources.service import Json, Service, api, service
from apps.rest.schema import fabric_responses, request_parameters
from controller.fabric.topology import PortId
from controller.monitoring.link_status import FabricLink

# Links whose commitments are computed before other greenlets run.
_LINK_BATCH = 8


@api.get("/switches", responses={200: fabric_responses.Switches})
def list_switches(query: request_parameters.PageQuery) -> Json:
    """List the switches of the configuration, with their state."""
    here = service()
    health = here.health()
    states, faults = health["switches"], health.get("faults", {})
    switches = list(here.central.config.switches.values())
    shown, following = page_by_position(switches, query.cursor, query.limit)
    vns = dict(zip(*(column.tolist() for column in np.unique(here.central.vns.dpid, return_counts=True)), strict=True))
    views = [
        {
            "switch": switch.name,
            "dpid": f"{switch.dpid:016x}",
            "role": "edge" if switch.ports else "core",
            "state": str(states.get(switch.name, "disconnected")),
            "faults": faults.get(switch.name, []),
            "edge_ports": len(switch.ports),
            "vns": vns.get(switch.dpid, 0),
            "capacity_bps": sum(port.capacity_bps for port in switch.ports.values()),
        }
        for switch in shown
    ]
    return {"next": following, "switches": views}


@api.get("/links", responses={200: fabric_responses.Links})
def list_links(query: request_parameters.PageQuery) -> Json:
    """List the links between switches: whether they are up, their commitments and their load."""
    here = service()
    links = here.observer.links.list_links(here.central.config)
    shown, following = page_by_position(links, query.cursor, query.limit)
    views = []
    for count, link in enumerate(shown, 1):
        views.append(_link_view(here, link))
        if count % _LINK_BATCH == 0:
            here.sleep(0.0)
    return {"next": following, "links": views}


def _link_view(service: Service, link: FabricLink) -> Json:
    """Return a link as JSON, with its load in each direction."""
    a, b = link.link
    ends = [
        {"switch": service.central.fabric.switch_name(end.dpid), "dpid": f"{end.dpid:016x}", "port_no": end.port_no}
        for end in link.link
    ]
    return {
        "a": ends[0],
        "b": ends[1],
        "capacity_bps": link.capacity_bps,
        "admissible_bps": link.admissible_bps,
        "up": link.up,
        "up_since": views.utc(service, link.up_since_s),
        "a_to_b": _direction(service, link, a, b),
        "b_to_a": _direction(service, link, b, a),
    }


def _direction(service: Service, link: FabricLink, start: PortId, end: PortId) -> Json:
    committed_bps = None
    if link.capacity_bps is not None:
        committed_bps = round(service.observer.promises.committed_bps(start, service.central.vns))
    return {"committed_bps": committed_bps, "load_bps": link_load(service, start, end)}


def link_load(service: Service, start: PortId, end: PortId) -> int | None:
    """Return the rate that ``start`` sent into a link, or if it is not counted, the rate received at ``end``."""
    ports = service.observer.ports
    sent_bps = ports.sent_bps(start.dpid, np.array([start.port_no], dtype=np.int64))
    if np.isnan(sent_bps[0]):
        sent_bps = ports.received_bps(end.dpid, np.array([end.port_no], dtype=np.int64))
    (load_bps,) = views.json_rates(sent_bps)
    return load_bps
