"""The flow entries that admit frames at an edge port and output frames to it: only these connect a host to a VLAN."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from controller.fabric.config_model import EdgePort
from controller.forwarding.flow_table import FlowTable
from controller.forwarding.pipeline import Table
from controller.openflow.actions import Output, SetVlanVid
from controller.openflow.constants import VLAN_NONE, VLAN_PRIORITY
from controller.openflow.flows import Flow

_TABLES = (Table.CLASSIFY, Table.FORWARD)


def flows_of_ports(flows: FlowTable, port_nos: Collection[int]) -> list[Flow]:
    """Return the flow entries that admit frames at these ports or output frames to them."""
    return [
        flow
        for flow in flows.flows_in_tables(_TABLES)
        if (_admits(flow) and flow.match.in_port in port_nos) or not _outputs(flow).isdisjoint(port_nos)
    ]


def misplaced(flows: FlowTable, ports: Mapping[int, EdgePort], fenced: Collection[int]) -> Iterator[Flow]:
    """Yield the flow entries that would connect an edge port to a VLAN that the port does not carry.

    ``ports`` are the edge ports by number; the ports in ``fenced`` carry no VLAN. An earlier run left such flow
    entries, for other ports with these numbers. Callers also fence the ports of links whose port names have changed.
    """
    carried = {port_no: port.vlan_vids for port_no, port in ports.items()} | dict.fromkeys(fenced, ())
    for flow in flows_of_ports(flows, carried.keys()):
        reached = _outputs(flow)
        if _admits(flow) and flow.match.in_port is not None:
            reached.add(flow.match.in_port)
        if any(_vlan_vid(flow) not in carried[port_no] for port_no in reached & carried.keys()):
            yield flow


def _admits(flow: Flow) -> bool:
    """Return whether a flow entry lets frames into the pipeline."""
    return flow.table_id == Table.CLASSIFY and flow.goto_table is not None


def _outputs(flow: Flow) -> set[int]:
    """Return the ports to which a flow entry outputs frames."""
    return {action.port_no for action in flow.actions if isinstance(action, Output)}


def _vlan_vid(flow: Flow) -> int | None:
    """Return the VLAN of a flow entry's frames; an untagged frame gets its VLAN at the port of arrival."""
    if flow.match.vlan_vid not in (None, VLAN_NONE, VLAN_PRIORITY):
        return flow.match.vlan_vid
    return next((action.vlan_vid for action in flow.actions if isinstance(action, SetVlanVid)), None)
