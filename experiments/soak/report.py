"""Shows a soak's progress, and writes its table and picture."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.soak.record import Record
from experiments.soak.schedule import ActionKind
from experiments.soak.verdict import MIB, judgements

COLUMNS = (
    *("time_s", "idle_share", "controller_rss_bytes", "controller_handles", "vswitchd_rss_bytes"),
    *("vswitchd_handles", "meters", "flows", "ovsdb_rows"),
)
COLOURS = {
    ActionKind.LINK: "tab:orange",
    ActionKind.CONTROLLER: "tab:red",
    ActionKind.LIMIT: "tab:green",
    ActionKind.ALGORITHM: "tab:purple",
}


@contextlib.contextmanager
def progress(duration_s: float) -> Iterator[Callable[[str, float], None]]:
    """Show what is being done and the time left, on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("soak", total=duration_s)

        def tell(phase: str, passed_s: float) -> None:
            bar.update(task, description=f"soak: {phase}", completed=passed_s)

        yield tell


def write_report(record: Record, result: dict[str, Any], output: Path) -> None:
    """Write series.csv and, where matplotlib is there, soak.png."""
    _write_csv(record, output / "series.csv")
    with contextlib.suppress(ModuleNotFoundError):
        _draw(record, result, output / "soak.png")


def _write_csv(record: Record, path: Path) -> None:
    """One line a look: time, idle share, memory and handles; every tenth or so with meters, entries and rows."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for look in record.looks:
            uses = [(use.rss_bytes, use.handles) if use else ("", "") for use in (look.controller, look.vswitchd)]
            held = (look.held.meters, look.held.flows, sum(look.held.rows.values())) if look.held else ("", "", "")
            time_s = f"{look.at_s - record.begin_s:.2f}"
            writer.writerow([time_s, f"{look.idle_share:.3f}", *uses[0], *uses[1], *held])


def _draw(record: Record, result: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    judged = judgements(record)
    floor = judged[0]
    other = record.fabric.vn(record.fabric.vlans[1], record.judged.pn.number).name
    figure, (top, middle, lower, bottom) = plt.subplots(4, 1, sharex=True, figsize=(14, 11), constrained_layout=True)
    time_s = floor.start_s - record.begin_s + 1.0
    top.plot(time_s, floor.received_bps / 1e6, label=f"{floor.vn}: goodput")
    top.step(time_s, floor.wanted_bps / 1e6, where="mid", color="black", lw=0.8, label="95 % of what its limit allows")
    _shade(top, time_s, floor.excused)
    top.plot(time_s[floor.missed], floor.received_bps[floor.missed] / 1e6, "rv", label="missed")
    ceiling = next(j for j in judged[1:] if j.vn == other)
    middle.plot(time_s, ceiling.received_bps / 1e6, label=f"{other}: wire rate")
    middle.step(time_s, ceiling.wanted_bps / 1e6, where="mid", color="black", lw=0.8, label="105 % of its limit")
    for axes in (top, middle):
        axes.set_ylabel("Mb/s")
        for done_s, action in record.diary.done:
            if action.kind in COLOURS:
                axes.axvline(done_s - record.begin_s, color=COLOURS[action.kind], lw=0.5, alpha=0.6)
    looks_s = np.array([look.at_s - record.begin_s for look in record.looks])
    for name in ("controller", "vswitchd"):
        sizes = [use.rss_bytes / MIB if (use := getattr(look, name)) else np.nan for look in record.looks]
        lower.plot(looks_s, sizes, label=f"{name}: memory, MiB")
        handles = [use.handles if (use := getattr(look, name)) else np.nan for look in record.looks]
        lower.plot(looks_s, handles, lw=0.8, ls="--", label=f"{name}: file handles")
    counted = [look for look in record.looks if look.held is not None]
    counted_s = [look.at_s - record.begin_s for look in counted]
    for name in ("meters", "flows"):
        bottom.plot(counted_s, [getattr(look.held, name) for look in counted], label=name)
    bottom.set_xlabel("seconds; lines: links orange, controller red, limits green, algorithms purple; grey: not judged")
    for axes in (top, middle, lower, bottom):
        axes.legend(loc="upper right", fontsize="small")
        axes.set_ylim(bottom=0)
    missed = [row["name"] for row in result["targets"] if not row["met"]]
    top.set_title(f"soak: {'missed: ' + ', '.join(missed) if missed else 'everything held'}", loc="left")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _shade(axes: Any, time_s: Any, excused: Any) -> None:
    for at_s in time_s[excused]:
        axes.axvspan(at_s - 1.0, at_s + 1.0, color="0.9", lw=0)
