"""The report of ``dets bench loop``: targets and the columns of its table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.bench.harness import Target
from experiments.bench.loop.cost_fit import fit, round_ms

SWITCHES = 10  # switches of the sizes with a baseline
VARIED = (1.0, 0.1)  # shares of receivers whose load varies
TARGET_TIMES_BASELINE = {1_000: 8.0, 10_000: 20.0, 100_000: 100.0}
TARGET_ROUND_MS = {(200, 100_000): 15.0, (20, 1_000_000): 110.0}  # of CPU, by switches and pairs
TARGET_SWITCH_US, TARGET_PAIR_NS, TARGET_FIXED_MS, TARGET_FIT = 60.0, 80.0, 1.0, 0.15
TARGET_IDLE_SHARE = 0.02
COLUMNS = {
    "pairs": "{pairs:,}",
    "switches": "{switches}",
    "who": "{who}",
    "set": "{set_share:.0%}",
    "round every, ms": "{round_every_ms:.1f}",
    "round p50 / p99 / max, ms": "{total_ms[p50]:.1f} / {total_ms[p99]:.1f} / {total_ms[max]:.1f}",
    "poll p50": "{poll_ms[p50]:.1f}",
    "step p50 / p99 / max": "{step_ms[p50]:.1f} / {step_ms[p99]:.1f} / {step_ms[max]:.1f}",
    "push p50": "{push_ms[p50]:.1f}",
    "pairs/s": "{pairs_per_s:,.0f}",
    "skipped": "{skipped_rounds}",
    "late answers": "{poll_timeouts}",
    "CPU": "{cpu_share:.0%}",
    "CPU us/pair": "{cpu_us_per_pair:.3f}",
    "bytes/pair": "{bytes_per_pair:,.0f}",
}


def rows_all_varying(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the controller's rows in which every receiver's load varies."""
    return [row for row in rows if (row["who"], row["varied"]) == ("dets", VARIED[0])]


def targets(rows: Sequence[dict[str, Any]]) -> list[Target]:
    """Return the targets that the measured sizes allow to check.

    Of a row, "who" is dets, idle or baseline, and "varied" the share of receivers whose load varies.
    """
    found: list[Target] = []
    all_varying = rows_all_varying(rows)
    if (cost := fit(all_varying)) is not None:
        found.append(Target("CPU of a round per switch", cost.switch_us, "us", TARGET_SWITCH_US))
        found.append(Target("CPU of a round per pair", cost.pair_ns, "ns", TARGET_PAIR_NS))
        found.append(Target("CPU of a round, fixed", cost.fixed_ms, "ms", TARGET_FIXED_MS))
        found.append(Target("largest relative error of the fit", cost.worst, "of 1", TARGET_FIT))
    for row in all_varying:
        target_ms = TARGET_ROUND_MS.get((row["switches"], row["pairs"]))
        if target_ms is not None:
            name = f"CPU of a round, {row['pairs']:,} pairs on {row['switches']} switches"
            found.append(Target(name, round_ms(row), "ms", target_ms))
            found.append(Target(f"{name}: intervals skipped", row["skipped_rounds"], "", 0.0))
    for row in all_varying:
        if "replay" in row:
            size = f"{row['pairs']:,} pairs on {row['switches']} switches"
            name = f"{size}, {row['replay']['intervals']} intervals replayed: different from the recording"
            found.append(Target(name, float(not row["replay"]["same"]), "", 0.0))
    found += [
        Target(f"idle, {row['switches']} switches: CPU", row["cpu_share"], "of a core", TARGET_IDLE_SHARE)
        for row in rows
        if row["who"] == "idle"
    ]
    baseline_ms = {
        row["pairs"]: round_ms(row) for row in rows if (row["who"], row["varied"]) == ("baseline", VARIED[0])
    }
    for row in all_varying:
        target = TARGET_TIMES_BASELINE.get(row["pairs"])
        if target is not None and row["switches"] == SWITCHES and row["pairs"] in baseline_ms:
            ratio = baseline_ms[row["pairs"]] / round_ms(row)
            found.append(Target(f"CPU against the baseline, {row['pairs']:,} pairs", ratio, "x", target, least=True))
    return found
