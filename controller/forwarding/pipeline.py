"""The pipeline: nine named tables with their flow entries.

The functions return flow entries; their docstrings say what these do with frames. A ``meter_id`` of None is no meter.

| table        | matches                     | does                                                              |
|--------------|-----------------------------|-------------------------------------------------------------------|
| CLASSIFY     | port and VLAN               | tags frames of access ports, admits known VLANs only              |
| SEND_LIMIT   | sending VN                  | the meter of the VN's send limit                                  |
| LEARN        | sending VN, source address  | flags frames from unknown source addresses                        |
| RATE_CONTROL | sending VN, destination     | the meter of the pair; flags frames of new pairs; flood meters    |
| MARKS        | sending VN, ECN             | lets other switches mark frames that leave for them (sets ECT)    |
|              | VLAN, destination, ECN      | clears ECT and congestion marks (CE) of frames that have arrived  |
| COUNT        | receiving VN, source        | the counting meter of marked frames                               |
|              | sending VN, metadata flag   | the meter of the VN's new pairs                                   |
| FORWARD      | VLAN, destination           | receiving queue and output; floods unknown destinations           |
| PHANTOM      | VLAN, destination           | the phantom meter of the receiving VN, after the output           |
| PACKET_IN    | sending VN, metadata flag   | the packet-in meter of the VN, then the controller                |

Only VLANs whose policy uses marks have flow entries in MARKS, COUNT and PHANTOM; frames of other VLANs, frames within
one switch and floods pass these tables unchanged. Frames of new pairs pass COUNT if no queue holds their receiver.
Frames from other switches were limited where they entered the fabric: they go from CLASSIFY straight to FORWARD, or to
MARKS. A table without a matching flow entry drops (OpenFlow 1.3.5, section 5.4): nothing untagged, unknown or foreign
gets through.

A meter drops the frame itself, so the packet-in meter comes after the output: a frame above the packet-in rate is
forwarded all the same. After the output a frame may be untagged; its metadata has its VLAN.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, IntFlag
from typing import NamedTuple

from controller.fabric.config_model import EdgePort
from controller.openflow.actions import Action, Output, PopVlan, PushVlan, SetIpEcn, SetQueue, SetVlanVid
from controller.openflow.constants import ETH_TYPES_IP, PORT_CONTROLLER, VLAN_NONE, VLAN_PRIORITY
from controller.openflow.ethernet import CONTROL_ETH_TYPES
from controller.openflow.flows import Flow, WriteMetadata
from controller.openflow.match import Match

OWN_COOKIE = 0xDE75_0000_0000_0000
OWN_COOKIE_MASK = 0xFFFF_0000_0000_0000
REFUSAL_COOKIE, REFUSAL_COOKIE_MASK = OWN_COOKIE | 0x100, OWN_COOKIE_MASK | 0x100

ETH_TYPE_ARP = 0x0806
ETH_TYPE_IPV6 = 0x86DD
ETH_TYPE_LLDP = 0x88CC
GROUP_BIT = 1 << 40  # of an address: broadcast and multicast
# Neighbor Solicitations go to the solicited-node multicast address, FF02::1:FF00:0/104 (RFC 4291, RFC 2464).
SOLICITED_NODE = 0x3333_FF00_0000
SOLICITED_NODE_MASK = 0xFFFF_FF00_0000
# 01-80-C2-00-00-0X never leaves a link (IEEE 802.1Q, table 8-1): PAUSE, spanning tree, LLDP of the hosts.
LINK_LOCAL = 0x0180_C200_0000
LINK_LOCAL_MASK = 0xFFFF_FFFF_FFF0
REPORT_BYTES = 128  # enough of a frame for its addresses and tag


class Table(IntEnum):
    """The tables by number.

    PHANTOM comes before PACKET_IN: a frame that the phantom meter drops has been delivered, and causes no packet-in.
    That meter passes nearly the whole receive limit, so that the next frames of a new pair cause one.
    """

    CLASSIFY = 0
    SEND_LIMIT = 1
    LEARN = 2
    RATE_CONTROL = 3
    MARKS = 6
    COUNT = 7
    FORWARD = 8
    PHANTOM = 9
    PACKET_IN = 10


class Refusal(IntEnum):
    """Why CLASSIFY drops an edge port's frames; the cookies of its flow entries give the reason."""

    FENCED = 1
    LLDP = 2
    UNTAGGED = 3
    FOREIGN_VLAN = 4

    @property
    def cookie(self) -> int:
        """The cookie of the flow entries that drop such frames."""
        return REFUSAL_COOKIE | self << 12 | Table.CLASSIFY


class MetadataFlag(IntFlag):
    """The fields of a frame's metadata: its VLAN id, and the reason for a packet-in."""

    VLAN = 0xFFF
    UNKNOWN_SOURCE = 0x1000
    NEW_PAIR = 0x2000


# RFC 3168, section 5. ECT(1), not ECT(0), which guests' TCP sends: their ECT(0) stays, and packets without ECN get
# none.
NOT_ECT, ECT_1, ECT_0, CE = 0, 1, 2, 3
# A marked frame carries the port of its receiver from MARKS to COUNT, above the fields of ``MetadataFlag``.
_RECEIVER_SHIFT = 16
_RECEIVER_MASK = 0xFFFF_FFFF << _RECEIVER_SHIFT


class VnMeters(NamedTuple):
    """The meters of one sending VN that do not depend on the receiver; None: no meter.

    ``discovery`` is for ARP and neighbour discovery, ``flood`` for all other floods, ``report`` for packet-ins,
    ``newcomer`` for frames of new pairs, which have no flow entry yet, ``agent`` for the control frames of its host's
    agent.
    """

    send: int | None = None
    flood: int | None = None
    discovery: int | None = None
    report: int | None = None
    newcomer: int | None = None
    agent: int | None = None


_REPORT = Output(PORT_CONTROLLER, REPORT_BYTES)


def _flow(
    table: Table, priority: int, match: Match, *actions: Action, **rest: int | bool | WriteMetadata | None
) -> Flow:
    return Flow(table, priority, match, OWN_COOKIE | table, actions=actions, **rest)  # type: ignore[arg-type]


def link_discovery() -> Flow:
    """Send LLDP to the controller whole; edge ports have a flow entry of higher priority that drops it."""
    return _flow(Table.CLASSIFY, 1000, Match(eth_type=ETH_TYPE_LLDP), Output(PORT_CONTROLLER, 0xFFFF))


def drop_link_local() -> Flow:
    """Drop link-local frames."""
    return _flow(Table.CLASSIFY, 900, Match(eth_dst=LINK_LOCAL, eth_dst_mask=LINK_LOCAL_MASK))


def drop_group_sources() -> Flow:
    """Drop frames whose source is a group address (IEEE 802, section 8.2), which no station has."""
    return _flow(Table.CLASSIFY, 950, Match(eth_src=GROUP_BIT, eth_src_mask=GROUP_BIT))


def drop_hosts_lldp(port_no: int) -> Flow:
    """Drop LLDP from edge ports: a host cannot forge links."""
    return Flow(Table.CLASSIFY, 1100, Match(in_port=port_no, eth_type=ETH_TYPE_LLDP), Refusal.LLDP.cookie)


def refuse_others(port: EdgePort, *, fenced: bool) -> tuple[Flow, ...]:
    """Drop and count, by reason, the frames of an edge port that no other flow entry admits."""
    all_frames = Match(in_port=port.port_no)
    if fenced:
        return (Flow(Table.CLASSIFY, 1, all_frames, Refusal.FENCED.cookie),)
    # A port with a VLAN for untagged frames has flow entries that admit them.
    refused_vids = () if port.untagged_vid is not None else (VLAN_NONE, VLAN_PRIORITY)
    untagged = [
        Flow(Table.CLASSIFY, 2, all_frames._replace(vlan_vid=vid), Refusal.UNTAGGED.cookie) for vid in refused_vids
    ]
    return *untagged, Flow(Table.CLASSIFY, 1, all_frames, Refusal.FOREIGN_VLAN.cookie)


def drop_control(ethertype: int) -> Flow:
    """Drop control frames, such as a host's PAUSE or a forged Set Rate: they never cross a switch."""
    return _flow(Table.CLASSIFY, 1040, Match(eth_type=ethertype))


def agent_frames(port: EdgePort, vlan_vid: int, ethertype: int, meter_id: int | None) -> Flow:
    """Send the control frames of the agent behind an edge port, for one of its VLANs, to the controller whole."""
    match = Match(in_port=port.port_no, vlan_vid=port.tag_of(vlan_vid) or VLAN_NONE, eth_type=ethertype)
    return _flow(Table.CLASSIFY, 1050, match, Output(PORT_CONTROLLER, 0xFFFF), meter_id=meter_id)


def drop_agent_frames(port_no: int, ethertype: int) -> Flow:
    """Drop the control frames of the agent behind an edge port."""
    return _flow(Table.CLASSIFY, 1060, Match(in_port=port_no, eth_type=ethertype))


def admit(port: EdgePort, vlan_vid: int) -> tuple[Flow, ...]:
    """Admit an edge port's frames of one of its VLANs to the pipeline.

    Frames of an access port's VLAN, or a trunk's native one, are untagged, or have a tag with VLAN id 0, whose priority
    they keep (IEEE 802.1Q, 6.9). A trunk accepts tagged frames of its native VLAN as well.
    """

    def enter(vid_of_frame: int, *actions: Action) -> Flow:
        match = Match(in_port=port.port_no, vlan_vid=vid_of_frame)
        return _flow(Table.CLASSIFY, 100, match, *actions, goto_table=Table.SEND_LIMIT)

    tagged = () if port.is_access else (enter(vlan_vid),)
    if port.tag_of(vlan_vid) is not None:
        return tagged
    set_vid = SetVlanVid(vlan_vid)
    return enter(VLAN_NONE, PushVlan(), set_vid), enter(VLAN_PRIORITY, set_vid), *tagged


def admit_from_fabric(port_no: int, vlan_vid: int, *, marks: bool = False) -> Flow:
    """Forward frames that another switch has admitted; ``marks``: they may carry marks."""
    return _flow(Table.CLASSIFY, 100, Match(in_port=port_no, vlan_vid=vlan_vid), goto_table=_after_metering(marks))


def limit_sender(port_no: int, vlan_vid: int, meter_id: int | None, *, closed: bool = False) -> Flow:
    """Let a VN's frames pass the meter of its send limit, if there is one; ``closed``: drop them if there is none."""
    match = Match(in_port=port_no, vlan_vid=vlan_vid)
    goto = None if closed and meter_id is None else Table.LEARN
    return _flow(Table.SEND_LIMIT, 100, match, meter_id=meter_id, goto_table=goto)


def unknown_source(port_no: int, vlan_vid: int, *, report: bool) -> Flow:
    """Forward a VN's frames from unknown source addresses, and report them unless the VN is full."""
    match = Match(in_port=port_no, vlan_vid=vlan_vid)
    flag = _flag(vlan_vid, MetadataFlag.UNKNOWN_SOURCE) if report else None
    return _flow(Table.LEARN, 1, match, write_metadata=flag, goto_table=Table.RATE_CONTROL)


def unknown_group_source(port_no: int, vlan_vid: int) -> Flow:
    """Report a VN's broadcast and group frames from unknown source addresses.

    For a VN whose other frames from unknown addresses are not reported: a moved host sends broadcast or group frames.
    """
    match = Match(in_port=port_no, vlan_vid=vlan_vid, eth_dst=GROUP_BIT, eth_dst_mask=GROUP_BIT)
    flag = _flag(vlan_vid, MetadataFlag.UNKNOWN_SOURCE)
    return _flow(Table.LEARN, 2, match, write_metadata=flag, goto_table=Table.RATE_CONTROL)


def known_source(port_no: int, vlan_vid: int, mac: int, ageing_s: int) -> Flow:
    """Accept a VN's frames from a known source address; the flow entry reports when the address has aged."""
    match = Match(in_port=port_no, vlan_vid=vlan_vid, eth_src=mac)
    ageing: dict[str, int | bool] = {"idle_timeout_s": ageing_s, "send_flow_removed": True}
    return _flow(Table.LEARN, 100, match, goto_table=Table.RATE_CONTROL, **ageing)


def rate_control(
    port_no: int, vlan_vid: int, mac: int, meter_id: int | None, ageing_s: int, *, marks: bool = False
) -> Flow:
    """Let a sender VN's frames to an address of a receiver VN pass the pair's meter, if it has one.

    ``marks``: other switches may mark them.
    """
    match = Match(in_port=port_no, vlan_vid=vlan_vid, eth_dst=mac)
    ageing: dict[str, int | bool] = {"idle_timeout_s": ageing_s, "send_flow_removed": True}
    return _flow(Table.RATE_CONTROL, 100, match, meter_id=meter_id, goto_table=_after_metering(marks), **ageing)


def forward_within_vn(port_no: int, vlan_vid: int, mac: int) -> Flow:
    """Keep frames between two hosts of the same VN behind their port."""
    return _flow(Table.RATE_CONTROL, 100, Match(in_port=port_no, vlan_vid=vlan_vid, eth_dst=mac))


def report_new_pair(vlan_vid: int, mac: int, *, marks: bool = False, limited: bool = False) -> Flow:
    """Forward and report frames to a known address from a VN that has no flow entry for the pair yet.

    If no queue holds the address's VN they are ``limited``, and switches along the path may not mark them.
    """
    match = Match(vlan_vid=vlan_vid, eth_dst=mac)
    flag = _flag(vlan_vid, MetadataFlag.NEW_PAIR)
    table = Table.COUNT if limited else _after_metering(marks)
    return _flow(Table.RATE_CONTROL, 10, match, write_metadata=flag, goto_table=table)


def limit_newcomer(port_no: int, vlan_vid: int, meter_id: int) -> Flow:
    """Limit a VN's frames of new pairs by a meter, until the pairs have flow entries."""
    flag = int(MetadataFlag.NEW_PAIR)
    match = Match(in_port=port_no, vlan_vid=vlan_vid, metadata=flag, metadata_mask=flag)
    return _flow(Table.COUNT, 100, match, meter_id=meter_id, goto_table=Table.FORWARD)


def limit_floods(port_no: int, vlan_vid: int, meters: VnMeters) -> tuple[Flow, ...]:
    """Let a VN's frames to broadcast, group and unknown addresses pass a meter.

    ARP and Neighbor Solicitations have a separate meter, so that neighbours are found while the VN floods; without one
    they pass the flood meter.
    """
    discovery = meters.flood if meters.discovery is None else meters.discovery
    vn = Match(in_port=port_no, vlan_vid=vlan_vid)
    arp = vn._replace(eth_type=ETH_TYPE_ARP)
    solicitations = vn._replace(eth_type=ETH_TYPE_IPV6, eth_dst=SOLICITED_NODE, eth_dst_mask=SOLICITED_NODE_MASK)
    return (
        _flow(Table.RATE_CONTROL, 3, arp, meter_id=discovery, goto_table=Table.FORWARD),
        _flow(Table.RATE_CONTROL, 3, solicitations, meter_id=discovery, goto_table=Table.FORWARD),
        _flow(Table.RATE_CONTROL, 1, vn, meter_id=meters.flood, goto_table=Table.FORWARD),
    )


def pass_unmetered() -> tuple[Flow, ...]:
    """Forward unchanged the frames that MARKS and COUNT have no other flow entry for."""
    return tuple(_flow(table, 0, Match(), goto_table=Table.FORWARD) for table in (Table.MARKS, Table.COUNT))


class EcnMarking(NamedTuple):
    """The ECN field of packets without ECN between switches, ECT_1 or ECT_0, and whether hosts see marks."""

    codepoint: int
    keep: bool


HIDDEN_ECT_1 = EcnMarking(ECT_1, keep=False)


def allow_marks(port_no: int, vlan_vid: int, marking: EcnMarking) -> tuple[Flow, ...]:
    """Let switches along the path mark a VN's IP packets, even if its hosts do not use ECN.

    Other frames are unchanged.
    """
    set_ect = SetIpEcn(marking.codepoint)
    not_ect = [Match(in_port=port_no, vlan_vid=vlan_vid, eth_type=kind, ip_ecn=NOT_ECT) for kind in ETH_TYPES_IP]
    return tuple(_flow(Table.MARKS, 100, match, set_ect, goto_table=Table.FORWARD) for match in not_ect)


def clear_marks(port_no: int, vlan_vid: int, mac: int, marking: EcnMarking) -> tuple[Flow, ...]:
    """Count marked packets to a host behind an edge port, and clear the marks and the codepoint of ``allow_marks``.

    ECT(0) stays, whoever wrote it: hosts' TCP sends it. Deviation: the paper clears marks only, since its hypervisors
    write ECT into every packet and remove it.
    """
    host = Match(vlan_vid=vlan_vid, eth_dst=mac)
    receiver = WriteMetadata(port_no << _RECEIVER_SHIFT, _RECEIVER_MASK)
    flows = []
    clear = SetIpEcn(NOT_ECT)
    hide = () if marking.keep else (clear,)
    for kind in ETH_TYPES_IP:
        marked, unmarked = (host._replace(eth_type=kind, ip_ecn=ecn) for ecn in (CE, ECT_1))
        flows.append(_flow(Table.MARKS, 110, marked, *hide, write_metadata=receiver, goto_table=Table.COUNT))
        if marking.codepoint == ECT_1:
            flows.append(_flow(Table.MARKS, 110, unmarked, clear, goto_table=Table.FORWARD))
    return tuple(flows)


def count_marks(port_no: int, vlan_vid: int, mac: int, meter_id: int) -> Flow:
    """Let marked frames from an address to the VN behind a port pass a meter that only counts."""
    receiver = port_no << _RECEIVER_SHIFT
    match = Match(vlan_vid=vlan_vid, eth_src=mac, metadata=receiver, metadata_mask=_RECEIVER_MASK)
    return _flow(Table.COUNT, 100, match, meter_id=meter_id, goto_table=Table.FORWARD)


def report(port_no: int, vlan_vid: int, meter_id: int | None) -> Flow:
    """Send a VN's flagged frames within its meter to the controller; all have been forwarded already."""
    match = Match(in_port=port_no, metadata=vlan_vid, metadata_mask=int(MetadataFlag.VLAN))
    return _flow(Table.PACKET_IN, 100, match, _REPORT, meter_id=meter_id)


def meters_of_vn(flow: Flow) -> tuple[int, int, VnMeters] | None:
    """Return the port number and VLAN id of a flow entry's VN, and the VN's meter in the flow entry.

    None for a flow entry without a meter of ``VnMeters``; the meter of the send limit is not looked for.
    """
    match = flow.match
    if flow.meter_id is None or match.in_port is None:
        return None
    if flow.table_id == Table.CLASSIFY and match.vlan_vid is not None and match.eth_type in CONTROL_ETH_TYPES:
        return match.in_port, match.vlan_vid, VnMeters(agent=flow.meter_id)
    if flow.table_id == Table.PACKET_IN and match.metadata is not None:  # the metadata that it matches is the VLAN id
        return match.in_port, match.metadata, VnMeters(report=flow.meter_id)
    if flow.table_id == Table.COUNT and match.vlan_vid is not None:
        return match.in_port, match.vlan_vid, VnMeters(newcomer=flow.meter_id)
    if flow.table_id != Table.RATE_CONTROL or match.vlan_vid is None:
        return None
    if match.eth_type is None and match.eth_dst is None:
        return match.in_port, match.vlan_vid, VnMeters(flood=flow.meter_id)
    if match.eth_type == ETH_TYPE_ARP:
        return match.in_port, match.vlan_vid, VnMeters(discovery=flow.meter_id)
    return None


def _after_metering(marks: bool) -> Table:
    """Return the table after the senders' meters, for frames that may carry ``marks`` or may not."""
    return Table.MARKS if marks else Table.FORWARD


def _flag(vlan_vid: int, reason: MetadataFlag) -> WriteMetadata:
    """Return the instruction that flags a VLAN's frames with the reason for a packet-in, and notes the VLAN."""
    return WriteMetadata(int(reason) | vlan_vid, int(reason | MetadataFlag.VLAN))


def _to_edge(port: EdgePort, vlan_vid: int, set_queue: bool) -> tuple[Action, ...]:
    """Return the actions that send a frame out of an edge port: set the VLAN's queue, remove the tag, output."""
    # The queue of a VLAN has the VLAN's number. Most switches without queues accept set_queue and ignore it.
    queue = (SetQueue(vlan_vid),) if set_queue else ()
    untag = (PopVlan(),) if port.tag_of(vlan_vid) is None else ()
    return (*queue, *untag, Output(port.port_no))


def forward_to_edge(port: EdgePort, vlan_vid: int, mac: int, *, set_queue: bool = True, phantom: bool = False) -> Flow:
    """Forward to an address behind an edge port of this switch; with ``set_queue`` through its VN's queue.

    If the VN has a ``phantom`` meter, forwarded frames then pass that meter, and get their tag back for it.
    """
    actions, table = _to_edge(port, vlan_vid, set_queue), Table.PHANTOM if phantom else Table.PACKET_IN
    if phantom and port.tag_of(vlan_vid) is None:
        actions = (*actions, PushVlan(), SetVlanVid(vlan_vid))
    return _flow(Table.FORWARD, 100, Match(vlan_vid=vlan_vid, eth_dst=mac), *actions, goto_table=table)


def phantom(vlan_vid: int, mac: int, meter_id: int) -> Flow:
    """Let forwarded frames to an address pass the phantom meter of its VN; only copies are dropped."""
    match = Match(vlan_vid=vlan_vid, eth_dst=mac)
    return _flow(Table.PHANTOM, 100, match, meter_id=meter_id, goto_table=Table.PACKET_IN)


def forward_to_switch(port_no: int, vlan_vid: int, mac: int) -> Flow:
    """Forward to an address behind another switch, out of the port that leads there."""
    match = Match(vlan_vid=vlan_vid, eth_dst=mac)
    return _flow(Table.FORWARD, 100, match, Output(port_no), goto_table=Table.PACKET_IN)


def flood(
    vlan_vid: int, fabric_ports: Iterable[int], edge_ports: Iterable[EdgePort], *, set_queue: bool = True
) -> Flow:
    """Flood broadcast, multicast and unknown unicast along the tree and out of every edge port of the VLAN.

    A frame never leaves by the port at which it arrived (OpenFlow 1.3.5, section 7.2.5, Output). Tagged copies come
    first, since untagging for an access port would also affect later copies.
    """
    tagged_first = sorted(edge_ports, key=lambda port: port.tag_of(vlan_vid) is None)
    actions: list[Action] = [Output(port_no) for port_no in sorted(fabric_ports)]
    is_untagged = False
    for port in tagged_first:
        for action in _to_edge(port, vlan_vid, set_queue):
            if isinstance(action, PopVlan):
                if is_untagged:  # a tag can be removed only once
                    continue
                is_untagged = True
            actions.append(action)
    return _flow(Table.FORWARD, 10, Match(vlan_vid=vlan_vid), *actions, goto_table=Table.PACKET_IN)
