"""Limits without a controller: one fixed meter per pair and a queue per VLAN, set once with ovs-ofctl and ovs-vsctl.

An operator can do this by hand if senders and receivers are known and never change. It shows what the fabric itself can
enforce. This is the baseline that dynamic control must beat once demands vary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.ovs.ovs_vsctl import ofctl, vsctl
from topologies.fabric import Fabric, PhysicalNode, VirtualNode

TCP_BURST_S = 0.200  # TCP through a policer needs about its minimum RTO of burst
UDP_BURST_S = 0.020
DEFAULT_QUEUE_MIN_BPS = 1_000_000

Ends = tuple[VirtualNode, VirtualNode]
QueueRates = Mapping[PhysicalNode, Mapping[int, int]]
"""By receiving PN, the receive limit of each VLAN (bit/s)."""


@dataclass(frozen=True, slots=True)
class Share:
    """The fixed limit of the traffic from one VN to another."""

    sender: VirtualNode
    receiver: VirtualNode
    rate_kbps: int
    burst_kbits: int


def equal_shares(
    bursts_s: Mapping[Ends, float],
    send_limit_bps: Mapping[VirtualNode, int],
    receive_limit_bps: Mapping[VirtualNode, int],
) -> list[Share]:
    """Return a share for each pair: the lower of an equal part of the sender's and of the receiver's limit.

    A VN's limit is divided equally among its peers. ``bursts_s`` is the burst of each pair, as time at the pair's rate.
    """
    peers_of_sender, peers_of_receiver = (Counter(ends[side] for ends in bursts_s) for side in (0, 1))
    send_part_bps = {vn: send_limit_bps[vn] // count for vn, count in peers_of_sender.items()}
    receive_part_bps = {vn: receive_limit_bps[vn] // count for vn, count in peers_of_receiver.items()}
    return whole_limits(bursts_s, send_part_bps, receive_part_bps)


def whole_limits(
    bursts_s: Mapping[Ends, float],
    send_limit_bps: Mapping[VirtualNode, int],
    receive_limit_bps: Mapping[VirtualNode, int],
) -> list[Share]:
    """Return a share for each pair that is the lower of its two limits, regardless of the VNs' other pairs."""
    shares = []
    for (sender, receiver), burst_s in bursts_s.items():
        rate_kbps = max(min(send_limit_bps[sender], receive_limit_bps[receiver]) // 1000, 1)
        shares.append(Share(sender, receiver, rate_kbps, max(round(rate_kbps * burst_s), 1)))
    return shares


def install_static_limits(fabric: Fabric, shares: Sequence[Share], queues: QueueRates) -> None:
    """Install the shares as meters at the senders' edge switches, and the queues at the receivers'.

    A queue's min-rate and max-rate are its limit. Switches forward alone (NORMAL).
    """
    for switch in fabric.switches:
        ofctl("add-flow", switch.name, "priority=1,actions=NORMAL")
    for meter_id, share in enumerate(shares, start=1):
        _add_meter(meter_id, share)
    for pn, limits_bps in queues.items():
        _add_queues(pn, limits_bps)


def _add_meter(meter_id: int, share: Share) -> None:
    """Add the meter of a share at the sender's edge switch, and the flow entry that uses the meter."""
    pn = share.sender.pn
    band = f"band=type=drop,rate={share.rate_kbps},burst_size={share.burst_kbits}"
    ofctl("add-meter", pn.switch, f"meter={meter_id},kbps,burst,stats,{band}")
    match = f"priority=100,in_port={pn.port_no},dl_vlan={share.sender.vlan_vid},dl_dst={share.receiver.mac}"
    ofctl("add-flow", pn.switch, f"{match},actions=meter:{meter_id},NORMAL")


def _add_queues(receiver: PhysicalNode, limits_bps: Mapping[int, int]) -> None:
    """Add a queue per VLAN to the edge port of a receiving PN; the fabric destroys them when it closes."""
    commands = ["--", "--id=@q0", "create", "Queue", f"other_config:min-rate={DEFAULT_QUEUE_MIN_BPS}"]
    queues = ["queues:0=@q0"]
    for vid, limit_bps in limits_bps.items():
        rates = [f"other_config:min-rate={limit_bps}", f"other_config:max-rate={limit_bps}"]
        commands += ["--", f"--id=@q{vid}", "create", "Queue", *rates]
        queues.append(f"queues:{vid}=@q{vid}")
    commands += ["--", "--id=@qos", "create", "QoS", "type=linux-htb"]
    commands += [f"other_config:max-rate={receiver.link_rate_bps}", *queues]
    vsctl(*commands[1:], "--", "set", "Port", receiver.edge_interface, "qos=@qos")
