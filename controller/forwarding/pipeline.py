"""The pipeline: nine named tables and the flow entries that can stand in each.

| table        | matches                     | does                                                              |
|--------------|-----------------------------|-------------------------------------------------------------------|
| CLASSIFY     | port and VLAN               | gives frames of access ports their tag, admits known VLANs only   |
| SEND_LIMIT   | sending VN                  | the meter of the VN's send limit                                  |
| LEARN        | sending VN, source address  | marks frames from unknown source addresses                        |
| RATE_CONTROL | sending VN, destination     | the meter of the (sender VN, receiver VN) entry; marks new pairs; |
|              |                             | the meters of what is flooded                                     |
| MARKS        | sending VN, ECN             | lets what leaves for other switches be marked there (ECT)         |
|              | VLAN, destination, ECN      | takes ECT and congestion marks (CE) off what has arrived          |
| COUNT        | receiving VN, source        | the meter that counts what came with a mark                       |
|              | sending VN, mark            | the meter of what the VN sends to new pairs                       |
| FORWARD      | VLAN, destination           | receiving queue and output; floods the unknown                    |
| PHANTOM      | VLAN, destination           | the phantom meter of the receiving VN: what it drops is gone out  |
| REPORT       | sending VN, mark            | the meter of what the VN may have reported; sends it up             |

Only VLANs whose policy asks for marks have entries of their own in MARKS, COUNT and PHANTOM; the frames of others, what
stays on one switch and what is flooded go by. Those of new pairs pass COUNT where no queue holds their receiver. Frames
from other switches were limited where they entered the fabric:
they go from CLASSIFY straight to FORWARD, or to MARKS. A
table without a matching entry drops (OpenFlow 1.3.5, section 5.4): nothing untagged, unknown or foreign gets through.

A meter drops the frame itself, so what goes to the controller has its meter behind the output: a frame that is not
reported is forwarded all the same. It may be untagged there; the mark (metadata) says its VLAN.
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
REPORT_BYTES = 128  # enough of a frame to see its addresses and its tag


class Table(IntEnum):
    """The tables by number.

    PHANTOM comes before REPORT: a frame that its meter drops has been delivered, and is not reported. The meter lets
    nearly all of a receive limit pass, so that the next frames of a new pair are reported.
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
    """Why an edge port's frames get no further than CLASSIFY; each has entries of its own, whose cookies say which."""

    FENCED = 1
    LLDP = 2
    UNTAGGED = 3
    FOREIGN_VLAN = 4

    @property
    def cookie(self) -> int:
        """The cookie of the entries that drop such frames."""
        return REFUSAL_COOKIE | self << 12 | Table.CLASSIFY


class MetadataFlag(IntFlag):
    """What a frame's metadata says: its VLAN id, and why it may go to the controller."""

    VLAN = 0xFFF
    UNKNOWN_SOURCE = 0x1000
    NEW_PAIR = 0x2000


# RFC 3168, section 5. ECT(1) and not ECT(0), as guests' TCP sends: theirs stays as it is, and what had none has none.
NOT_ECT, ECT_1, ECT_0, CE = 0, 1, 2, 3
# A frame with a mark carries the port of its receiver from MARKS to COUNT, above what ``Mark`` says.
_RECEIVER_SHIFT = 16
_RECEIVER_MASK = 0xFFFF_FFFF << _RECEIVER_SHIFT


class VnMeters(NamedTuple):
    """The meters of one sending VN, whoever its frames are for; None where there is none.

    ``discovery`` is for what asks where neighbours are, ``flood`` for everything else that is flooded, ``report`` for
    what goes to the controller, ``newcomer`` for what it sends to VNs for which it has no entry yet, ``agent`` for the
    control frames of its host's agent.
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
    """LLDP goes to the controller whole; edge ports have an entry of higher priority that drops it."""
    return _flow(Table.CLASSIFY, 1000, Match(eth_type=ETH_TYPE_LLDP), Output(PORT_CONTROLLER, 0xFFFF))


def drop_link_local() -> Flow:
    """Frames that never leave a link are not forwarded."""
    return _flow(Table.CLASSIFY, 900, Match(eth_dst=LINK_LOCAL, eth_dst_mask=LINK_LOCAL_MASK))


def drop_group_sources() -> Flow:
    """No station's address is a group's (IEEE 802, section 8.2): such a source cannot be learned, only reported."""
    return _flow(Table.CLASSIFY, 950, Match(eth_src=GROUP_BIT, eth_src_mask=GROUP_BIT))


def drop_hosts_lldp(port_no: int) -> Flow:
    """A host cannot forge links: LLDP from edge ports is dropped."""
    return Flow(Table.CLASSIFY, 1100, Match(in_port=port_no, eth_type=ETH_TYPE_LLDP), Refusal.LLDP.cookie)


def refuse_others(port: EdgePort, *, fenced: bool) -> tuple[Flow, ...]:
    """What an edge port lets in by no other entry is dropped here, and counted by reason."""
    every = Match(in_port=port.port_no)
    if fenced:
        return (Flow(Table.CLASSIFY, 1, every, Refusal.FENCED.cookie),)
    plain = () if port.untagged_vid is not None else (VLAN_NONE, VLAN_PRIORITY)
    untagged = [Flow(Table.CLASSIFY, 2, every._replace(vlan_vid=vid), Refusal.UNTAGGED.cookie) for vid in plain]
    return *untagged, Flow(Table.CLASSIFY, 1, every, Refusal.FOREIGN_VLAN.cookie)


def drop_control(ethertype: int) -> Flow:
    """Control frames never cross a switch: PAUSE of a host, forged Set Rate."""
    return _flow(Table.CLASSIFY, 1040, Match(eth_type=ethertype))


def agent_frames(port: EdgePort, vlan_vid: int, ethertype: int, meter_id: int | None) -> Flow:
    """What the agent behind an edge port says of one of its VLANs goes to the controller whole."""
    match = Match(in_port=port.port_no, vlan_vid=port.tag_of(vlan_vid) or VLAN_NONE, eth_type=ethertype)
    return _flow(Table.CLASSIFY, 1050, match, Output(PORT_CONTROLLER, 0xFFFF), meter_id=meter_id)


def drop_agent_frames(port_no: int, ethertype: int) -> Flow:
    """Nothing that the agent behind an edge port says goes to the controller."""
    return _flow(Table.CLASSIFY, 1060, Match(in_port=port_no, eth_type=ethertype))


def admit(port: EdgePort, vlan_vid: int) -> tuple[Flow, ...]:
    """An edge port's frames of one of its VLANs enter the pipeline.

    Those of an access port's VLAN, or a trunk's native one, carry no tag, or one of VLAN id 0, whose priority they
    keep (IEEE 802.1Q, 6.9). A trunk takes those of its native VLAN with their tag as well.
    """

    def enter(vid_of_frame: int, *actions: Action) -> Flow:
        match = Match(in_port=port.port_no, vlan_vid=vid_of_frame)
        return _flow(Table.CLASSIFY, 100, match, *actions, goto_table=Table.SEND_LIMIT)

    own = () if port.is_access else (enter(vlan_vid),)
    if port.tag_of(vlan_vid) is not None:
        return own
    tag = SetVlanVid(vlan_vid)
    return enter(VLAN_NONE, PushVlan(), tag), enter(VLAN_PRIORITY, tag), *own


def admit_from_fabric(port_no: int, vlan_vid: int, *, marks: bool = False) -> Flow:
    """Frames that another switch has admitted are forwarded; ``marks``: they may carry some."""
    return _flow(Table.CLASSIFY, 100, Match(in_port=port_no, vlan_vid=vlan_vid), goto_table=_next(marks))


def limit_sender(port_no: int, vlan_vid: int, meter_id: int | None, *, closed: bool = False) -> Flow:
    """A VN's frames pass the meter of its send limit, if the switch has one for it; ``closed``: none pass without."""
    match = Match(in_port=port_no, vlan_vid=vlan_vid)
    goto = None if closed and meter_id is None else Table.LEARN
    return _flow(Table.SEND_LIMIT, 100, match, meter_id=meter_id, goto_table=goto)


def unknown_source(port_no: int, vlan_vid: int, *, report: bool) -> Flow:
    """A VN's frames from a source address not yet known: forwarded, and reported unless the VN has too many of them."""
    match = Match(in_port=port_no, vlan_vid=vlan_vid)
    mark = _mark(vlan_vid, MetadataFlag.UNKNOWN_SOURCE) if report else None
    return _flow(Table.LEARN, 1, match, write_metadata=mark, goto_table=Table.RATE_CONTROL)


def unknown_caller(port_no: int, vlan_vid: int) -> Flow:
    """Those to everybody or to a group, reported where no others are: hosts that have moved say so in these."""
    match = Match(in_port=port_no, vlan_vid=vlan_vid, eth_dst=GROUP_BIT, eth_dst_mask=GROUP_BIT)
    mark = _mark(vlan_vid, MetadataFlag.UNKNOWN_SOURCE)
    return _flow(Table.LEARN, 2, match, write_metadata=mark, goto_table=Table.RATE_CONTROL)


def known_source(port_no: int, vlan_vid: int, mac: int, ageing_s: int) -> Flow:
    """A VN's frames from a known source address; the entry tells when the address has aged."""
    match = Match(in_port=port_no, vlan_vid=vlan_vid, eth_src=mac)
    ageing: dict[str, int | bool] = {"idle_timeout_s": ageing_s, "send_flow_removed": True}
    return _flow(Table.LEARN, 100, match, goto_table=Table.RATE_CONTROL, **ageing)


def rate_control(
    port_no: int, vlan_vid: int, mac: int, meter_id: int | None, ageing_s: int, *, marks: bool = False
) -> Flow:
    """A sender VN's frames to an address of a receiver VN pass the entry's meter, if there is one left for it.

    ``marks``: other switches may mark them.
    """
    match = Match(in_port=port_no, vlan_vid=vlan_vid, eth_dst=mac)
    ageing: dict[str, int | bool] = {"idle_timeout_s": ageing_s, "send_flow_removed": True}
    return _flow(Table.RATE_CONTROL, 100, match, meter_id=meter_id, goto_table=_next(marks), **ageing)


def forward_within_vn(port_no: int, vlan_vid: int, mac: int) -> Flow:
    """Frames between two hosts of the same VN stay behind their port."""
    return _flow(Table.RATE_CONTROL, 100, Match(in_port=port_no, vlan_vid=vlan_vid, eth_dst=mac))


def report_new_pair(vlan_vid: int, mac: int, *, marks: bool = False, limited: bool = False) -> Flow:
    """Frames to a known address from a sender without an entry: forwarded and reported.

    Where no queue holds the address's VN they are ``limited``, and no switch on the way may mark them.
    """
    match = Match(vlan_vid=vlan_vid, eth_dst=mac)
    mark = _mark(vlan_vid, MetadataFlag.NEW_PAIR)
    table = Table.COUNT if limited else _next(marks)
    return _flow(Table.RATE_CONTROL, 10, match, write_metadata=mark, goto_table=table)


def limit_newcomer(port_no: int, vlan_vid: int, meter_id: int) -> Flow:
    """What a VN sends to VNs for which it has no entries yet passes a meter, until it has them."""
    mark = int(MetadataFlag.NEW_PAIR)
    match = Match(in_port=port_no, vlan_vid=vlan_vid, metadata=mark, metadata_mask=mark)
    return _flow(Table.COUNT, 100, match, meter_id=meter_id, goto_table=Table.FORWARD)


def limit_floods(port_no: int, vlan_vid: int, meters: VnMeters) -> tuple[Flow, ...]:
    """A VN's frames to everybody, to a group, or to an address that nobody is known to have pass a meter.

    ARP and Neighbor Solicitations have one of their own, so that neighbours are found while the VN floods; where there
    are too few meters, they pass that of other floods.
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
    """What MARKS and COUNT have no entry for is forwarded as it is."""
    return tuple(_flow(table, 0, Match(), goto_table=Table.FORWARD) for table in (Table.MARKS, Table.COUNT))


class EcnMarking(NamedTuple):
    """What packets without ECN carry between switches, ECT_1 or ECT_0, and whether hosts see the marks made there."""

    codepoint: int
    keep: bool


HIDDEN_ECT_1 = EcnMarking(ECT_1, keep=False)


def allow_marks(port_no: int, vlan_vid: int, marking: EcnMarking) -> tuple[Flow, ...]:
    """Switches on the way may mark a VN's IP packets, though its hosts do not speak ECN; other frames stay alone."""
    plain = [Match(in_port=port_no, vlan_vid=vlan_vid, eth_type=kind, ip_ecn=NOT_ECT) for kind in ETH_TYPES_IP]
    return tuple(
        _flow(Table.MARKS, 100, match, SetIpEcn(marking.codepoint), goto_table=Table.FORWARD) for match in plain
    )


def clear_marks(port_no: int, vlan_vid: int, mac: int, marking: EcnMarking) -> tuple[Flow, ...]:
    """Packets to a host behind an edge port lose their marks, and what ``allow_marks`` wrote; marked ones are counted.

    ECT(0) stays, whoever wrote it: hosts' TCP sends it.
    Deviation: the paper clears marks alone, since its hypervisors write ECT into every packet and take it off.
    """
    host = Match(vlan_vid=vlan_vid, eth_dst=mac)
    receiver = WriteMetadata(port_no << _RECEIVER_SHIFT, _RECEIVER_MASK)
    flows = []
    for kind in ETH_TYPES_IP:
        marked, allowed = (host._replace(eth_type=kind, ip_ecn=ecn) for ecn in (CE, ECT_1))
        clear = SetIpEcn(NOT_ECT)
        hidden = () if marking.keep else (clear,)
        flows.append(_flow(Table.MARKS, 110, marked, *hidden, write_metadata=receiver, goto_table=Table.COUNT))
        if marking.codepoint == ECT_1:
            flows.append(_flow(Table.MARKS, 110, allowed, clear, goto_table=Table.FORWARD))
    return tuple(flows)


def count_marks(port_no: int, vlan_vid: int, mac: int, meter_id: int) -> Flow:
    """What came with a mark from an address to the VN behind a port passes a meter that only counts."""
    receiver = port_no << _RECEIVER_SHIFT
    match = Match(vlan_vid=vlan_vid, eth_src=mac, metadata=receiver, metadata_mask=_RECEIVER_MASK)
    return _flow(Table.COUNT, 100, match, meter_id=meter_id, goto_table=Table.FORWARD)


def report(port_no: int, vlan_vid: int, meter_id: int | None) -> Flow:
    """Of a VN's marked frames, those that pass its meter go to the controller; all have been forwarded already."""
    match = Match(in_port=port_no, metadata=vlan_vid, metadata_mask=int(MetadataFlag.VLAN))
    return _flow(Table.PACKET_IN, 100, match, _REPORT, meter_id=meter_id)


def meters_of_vn(flow: Flow) -> tuple[int, int, VnMeters] | None:
    """Return the port and VLAN of the VN whose flood, report or other own meter an entry names, and that meter."""
    match = flow.match
    if flow.meter_id is None or match.in_port is None:
        return None
    if flow.table_id == Table.CLASSIFY and match.vlan_vid is not None and match.eth_type in CONTROL_ETH_TYPES:
        return match.in_port, match.vlan_vid, VnMeters(agent=flow.meter_id)
    if flow.table_id == Table.PACKET_IN and match.metadata is not None:
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


def _next(marks: bool) -> Table:
    return Table.MARKS if marks else Table.FORWARD


def _mark(vlan_vid: int, why: MetadataFlag) -> WriteMetadata:
    return WriteMetadata(int(why) | vlan_vid, int(why | MetadataFlag.VLAN))


def _to_edge(port: EdgePort, vlan_vid: int, set_queue: bool) -> tuple[Action, ...]:
    # The queue of a VLAN has the VLAN's number. Most switches without queues take set_queue and ignore it.
    queue = (SetQueue(vlan_vid),) if set_queue else ()
    untag = (PopVlan(),) if port.tag_of(vlan_vid) is None else ()
    return (*queue, *untag, Output(port.port_no))


def forward_to_edge(port: EdgePort, vlan_vid: int, mac: int, *, set_queue: bool = True, phantom: bool = False) -> Flow:
    """An address behind one of the switch's own edge ports; ``set_queue`` unless it has no queues.

    Where its VN has a ``phantom`` meter, what has gone out passes that, with its tag again.
    """
    actions, table = _to_edge(port, vlan_vid, set_queue), Table.PHANTOM if phantom else Table.PACKET_IN
    if phantom and port.tag_of(vlan_vid) is None:
        actions = (*actions, PushVlan(), SetVlanVid(vlan_vid))
    return _flow(Table.FORWARD, 100, Match(vlan_vid=vlan_vid, eth_dst=mac), *actions, goto_table=table)


def phantom(vlan_vid: int, mac: int, meter_id: int) -> Flow:
    """What went out to an address passes the phantom meter of its VN; it drops what nobody needs any more."""
    match = Match(vlan_vid=vlan_vid, eth_dst=mac)
    return _flow(Table.PHANTOM, 100, match, meter_id=meter_id, goto_table=Table.PACKET_IN)


def forward_to_switch(port_no: int, vlan_vid: int, mac: int) -> Flow:
    """An address behind another switch: out of the port that leads there."""
    match = Match(vlan_vid=vlan_vid, eth_dst=mac)
    return _flow(Table.FORWARD, 100, match, Output(port_no), goto_table=Table.PACKET_IN)


def flood(
    vlan_vid: int, fabric_ports: Iterable[int], edge_ports: Iterable[EdgePort], *, set_queue: bool = True
) -> Flow:
    """Broadcast, multicast and the unknown: along the tree, and out of every edge port of the VLAN.

    A frame never goes back out of the port it came in by (OpenFlow 1.3.5, section 7.2.5, Output). Tagged copies go
    first, since untagging for an access port would last for those after it.
    """
    edges = sorted(edge_ports, key=lambda port: port.tag_of(vlan_vid) is None)
    actions: list[Action] = [Output(port_no) for port_no in sorted(fabric_ports)]
    untagged = False
    for port in edges:
        for action in _to_edge(port, vlan_vid, set_queue):
            if isinstance(action, PopVlan):
                if untagged:
                    continue
                untagged = True
            actions.append(action)
    return _flow(Table.FORWARD, 10, Match(vlan_vid=vlan_vid), *actions, goto_table=Table.PACKET_IN)
