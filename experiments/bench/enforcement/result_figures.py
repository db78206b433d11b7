"""Figures from the files of a run of ``dets bench enforcement``. Pure functions on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.bench.enforcement.cases import Case
from experiments.bench.enforcement.grant_injection import COLUMNS
from experiments.bench.enforcement.grant_schedules import STEP
from experiments.bench.harness import Target
from experiments.measure.frame_sizes import VLAN_TAG_BYTES
from experiments.measure.rate_series import MeasurementError, Samples, Window

FloatArray = NDArray[np.float64]

AFTER_STEP_S = 1.0  # time of a step down that is measured, from one interval after the step


@dataclass(frozen=True, slots=True)
class GrantLog:
    """The grants of one slot, (intervals,) each: an interval's grant applies from its ``time_s`` on.

    ``modifies`` is the number of meter-mods so far.
    """

    time_s: FloatArray
    grant_bps: FloatArray
    modifies: FloatArray

    def granted_bits(self, start_s: float, end_s: float) -> float:
        """Return the bits granted in a span: each grant applies from its time to the next one's."""
        edges_s = np.clip(np.append(self.time_s, np.inf), start_s, end_s)
        return float((self.grant_bps * np.diff(edges_s)).sum())


def read_grants(path: Path, slots: int) -> list[GrantLog]:
    """Return the log of each slot from the CSV that ``grant_injection`` wrote.

    MeasurementError if it has fewer than two rows for each slot.
    """
    table = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
    if len(table) < 2 * slots:
        raise MeasurementError(f"{path}: the controller ran no two intervals")
    logs = []
    for slot in range(slots):
        columns = dict(zip(COLUMNS, table[table[:, 1] == slot].T, strict=True))
        logs.append(GrantLog(columns["time_s"], columns["grant_bps"], columns["modifies"]))
    return logs


def wire_bits(samples: Samples, start_s: float, end_s: float) -> float:
    """Return the bits that an interface sent in a span, interpolated between samples.

    The VLAN tag is added to each frame, since frames are tagged on the wire of an edge port.
    """
    bits = 8.0 * (samples.sent_bytes + VLAN_TAG_BYTES * samples.packets)
    start, end = np.interp([start_s, end_s], samples.time_s, bits)
    return float(end - start)


def case_figures(case: Case, log: GrantLog, samples: Samples, window: Window) -> dict[str, Any]:
    """Return the figures of one case over the whole window; rates are those of tagged frames on the wire."""
    duration_s = window.end_s - window.start_s
    delivered_bits = wire_bits(samples, window.start_s, window.end_s)
    granted_bits = log.granted_bits(window.start_s, window.end_s)
    in_window = (log.time_s >= window.start_s) & (log.time_s < window.end_s)
    if in_window.sum() < 2:
        raise MeasurementError(f"{case.name}: the controller ran no two intervals while it was measured")
    modifies = log.modifies[in_window]
    figures: dict[str, Any] = {
        "granted_bps": granted_bits / duration_s,
        "delivered_bps": delivered_bits / duration_s,
        "ratio": delivered_bits / granted_bits,
        "meter_mods_per_s": float(modifies[-1] - modifies[0]) / duration_s,
    }
    if case.pattern == "step":
        figures["step_ratio"] = step_ratio(log, samples, window)
    return figures


def step_ratio(log: GrantLog, samples: Samples, window: Window) -> float:
    """Return delivered over granted bits of all steps down, each for AFTER_STEP_S from one interval after the step on.

    Steps whose time is not wholly in ``window`` do not count; without any MeasurementError.
    """
    interval_s = float(np.median(np.diff(log.time_s)))
    # A step divides the grant by STEP, and both grants are rounded to kb/s: half of STEP is a safe sign of it.
    steps_down = np.flatnonzero(log.grant_bps[1:] < log.grant_bps[:-1] / (STEP / 2)) + 1
    delivered_bits = granted_bits = 0.0
    for step_s in log.time_s[steps_down]:
        start_s, end_s = step_s + interval_s, step_s + interval_s + AFTER_STEP_S
        if step_s < window.start_s or end_s > window.end_s:
            continue
        delivered_bits += wire_bits(samples, start_s, end_s)
        granted_bits += log.granted_bits(start_s, end_s)
    if not granted_bits:
        raise MeasurementError(f"no step down with {AFTER_STEP_S:g} s of measurement after it")
    return delivered_bits / granted_bits


def targets(rows: Sequence[Mapping[str, Any]]) -> list[Target]:
    """Return the targets, each with its value in ``rows``, the figures of each case in each mode.

    For UDP and for TCP the value is the product's worst difference between delivered and granted rate, as a part of the
    grant; under constant grants it is the product's number of meter-mods over that of the naive modes.
    """
    product_rows = [row for row in rows if row["way"] == "dets"]
    found = []
    for udp, kind in ((True, "UDP"), (False, "TCP")):
        protocol_rows = [row for row in product_rows if row["udp"] is udp]
        for key, quantity in (
            ("ratio", "delivered / granted"),
            ("step_ratio", "after a step down, delivered / granted"),
        ):
            rows_with_key = [row for row in protocol_rows if row.get(key) is not None]
            if not rows_with_key:
                continue
            # A step down is about excess over the grant; less is the sender's own recovery.
            deviations = {
                row["case"]: max(row[key] - 1, 0) if key == "step_ratio" else abs(row[key] - 1) for row in rows_with_key
            }
            worst = max(deviations, key=lambda case: deviations[case])
            tolerance = rows_with_key[0]["within"]
            name = f"{kind}, {quantity}, worst ({worst})"
            found.append(Target(name, deviations[worst], "off the grant", tolerance))
    steady = [row for row in rows if row["pattern"] == "constant"]
    naive_mods_per_s = [row["meter_mods_per_s"] for row in steady if row["way"] != "dets"]
    product_mods_per_s = [row["meter_mods_per_s"] for row in steady if row["way"] == "dets"]
    if naive_mods_per_s and product_mods_per_s:
        share = float(np.mean(product_mods_per_s) / max(np.mean(naive_mods_per_s), 1e-9))
        found.append(Target("meter-mods in steady state, of naive mode's", share, "ratio", 0.1))
    return found
