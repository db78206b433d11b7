"""What the shards control: VNs, pairs that cross, and meters that let through exactly the limit in force.

Every VN sends to as many others, and offers each twice what its fair share is: all receivers are congested.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.fabric.vns import VnTable
from controller.loop import step
from controller.metering.counters import MeterReadings
from controller.policy.groups import PolicyChoice, PolicyGroup, groups_of, under
from controller.units import BITS_PER_BYTE

VLAN = 1
RECEIVE_LIMIT_BPS = 1e9
OFFERED = 2.0
"""what a sender offers to each of its receivers, in fair shares"""


@dataclass(frozen=True)
class World:
    """A fabric of ``switches`` with ``ports`` VNs each; each VN sends to ``receivers`` others, the same on all runs.

    ``offsets`` (receivers,) says which: VN s sends to s + offset.
    """

    vns: VnTable
    groups: tuple[PolicyGroup, ...]
    offsets: IntArray

    @classmethod
    def of(cls, switches: int, ports: int, receivers: int, algorithm: str, seed: int) -> World:
        """Return the world; ``receivers`` must be less than there are VNs."""
        rows = switches * ports
        limits_bps, unlimited = np.full(rows, RECEIVE_LIMIT_BPS), np.full(rows, 2 * OFFERED * RECEIVE_LIMIT_BPS)
        no, nothing = np.zeros(rows, dtype=np.bool_), np.full(rows, np.nan)
        vns = VnTable(
            vlan_vid=np.full(rows, VLAN),
            dpid=np.repeat(np.arange(1, switches + 1, dtype=np.uint64), ports),
            port_no=np.tile(np.arange(1, ports + 1), switches),
            send_limit_bps=unlimited,
            receive_limit_bps=limits_bps,
            weight=np.ones(rows),
            capacity_bps=unlimited,
            send_ceiling_bps=nothing,
            receive_ceiling_bps=nothing,
            borrows=no,
            port_ceilings=no,
            always_controlled=no,
            shaped=~no,
        )
        choices = {VLAN: PolicyChoice(algorithm)}
        offsets = 1 + np.random.default_rng(seed).choice(rows - 1, receivers, replace=False)
        return cls(under(vns, choices), groups_of(vns, choices), np.sort(offsets))

    @property
    def senders(self) -> int:
        """How many senders each receiver has."""
        return len(self.offsets)

    @property
    def offered_bps(self) -> float:
        """What a VN that sends offers to each of its receivers."""
        return OFFERED * RECEIVE_LIMIT_BPS / self.senders

    def pairs_of(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return senders and receivers of the pairs that VNs of ``rows`` send to, sorted by receiver, then sender."""
        sender = np.repeat(rows, self.senders)
        receiver = (sender + np.tile(self.offsets, len(rows))) % len(self.vns)
        order = np.lexsort((sender, receiver))
        return sender[order], receiver[order]

    def fair_bps(self, sends: BoolArray) -> FloatArray:
        """Return what each sender of a receiver gets, (vns,), while the VNs of ``sends`` (vns,) do."""
        active = np.zeros(len(self.vns))
        for offset in self.offsets.tolist():
            active += np.roll(sends, offset)
        return RECEIVE_LIMIT_BPS / np.maximum(active, 1.0)


class Meters:
    """The meters of a shard's entries, in the order of its entry table, as they count between two readings."""

    def __init__(self) -> None:
        self._octets = self._dropped = np.empty(0)
        self._began_s, self._read_s = 0.0, np.nan

    def carried(self, kept: IntArray, entries: int) -> None:
        """Entries are others: those of new rows ``kept`` are the old ones, in order; the rest begin to count now."""
        for name in ("_octets", "_dropped"):
            column = np.zeros(entries)
            column[kept] = getattr(self, name)
            setattr(self, name, column)

    def without(self, kept: BoolArray) -> None:
        """Only the entries that are ``kept`` (entries,) stay."""
        self._octets, self._dropped = self._octets[kept], self._dropped[kept]

    def read(self, state: step.ControlState, offered_bps: FloatArray, now_s: float) -> MeterReadings:
        """Let every entry send what it offers, (entries,), since the last reading; return what the meters count."""
        elapsed_s = 0.0 if np.isnan(self._read_s) else now_s - self._read_s
        self._read_s = now_s
        limit_bps = state.enforcement.limit_bps
        self._octets += offered_bps * (elapsed_s / BITS_PER_BYTE)
        self._dropped += np.maximum(offered_bps - limit_bps, 0.0) * (elapsed_s / BITS_PER_BYTE)
        entries = len(limit_bps)
        at_s, no_confirmation = np.full(entries, now_s), np.full(entries, np.nan)
        there = np.ones(entries, dtype=np.bool_)
        return MeterReadings(self._octets.copy(), self._dropped.copy(), at_s, at_s, there, no_confirmation)

    def modified(self, rows: IntArray) -> None:
        """These meters are set, and count from zero again."""
        self._octets[rows] = self._dropped[rows] = 0.0
