"""What ``dets bench loop`` says of its rows: targets, a table and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.bench.loop.fit import fit, round_ms

SWITCHES = 10  # of the sizes that have a baseline
VARIED = (1.0, 0.1)  # shares of receivers whose load varies
TARGET_TIMES_BASELINE = {1_000: 8.0, 10_000: 20.0, 100_000: 100.0}
TARGET_ROUND_MS = {(200, 100_000): 15.0, (20, 1_000_000): 110.0}  # of CPU, by switches and entries
TARGET_SWITCH_US, TARGET_ENTRY_NS, TARGET_FIXED_MS, TARGET_FIT = 60.0, 80.0, 1.0, 0.15
TARGET_IDLE_SHARE = 0.02


def summary(row: dict[str, Any]) -> str:
    """Return a row in a few words."""
    taken_over = f", taken over after {row['taken_over_cpu_s']:.1f} s of CPU" if "taken_over_cpu_s" in row else ""
    return (
        f"a round every {row['round_every_ms']:.1f} ms, {row['cpu_us_per_entry']:.3f} us of CPU an entry, "
        f"{row['set_share']:.0%} set, CPU {row['cpu_share']:.0%}, {row['skipped_intervals']} skipped{taken_over}"
    )


def all_set(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the controller's rows in which every receiver's load varies."""
    return [row for row in rows if (row["who"], row["varied"]) == ("dets", VARIED[0])]


def targets(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the targets that the sizes measured allow to judge."""
    made: list[tuple[str, float, str, float, bool]] = []
    own = all_set(rows)
    if (cost := fit(own)) is not None:
        made.append(("CPU of a round by the switch", cost.switch_us, "us", TARGET_SWITCH_US, True))
        made.append(("CPU of a round by the entry", cost.entry_ns, "ns", TARGET_ENTRY_NS, True))
        made.append(("CPU of a round, fixed", cost.fixed_ms, "ms", TARGET_FIXED_MS, True))
        made.append(("the fit is off by at most", cost.worst, "of 1", TARGET_FIT, True))
    for row in own:
        target_ms = TARGET_ROUND_MS.get((row["switches"], row["entries"]))
        if target_ms is not None:
            name = f"CPU of a round, {row['entries']:,} entries on {row['switches']} switches"
            made.append((name, round_ms(row), "ms", target_ms, True))
            made.append((f"{name}: intervals skipped", row["skipped_intervals"], "", 0.0, True))
    for row in own:
        if "replay" in row:
            size = f"{row['entries']:,} entries on {row['switches']} switches"
            name = f"{size}, {row['replay']['intervals']} intervals replayed: other than recorded"
            made.append((name, float(not row["replay"]["same"]), "", 0.0, True))
    made += [
        (f"idle, {row['switches']} switches: CPU", row["cpu_share"], "of a core", TARGET_IDLE_SHARE, True)
        for row in rows
        if row["who"] == "idle"
    ]
    baseline_ms = {
        row["entries"]: round_ms(row) for row in rows if (row["who"], row["varied"]) == ("baseline", VARIED[0])
    }
    for row in own:
        target = TARGET_TIMES_BASELINE.get(row["entries"])
        if target is not None and row["switches"] == SWITCHES and row["entries"] in baseline_ms:
            times = baseline_ms[row["entries"]] / round_ms(row)
            made.append((f"CPU against the baseline, {row['entries']:,} entries", times, "x", target, False))
    return [
        {
            "name": name,
            "value": value,
            "unit": unit,
            "target": target,
            "met": value <= target if low else value >= target,
        }
        for name, value, unit, target, low in made
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    head = (
        "| entries | switches | who | set | round every, ms | round p50 / p99 / max, ms | poll p50 "
        "| step p50 / p99 / max | push p50 | entries/s | skipped | late answers | CPU | CPU us/entry | bytes/entry |"
    )
    lines = [head, "|" + "---|" * 15]
    for row in rows:
        total, step = row["total_ms"], row["step_ms"]
        memory = "" if row["bytes_per_entry"] is None else f"{row['bytes_per_entry']:,.0f}"
        lines.append(
            f"| {row['entries']:,} | {row['switches']} | {row['who']} | {row['set_share']:.0%} "
            f"| {row['round_every_ms']:.1f} "
            f"| {total['p50']:.1f} / {total['p99']:.1f} / {total['max']:.1f} | {row['poll_ms']['p50']:.1f} "
            f"| {step['p50']:.1f} / {step['p99']:.1f} / {step['max']:.1f} | {row['push_ms']['p50']:.1f} "
            f"| {row['entries_per_s']:,.0f} | {row['skipped_intervals']} | {row['unanswered_polls']} "
            f"| {row['cpu_share']:.0%} | {row['cpu_us_per_entry']:.3f} | {memory} |"
        )
    return "\n".join(lines) + "\n"


def plot(rows: Sequence[dict[str, Any]], path: Path) -> bool:
    """Draw cost per entry against size; return whether matplotlib is there to do it."""
    try:
        from matplotlib import pyplot
    except ImportError:
        return False
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for who, colour in (("dets", "tab:blue"), ("baseline", "tab:orange")):
        for varied, line in zip(VARIED, ("-", "--"), strict=True):
            some = [row for row in rows if (row["who"], row["varied"]) == (who, varied)]
            mine = [row for row in some if row["switches"] == SWITCHES] or some
            sizes = [row["entries"] for row in mine]
            costs = [row["cpu_us_per_entry"] for row in mine]
            axes.plot(sizes, costs, line, color=colour, marker="o", label=f"{who}, {varied:.0%} set again")
    axes.set(xscale="log", yscale="log", xlabel="metered entries", ylabel="CPU per entry and interval, µs")
    axes.set_title("One control interval: cost of an entry by the number of entries")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
