"""Meters to modify as rows of messages, by switch."""

from __future__ import annotations

import numpy as np

from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.metering.enforcement import MeterChanges
from controller.native_loader import choose
from controller.openflow import meter_codec_native
from controller.openflow.constants import MeterModCommand
from controller.openflow.meters import IntColumn, MeterMods

Part = tuple[int, int, int]
"""A switch (dpid), and the range of its rows."""


def modifications(meter_id: IntColumn, rate_kbps: IntColumn, burst_kbits: IntColumn) -> MeterMods:
    """Return a MODIFY for each meter, (4, meters): command, id, rate, burst; all values must fit a band.

    The values of a meter are adjacent in memory.
    """
    mods = np.empty((len(meter_id), 4), dtype=np.uint32).T
    mods[0] = int(MeterModCommand.MODIFY)
    mods[1], mods[2], mods[3] = meter_id, rate_kbps, burst_kbits
    return mods


def _compiled_by_switch(vns: VnTable, entries: PairTable, changes: MeterChanges) -> tuple[MeterMods, list[Part]]:
    """Return the meter-mods, and the part of them for each switch, by the native function."""
    changed = (changes.rows, changes.rate_kbps, changes.burst_kbits)
    columns = (*changed, entries.sender, entries.meter_id, vns.switch)
    mods, ends_of = meter_codec_native.pack_modifications(int(MeterModCommand.MODIFY), columns, len(vns.dpids))
    ends = ends_of.tolist()
    return mods, list(zip(vns.dpids, [0, *ends], ends, strict=False))


def _plain_by_switch(vns: VnTable, entries: PairTable, changes: MeterChanges) -> tuple[MeterMods, list[Part]]:
    """Return what ``_compiled_by_switch`` does: meter-mods by the senders' switches, in the order of ``changes``."""
    order, parts = vns.by_switch(entries.sender[changes.rows])
    rows = changes.rows[order]
    return modifications(entries.meter_id[rows], changes.rate_kbps[rows], changes.burst_kbits[rows]), parts


modifications_by_switch = choose(meter_codec_native, _compiled_by_switch, _plain_by_switch)
