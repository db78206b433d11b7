"""A fabric as its meters see it: every VN sends to every other one of its VLAN; meters drop what is above limits."""

from __future__ import annotations

import numpy as np
from support.configs import star

from controller.fabric.entries import EntryTable
from controller.fabric.links import FabricLinks
from controller.fabric.vns import VnTable
from controller.loop import step
from controller.metering.counters import MeterReadings
from controller.policy.groups import choices_of, groups_of, under

PORTS = 6
INTERVAL_S = 1 / 16  # so that rates, and sums of rates, are exact
KBIT = 1024.0 * 16
LIMIT = "8M"


def ints(values):
    return np.array(values, dtype=np.int64)


class World:
    """A fabric in which every VN sends to every other one of its VLAN, and what its meters count."""

    def __init__(self, algorithm, limits=None, **options):
        config = star(PORTS, limits=limits or {10: LIMIT}, algorithm=algorithm, **options)
        choices = choices_of(config)
        vns = under(VnTable.of_config(config), choices)
        self.vns = vns.with_columns(shaped=np.ones(len(vns), dtype=np.bool_))
        self.links = FabricLinks.of_access(self.vns)
        self.groups = groups_of(self.vns, choices)
        everybody, vlan_vid = range(len(vns)), vns.vlan_vid
        pairs = [(a, b) for a in everybody for b in everybody if a != b and vlan_vid[a] == vlan_vid[b]]
        self.sender, self.receiver = ints([pair[0] for pair in pairs]), ints([pair[1] for pair in pairs])
        self.now_s, self.octets, self.dropped = 1000.0, np.zeros(len(pairs)), np.zeros(len(pairs))
        self.entries = EntryTable.empty().add(self.sender, self.receiver, np.arange(1, len(pairs) + 1))[0]

    def state(self, rows):
        """Return the state in which the entries of these rows of the fabric's table have just been added."""
        entries, nothing = self.entries, step.ControlState.start(self.vns, self.groups)
        added = entries.sender[rows], entries.receiver[rows], entries.meter_id[rows]
        rates = np.full(len(rows), 8e6)
        return step.add_entries(nothing, self.vns, *added, rates, rates / 8, self.now_s, added_now=True)

    def pass_interval(self, offered_kbits, limit_bps):
        """Let every entry send, and its meter drop what is above the limit."""
        self.now_s += INTERVAL_S
        offered = ints(offered_kbits)[np.arange(len(self.octets)) % len(offered_kbits)] * KBIT
        passed = np.minimum(offered, np.floor(np.minimum(limit_bps, 1e9) / KBIT) * KBIT)
        self.octets += offered * INTERVAL_S / 8
        self.dropped += (offered - passed) * INTERVAL_S / 8

    def modified(self, rows):
        """The meters of these rows are modified, which restarts their counters."""
        self.octets[rows] = self.dropped[rows] = 0.0

    def readings(self, rows):
        """Return what the meters of these rows count."""
        count = len(rows)
        duration_s = np.full(count, self.now_s - 1000.0)
        seen = self.octets[rows], self.dropped[rows], duration_s, np.full(count, self.now_s)
        return MeterReadings(*seen, np.ones(count, dtype=np.bool_), np.full(count, np.nan))
