"""A fabric as its counters see it: every VN sends to every other one of its VLAN; meters drop what is above limits.

Receiving queues serve what is guaranteed, then the rest in proportion, and drop what the port does not carry. Phantom
meters have no burst.
"""

from __future__ import annotations

import numpy as np
from support.configs import star

from controller.fabric.link_table import LinkTable
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.loop import control_step, pair_changes
from controller.metering.counters import MeterReadings
from controller.metering.fabric_readings import FabricReadings
from controller.metering.mark_readings import PHANTOM_PART, MarkReadings
from controller.metering.port_readings import PortReadings
from controller.metering.queue_readings import QueueReadings
from controller.policy.policy_groups import apply_choices, choices_of, groups_of

PORTS = 6
INTERVAL_S = 1 / 16  # so that rates, and sums of rates, are exact
KBIT = 1024.0 * 16
LIMIT = "8M"
FRAME_BITS = 1518 * 8


def ints(values):
    return np.array(values, dtype=np.int64)


class World:
    """A fabric in which every VN sends to every other one of its VLAN, and what its meters count."""

    def __init__(self, algorithm, limits=None, **options):
        config = star(PORTS, limits=limits or {10: LIMIT}, algorithm=algorithm, **options)
        choices = choices_of(config)
        vns = apply_choices(VnTable.from_config(config), choices)
        self.vns = vns.with_columns(has_queue=np.ones(len(vns), dtype=np.bool_))
        self.links = LinkTable.access_links(self.vns)
        self.groups = groups_of(self.vns, choices)
        everybody, vlan_vid = range(len(vns)), vns.vlan_vid
        pairs = [(a, b) for a in everybody for b in everybody if a != b and vlan_vid[a] == vlan_vid[b]]
        self.sender, self.receiver = ints([pair[0] for pair in pairs]), ints([pair[1] for pair in pairs])
        self.now_s, self.octets, self.dropped = 1000.0, np.zeros(len(pairs)), np.zeros(len(pairs))
        self.served_bps = self.queue_dropped_bps = self.came_bps = np.zeros(len(vns))
        self.ports_at = np.empty(len(self.links.names), dtype=np.int64)  # the VN at whose switch a link's port is
        self.ports_at[self.links.up] = self.ports_at[self.links.down] = np.arange(len(vns))
        self.sent_bps = np.zeros(len(self.links.names))
        self.entries = PairTable.empty().add(self.sender, self.receiver, np.arange(1, len(pairs) + 1))[0]

    def state(self, rows):
        """Return the state in which the entries of these rows of the fabric's table have just been added."""
        entries, nothing = self.entries, control_step.ControlState.start(self.vns, self.groups)
        added = entries.sender[rows], entries.receiver[rows], entries.meter_id[rows]
        rates = np.full(len(rows), 8e6)
        return pair_changes.add_entries(nothing, self.vns, *added, rates, rates / 8, self.now_s, added_now=True)

    def pass_interval(self, offered_kbits, limit_bps):
        """Let every entry send, and its meter drop what is above the limit."""
        self.now_s += INTERVAL_S
        offered = ints(offered_kbits)[np.arange(len(self.octets)) % len(offered_kbits)] * KBIT
        passed = np.minimum(offered, np.floor(np.minimum(limit_bps, 1e9) / KBIT) * KBIT)
        self.octets += offered * INTERVAL_S / 8
        self.dropped += (offered - passed) * INTERVAL_S / 8
        self.came_bps = np.bincount(self.entries.receiver, passed, len(self.vns))
        self._queues(self.came_bps)
        offsets, link = self.links.pair_links(self.entries, np.arange(len(passed)))
        sent_bps = np.bincount(link, np.repeat(passed, np.diff(offsets)), len(self.links.names))
        self.sent_bps = np.minimum(sent_bps, self.links.capacity_bps)

    def _queues(self, came_bps):
        vns, port = self.vns, self.links.down
        first = np.minimum(came_bps, vns.receive_limit_bps)
        more = np.minimum(came_bps, vns.receive_max_bps) - first
        left = vns.capacity_bps - np.bincount(port, first)[port]
        self.served_bps = first + more * np.minimum(left / np.maximum(np.bincount(port, more)[port], 1.0), 1.0)
        self.queue_dropped_bps = came_bps - self.served_bps

    def observed(self, mine):
        """Return what some VNs' queues and phantom meters, (vns,), and their switches' ports say of the interval."""
        (served, dropped), elapsed_s = (self.served_bps, self.queue_dropped_bps), np.full(len(mine), INTERVAL_S)
        packets = (column * INTERVAL_S / FRAME_BITS for column in (served, dropped))
        columns = [np.where(mine, one, np.nan) for one in (served, next(packets), dropped, next(packets), elapsed_s)]
        at = mine[self.ports_at]
        sent_bps, nothing = np.where(at, self.sent_bps, np.nan), np.full(len(at), np.nan)
        ports = PortReadings(sent_bps, nothing, np.where(at, INTERVAL_S, np.nan), at, np.zeros(len(at), dtype=np.bool_))
        beyond_bps = np.maximum(self.came_bps - PHANTOM_PART * self.vns.receive_limit_bps, 0.0)
        of_vns = np.where(mine, self.came_bps, np.nan), np.where(mine, beyond_bps, np.nan)
        marks = MarkReadings(np.full(len(self.entries), np.nan), *of_vns)
        return FabricReadings(QueueReadings(*columns, mine, np.zeros(len(mine), dtype=np.bool_)), ports, marks)

    def modified(self, rows):
        """The meters of these rows are modified, which restarts their counters."""
        self.octets[rows] = self.dropped[rows] = 0.0

    def readings(self, rows):
        """Return what the meters of these rows count."""
        count = len(rows)
        duration_s = np.full(count, self.now_s - 1000.0)
        seen = self.octets[rows], self.dropped[rows], duration_s, np.full(count, self.now_s)
        return MeterReadings(*seen, np.ones(count, dtype=np.bool_), np.full(count, np.nan))
