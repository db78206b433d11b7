"""Limits without a controller: one fixed meter per sender and a queue per VLAN, set once with ovs-ofctl and ovs-vsctl.

What an operator can do by hand when senders and receivers are known and never change. It shows what the fabric itself
is able to hold, and is the baseline that dynamic control has to beat once demands vary.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.ovs_vsctl import ofctl, vsctl
from topologies.fabric import Fabric, PhysicalNode

TCP_BURST_S = 0.200  # TCP through a policer needs about its minimum RTO of burst
UDP_BURST_S = 0.020
DEFAULT_QUEUE_MIN_BPS = 1_000_000


def install_static_limits(fabric: Fabric, limits_bps: Mapping[int, int], burst_s: Mapping[int, float]) -> None:
    """Share each VLAN's limit equally among all PNs but the last, the receiver, by meters at their edge switches.

    ``limits_bps`` and ``burst_s`` are by VLAN id. The receiving port gets a queue per VLAN, min-rate and max-rate its
    limit. Switches forward by themselves (NORMAL).
    """
    *senders, receiver = fabric.pns
    for switch in fabric.switches:
        ofctl("add-flow", switch.name, "priority=1,actions=NORMAL")
    for vid, limit_bps in limits_bps.items():
        share_kbps = limit_bps // len(senders) // 1000
        for pn in senders:
            _add_meter(fabric, pn, vid, share_kbps, round(share_kbps * burst_s[vid]))
    _add_queues(receiver, limits_bps)


def _add_meter(fabric: Fabric, pn: PhysicalNode, vid: int, rate_kbps: int, burst_kbits: int) -> None:
    meter_id = 1000 * fabric.vlans.index(vid) + pn.number
    receiver = fabric.vn(vid, fabric.pns[-1].number)
    band = f"band=type=drop,rate={rate_kbps},burst_size={max(burst_kbits, 1)}"
    ofctl("add-meter", pn.switch, f"meter={meter_id},kbps,burst,stats,{band}")
    match = f"priority=100,in_port={pn.port_no},dl_vlan={vid},dl_dst={receiver.mac}"
    ofctl("add-flow", pn.switch, f"{match},actions=meter:{meter_id},NORMAL")


def _add_queues(receiver: PhysicalNode, limits_bps: Mapping[int, int]) -> None:
    """Queues go with the fabric: its ports' QoS rows are destroyed when it is taken away."""
    commands = ["--", "--id=@q0", "create", "Queue", f"other_config:min-rate={DEFAULT_QUEUE_MIN_BPS}"]
    queues = ["queues:0=@q0"]
    for vid, limit_bps in limits_bps.items():
        rates = [f"other_config:min-rate={limit_bps}", f"other_config:max-rate={limit_bps}"]
        commands += ["--", f"--id=@q{vid}", "create", "Queue", *rates]
        queues.append(f"queues:{vid}=@q{vid}")
    commands += ["--", "--id=@qos", "create", "QoS", "type=linux-htb"]
    commands += [f"other_config:max-rate={receiver.link_rate_bps}", *queues]
    vsctl(*commands[1:], "--", "set", "Port", receiver.edge_interface, "qos=@qos")
