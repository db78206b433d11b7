"""The live state as columns: short enough for a page with a thousand VLANs.

``keys`` are the keys of the rows, sent once for each configuration; ``state`` has arrays in that order. Rates are means
over the last second, in kb/s, null while unknown; for VNs it also has their bottlenecks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from apps.rest.resources import lookup, views
from apps.rest.resources.fabric import link_load
from apps.rest.resources.service import Json, Service
from controller.columns import FloatArray, IntArray
from controller.fabric.config_model import EdgePort, Switch
from controller.monitoring.live_rates import locally_congested
from controller.monitoring.time_series import SERIES_COLUMNS
from controller.monitoring.traffic_totals import COLUMNS

MAX_PORTS = 1000
MAX_LINKS = 1000
MAX_PAIRS = 250
SHOWN = (*SERIES_COLUMNS, "send_dropped", "flood_dropped", "marked", "lost")
"""The columns of traffic that a stream shows."""
# The rows of SHOWN in the arrays of TrafficTotals, which have a row for each of COLUMNS.
_ROWS = np.array([COLUMNS.index(name) for name in SHOWN], dtype=np.int64)
_OF_POLICIES = frozenset({"marked", "lost"})


class Columns(NamedTuple):
    """The contents of a stream of columns: the VLANs, or the VNs of a VLAN or a switch.

    And the pairs of a receiving VN.
    """

    vlan: str | None
    switch: str | None
    pairs_of: str | None

    @property
    def is_fabric(self) -> bool:
        """Return whether it contains all VLANs, with links and ports."""
        return self.vlan is None and self.switch is None


def keys_of(service: Service, picked: Columns) -> Json:
    """Return the keys of the states' rows, valid until the configuration changes."""
    central, config = service.central, service.central.config
    keys: Json = {"columns": list(SHOWN)}
    if not picked.is_fabric:
        names = service.settings.file.names
        rows = lookup.vn_rows(central, picked.vlan, picked.switch)
        return keys | {"vns": [list(names[row]) for row in rows.tolist()]}
    keys["vlans"] = [[vid, config.vlans[vid].name] for vid in np.unique(central.vns.vlan_vid).tolist()]
    keys["ports"] = [[switch.name, port.port_no] for switch, port in _ports(service)]
    keys["links"] = [
        [f"{central.fabric.switch_name(end.dpid)}:{end.port_no}" for end in link.link]
        for link in service.observer.links.list_links(config)[:MAX_LINKS]
    ]
    return keys


def state_of(service: Service, picked: Columns) -> Json:
    """Return the state; its arrays are in the order of ``keys_of``.

    ``congested`` and ``violated`` are numbers of VNs by VLAN, or, in a state of VNs, indices of rows.
    """
    service.observer.sync_vns()
    central, fabric = service.central, service.central.fabric
    # The loop's counts alone: no round has such a high number.
    progress, loop = service.revision_status(service.settings.revision), service.loop(2**62)
    health = service.health()
    state: Json = {
        "at": views.utc(service, service.clock()),
        "revision": progress["revision"],
        "installed_revision": progress["installed_revision"],
        "unconfirmed_switches": progress["unconfirmed_switches"],
        "disconnected_switches": progress["disconnected_switches"],
        "status": health["status"],
        "skipped": loop["skipped_rounds"] if loop else 0,
        "rounds": loop["rounds"] if loop else 0,
    }
    mean_bps = service.observer.traffic.mean_bps[_ROWS]
    congested, violated = locally_congested(central), fabric.guarantees.violated
    state["violated_vns"] = int(np.count_nonzero(violated))
    if picked.is_fabric:
        vids, vlan_of_vn = np.unique(central.vns.vlan_vid, return_inverse=True)
        state["rows"] = [
            _kilo(_sums(column, vlan_of_vn, len(vids), name in _OF_POLICIES))
            for name, column in zip(SHOWN, mean_bps, strict=True)
        ]
        state["congested"] = np.bincount(vlan_of_vn[congested], minlength=len(vids)).tolist()
        state["violated"] = np.bincount(vlan_of_vn[violated], minlength=len(vids)).tolist()
        return state | _loads(service)
    rows = lookup.vn_rows(central, picked.vlan, picked.switch)
    state["rows"] = [_kilo(column[rows]) for column in mean_bps]
    state["congested"] = np.flatnonzero(congested[rows]).tolist()
    state["violated"] = np.flatnonzero(violated[rows]).tolist()
    state["bottlenecks"] = views.bottlenecks(central, rows)
    if picked.pairs_of is not None:
        receiver = lookup.vn_row_of(central, picked.pairs_of, "pairs_of")
        state["pairs"] = views.pair_views(central, pairs_of(service, receiver)[:MAX_PAIRS])
    return state


def _sums(column: FloatArray, vlan_of_vn: IntArray, vlans: int, may_be_unknown: bool) -> FloatArray:
    """Return the sums (vlans,) of the known values of a column (vns,).

    ``vlan_of_vn`` (vns,) is the index of each VN's VLAN. A VLAN without any known value gets NaN if ``may_be_unknown``,
    otherwise 0.
    """
    sums: FloatArray = np.bincount(vlan_of_vn, np.nan_to_num(column), vlans).astype(np.float64)
    if may_be_unknown:
        sums[np.bincount(vlan_of_vn, ~np.isnan(column), vlans) == 0] = np.nan
    return sums


def pairs_of(service: Service, receiver: int) -> IntArray:
    """Return the rows of the pairs of a receiver."""
    return np.flatnonzero(service.central.state.entries.receiver == receiver)


def _loads(service: Service) -> Json:
    """Return the loads of ports and links: received and sent rates of ports, both directions of links."""
    ports, traffic = _ports(service), service.observer.ports
    received, sent = np.full(len(ports), np.nan), np.full(len(ports), np.nan)
    dpids = np.array([switch.dpid for switch, _ in ports], dtype=np.uint64)
    port_no = np.array([port.port_no for _, port in ports], dtype=np.int64)
    for dpid in np.unique(dpids).tolist():
        of_switch = np.flatnonzero(dpids == dpid)
        received[of_switch] = traffic.received_bps(dpid, port_no[of_switch])
        sent[of_switch] = traffic.sent_bps(dpid, port_no[of_switch])
    links = service.observer.links.list_links(service.central.config)[:MAX_LINKS]
    loads = [[link_load(service, a, b), link_load(service, b, a)] for a, b in (link.link for link in links)]
    return {
        "ports": [_kilo(received), _kilo(sent)],
        "links": [
            [link.up, *(None if bps is None else round(bps / 1e3) for bps in load)]
            for link, load in zip(links, loads, strict=True)
        ],
    }


def _ports(service: Service) -> list[tuple[Switch, EdgePort]]:
    return list(service.central.config.ports())[:MAX_PORTS]


def _kilo(rate_bps: FloatArray) -> list[int | None]:
    """Return rates in whole kbit/s, None for NaN."""
    return views.json_rates(rate_bps / 1e3)
