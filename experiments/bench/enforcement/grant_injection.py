"""Grants that follow a schedule, enforced by the real controller, for ``dets bench enforcement``.

``grant_injection_app.py`` is the DETS application with one addition: before every interval, the receive limits of some
VNs are set to the schedule's values. Each of those VNs has one sender, so its limit is what the allocator grants that
sender. Everything else is the product's: congestion, allocation, enforcement, the meter-mods and their connection.

With ``naive_burst_s``, every meter is modified in every interval instead, as a simple application does: to the granted
rate, and a burst of that many seconds of it.

The plan is a JSON file (``GrantPlan``) that the environment variable DETS_GRANTS names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from controller.columns import FloatArray
from controller.metering.enforcement import RATE_STEP_BPS, Enforcement, MeterChanges, to_kilo, whole_rates
from controller.metering.measurement import Measurement
from experiments.bench.enforcement.grant_schedules import grants_bps
from experiments.model.control.settings_operator import Operator

ENVIRONMENT = "DETS_GRANTS"
COLUMNS = ("time_s", "slot", "grant_bps", "modifies")
NAIVE_MIN_BITS = 13_000  # a bucket that holds less than a frame passes nothing


@dataclass(frozen=True, slots=True)
class Slot:
    """A sender and its receiver, VNs of ``vlan_vid`` at two ports of a switch, and the schedule of the grant.

    ``pattern`` is a key of PATTERNS, ``nominal_bps`` its largest grant.
    """

    vlan_vid: int
    dpid: int
    sender_port: int
    receiver_port: int
    nominal_bps: int
    pattern: str


@dataclass(frozen=True, slots=True)
class GrantPlan:
    """All slots of a run, for a number of ``intervals``.

    ``naive_burst_s`` is None for the product's enforcement. ``log`` is the path of a CSV of COLUMNS.
    """

    slots: tuple[Slot, ...]
    naive_burst_s: float | None
    seed: int
    intervals: int
    log: str

    def write(self, path: Path) -> None:
        """Write the plan for the application to read."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str) -> GrantPlan:
        """Return a plan that ``write`` wrote."""
        content = json.loads(Path(path).read_text())
        return cls(**{**content, "slots": tuple(Slot(**slot) for slot in content["slots"])})


def naive_enforcement(burst_s: float) -> Callable[..., tuple[Enforcement, MeterChanges]]:
    """Return a replacement for ``controller.metering.enforcement.enforce`` that sets every meter in every interval."""

    def enforce(
        before: Enforcement,
        limit_bps: FloatArray,
        measured: Measurement,
        reading_s: FloatArray,
        now_s: float,
        *unused: object,
    ) -> tuple[Enforcement, MeterChanges]:
        del measured, reading_s, unused
        rate_bps = whole_rates(limit_bps)
        burst_bits = np.ceil(np.maximum(rate_bps * burst_s, NAIVE_MIN_BITS) / RATE_STEP_BPS) * RATE_STEP_BPS
        now_column_s = np.full(len(rate_bps), now_s)
        after = before._replace(
            limit_bps=rate_bps,
            modified_s=now_column_s,
            rate_kbps=to_kilo(rate_bps),
            burst_kbits=to_kilo(burst_bits),
        )
        return after, MeterChanges(np.arange(len(rate_bps)), after.rate_kbps, after.burst_kbits)

    return enforce


class GrantInjector:
    """Sets the limits of a plan before each interval of a southbound driver, and logs the results after it."""

    def __init__(self, plan: GrantPlan, driver: Any) -> None:
        self._plan = plan
        self._driver = driver
        self._run_interval = driver.run_interval
        self._grants_bps = [  # (intervals,) of each slot
            grants_bps(slot.pattern, slot.nominal_bps, plan.intervals, plan.seed + number)
            for number, slot in enumerate(plan.slots)
        ]
        self._operator = Operator(driver.central)
        vns = driver.central.vns
        self._senders = [vns.row_of(slot.vlan_vid, slot.dpid, slot.sender_port) for slot in plan.slots]
        self._receivers = [vns.row_of(slot.vlan_vid, slot.dpid, slot.receiver_port) for slot in plan.slots]
        self._modifies = [0] * len(plan.slots)
        self._modified_s = [0.0] * len(plan.slots)
        self._interval = 0
        self._log: TextIO = Path(plan.log).open("w", buffering=1)  # noqa: SIM115  (until the process ends)
        self._log.write(",".join(COLUMNS) + "\n")

    def run_interval(self) -> None:
        """Set the limits that are due, run one interval of the driver, and log a line for each slot."""
        central = self._driver.central
        now_s = self._driver.now_s()
        interval = min(self._interval, self._plan.intervals - 1)
        due_bps = [int(schedule_bps[interval]) for schedule_bps in self._grants_bps]
        for row, grant_bps in zip(self._receivers, due_bps, strict=True):
            if central.vns.receive_limit_bps[row] != grant_bps:
                self._operator.set_vn(row, now_s, receive_limit_bps=grant_bps)
        self._run_interval()
        self._interval += 1
        sent_s = self._driver.now_s()
        self._log.write("".join(self._line(slot, sent_s, grant_bps) for slot, grant_bps in enumerate(due_bps)))

    def _line(self, slot: int, sent_s: float, grant_bps: int) -> str:
        """Return the CSV line of one slot, with the values of COLUMNS.

        ``sent_s`` is when the interval's meter-mods had been sent, ``grant_bps`` the injected grant. "modifies" counts
        the meter's modifies since the start, at most one per interval.
        """
        state = self._driver.central.state
        pairs, modified_s = state.entries, state.enforcement.modified_s
        is_own = (pairs.sender == self._senders[slot]) & (pairs.receiver == self._receivers[slot])
        for row in np.flatnonzero(is_own).tolist():  # none while the pair table does not have the pair
            if modified_s[row] != self._modified_s[slot]:
                self._modified_s[slot] = float(modified_s[row])
                self._modifies[slot] += 1
        return f"{sent_s:.6f},{slot},{grant_bps},{self._modifies[slot]}\n"
