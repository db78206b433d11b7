"""The receiving queues that a fabric should have: one HTB class per VLAN on every edge port.

A queue's number is its VLAN id, so that ``set_queue`` and queue-stats need no table. It has two rates: the guaranteed
rate of the VLAN (``min_rate_bps``, the VN's receive limit) and its maximum (``max_rate_bps``).

Deviation: the paper has no queue at the receiver. Here both rates are the limit by default, ``queues.max_rate: limit``
(and the queue hides overshoot; docs/results.md has both). Meters make traffic bursty, and a shaper smooths it; a queue
that may borrow the idle rest of the port never fills, so it smooths nothing. DETS lends nothing between VLANs either.
``queues.max_rate: capacity`` lends idle bandwidth. docs/adr/0003-meters-and-queues.md has the figures. A VLAN with
``max-min`` may borrow, up to its VNs' receive ceilings, and so may its queues.

``queues.mode: single`` leaves a port one queue for all VLANs, at the port's rate: a switch without classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.fabric.config_model import Config
from controller.fabric.vn_table import VnTable

DEFAULT_QUEUE_ID = 0
"""The queue of frames without ``set_queue`` in Open vSwitch."""

# The default queue carries only the controller's own frames, no VN's: it needs little. HTB serves a class below its
# min-rate even when the port is full, so this rate comes on top of the VLANs' limits; hence only 0.1 % of the port. 12
# kb/s is ovs-vswitchd's minimum (1500 bytes/s).
DEFAULT_QUEUE_SHARE = 0.001
MIN_QUEUE_BPS = 12_000

# The burst of a class, in time at its rate. A VLAN whose grants add up to its rate never makes up for time lost by a
# late timer or a busy switch; its TCP senders save it in their meters and overrun the queue. ovs-vswitchd raises it to
# at least one full frame.
BURST_S = 0.030


@dataclass(frozen=True, slots=True)
class Queue:
    """One HTB class: rates on the wire, as meters count them; ``burst_bits`` is the depth of its token bucket.

    ovs-vswitchd raises rates below 12 kb/s to 12 kb/s, and a burst below one full frame to one full frame.
    """

    queue_id: int
    min_rate_bps: int
    max_rate_bps: int
    burst_bits: int

    @property
    def vlan_vid(self) -> int | None:
        """The VLAN of the queue's frames; None for the default queue."""
        return None if self.queue_id == DEFAULT_QUEUE_ID else self.queue_id


@dataclass(frozen=True, slots=True)
class PortQueues:
    """The queues of one edge port, the default queue first, then by VLAN; ``max_rate_bps`` is the total of all."""

    port_no: int
    max_rate_bps: int
    queues: tuple[Queue, ...]


def desired_queues(config: Config, vns: VnTable) -> dict[int, dict[int, PortQueues]]:
    """Return the queues of every edge port by dpid and port number, for the effective receive limits (``vns``).

    Switches without an OVSDB address are included; the queue writer decides which ones it can set.
    """
    if config.queue_mode == "single":
        return {
            switch.dpid: {port.port_no: single_queue(port.port_no, port.capacity_bps) for port in switch.ports.values()}
            for switch in config.switches.values()
            if switch.ports
        }
    rows: dict[tuple[int, int], list[int]] = {}
    for row in range(len(vns)):
        key = vns.key(row)
        rows.setdefault((key.dpid, key.port_no), []).append(row)
    receive_max_bps = vns.receive_max_bps
    desired: dict[int, dict[int, PortQueues]] = {}
    for (dpid, port_no), port_rows in rows.items():
        capacity_bps = int(vns.capacity_bps[port_rows[0]])
        limits_bps = {int(vns.vlan_vid[row]): int(vns.receive_limit_bps[row]) for row in port_rows}
        max_bps = {int(vns.vlan_vid[row]): int(receive_max_bps[row]) for row in port_rows}
        borrows = config.queue_max_rate == "capacity"
        desired.setdefault(dpid, {})[port_no] = port_queues(port_no, capacity_bps, limits_bps, borrows, max_bps)
    return desired


def port_queues(
    port_no: int,
    capacity_bps: int,
    limits_bps: dict[int, int],
    borrows: bool,
    max_bps: Mapping[int, int] | None = None,
) -> PortQueues:
    """Return the queues of one port, with the receive limits of its VLANs, by VLAN id.

    ``borrows`` lets each VLAN use the idle rest of the port; otherwise a VLAN may use ``max_bps``, by default its
    limit.
    """
    max_bps = limits_bps if max_bps is None else max_bps
    queues = [_queue(DEFAULT_QUEUE_ID, max(round(capacity_bps * DEFAULT_QUEUE_SHARE), MIN_QUEUE_BPS), capacity_bps)]
    for vlan_vid, limit_bps in sorted(limits_bps.items()):
        queues.append(_queue(vlan_vid, limit_bps, capacity_bps if borrows else max_bps[vlan_vid]))
    return PortQueues(port_no, capacity_bps, tuple(queues))


def single_queue(port_no: int, capacity_bps: int) -> PortQueues:
    """Return the queues of a port without classes: one default queue for all VLANs, at the port's rate."""
    return PortQueues(port_no, capacity_bps, (_queue(DEFAULT_QUEUE_ID, capacity_bps, capacity_bps),))


def _queue(queue_id: int, min_rate_bps: int, max_rate_bps: int) -> Queue:
    """Return a queue with a burst of BURST_S at its guaranteed rate; the guaranteed rate is at most the maximum."""
    return Queue(queue_id, min(min_rate_bps, max_rate_bps), max_rate_bps, round(min_rate_bps * BURST_S))
