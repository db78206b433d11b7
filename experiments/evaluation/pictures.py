"""Pictures of cells, in the paper's arrangement: a row per algorithm, received rates left, granted ones right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.evaluation.cells import Cell
from experiments.evaluation.measures import confidence, grant_statistics, oracle_of
from experiments.evaluation.run import ScenarioRun, load_run
from experiments.measure.series import goodput_limit_bps
from experiments.scenarios.scenario import INTERVAL_S

TITLES = {
    "none": "no control",
    "static": "static equal limits",
    "fs": "RAA-FS",
    "sp": "RAA-SP",
    "fp": "RAA-FP",
    "fe": "RAA-FE",
    "max-min": "max-min of the whole network",
    "level": "Fair Level",
}
PAPER_ORDER = ("sp", "fp", "fs", "fe")  # a to d of figure 6
ROW_INCHES, WIDTH_INCHES, DOTS_PER_INCH = 1.9, 11.0, 80


def title_of(control: str) -> str:
    """Return a control's name for people."""
    name, _, parameters = control.partition(" ")
    return f"{TITLES[name]}, {parameters}" if parameters else TITLES[name]


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """Return one cell of each control, that of the lowest seed, the paper's algorithms first and in its order."""
    first: dict[str, Cell] = {}
    for cell in sorted(cells, key=lambda cell: cell.seed):
        first.setdefault(cell.control, cell)
    order = [*PAPER_ORDER, *(control for control in first if control not in PAPER_ORDER)]
    return [first[control] for control in order if control in first]


def draw_scenario(cells: Sequence[Cell], results: Path, path: Path) -> None:
    """Draw a row per control: received rates by receiver, and mean and standard deviation of the grants."""
    shown = [cell for cell in in_order(cells) if " " not in cell.control] or in_order(cells)
    figure, axes = _figure(len(shown), 2)
    for row, cell in enumerate(shown):
        assert cell.scenario is not None
        run = load_run(results / cell.folder, cell.scenario, cell.control, cell.fabric, cell.seed)
        letter = f"{chr(ord('a') + row)}"
        _draw_received(axes[row][0], run, f"{letter}1) {title_of(cell.control)}: received")
        _draw_granted(axes[row][1], run, f"{letter}2) {title_of(cell.control)}: granted, mean and standard deviation")
    for column in range(2):
        axes[-1][column].set_xlabel("time unit (55 ms)")
    _save(figure, path)


def draw_isolation(cells: Sequence[Cell], results: Path, path: Path) -> None:
    """Draw the rates at the receiving PN, a row per control, as the paper's figures 2 and 5."""
    shown = in_order(cells)
    figure, axes = _figure(len(shown), 1)
    for row, cell in enumerate(shown):
        assert cell.isolation is not None
        with np.load(results / cell.folder / "series.npz") as series:
            unit = series["time_s"] / INTERVAL_S
            victim, aggressor = series["victim_bps"] / 1e6, series["aggressor_bps"] / 1e6
        box = axes[row][0]
        box.plot(unit, victim, color="tab:blue", lw=0.9, label="VLAN 1, TCP (goodput)")
        box.plot(unit, aggressor, color="tab:red", lw=0.9, label="VLAN 2, UDP")
        if cell.control != "none":
            box.axhline(goodput_limit_bps(cell.isolation.victim_limit_bps) / 1e6, color="tab:blue", ls="--", lw=0.7)
            box.axhline(cell.isolation.aggressor_limit_bps / 1e6, color="tab:red", ls="--", lw=0.7)
        box.set(title=title_of(cell.control), ylabel="Mb/s", ylim=(0, None))
        box.legend(loc="upper right", fontsize="x-small")
    axes[-1][0].set_xlabel("time unit (55 ms); dashed: receive limits, for TCP what its limit leaves as goodput")
    _save(figure, path)


def draw_trade_off(summaries: Sequence[dict[str, Any]], path: Path) -> bool:
    """Draw use against fairness by control, with confidence intervals; return whether there was anything to draw."""
    points: dict[str, tuple[list[float], list[float]]] = {}
    for summary in summaries:
        use, jain = (summary["figures"].get(name) for name in ("use_of_oracle", "jain_backlogged"))
        if use is not None and jain is not None and summary["control"] != "none":
            points.setdefault(summary["control"], ([], []))[0].append(100 * use)
            points[summary["control"]][1].append(jain)
    if len(points) < 2:
        return False
    figure, axes = _figure(1, 1, height=4.5)
    for control, (uses, jains) in points.items():
        (use, use_half), (jain, jain_half) = confidence(uses), confidence(jains)
        error = {"xerr": np.nan_to_num(use_half), "yerr": np.nan_to_num(jain_half)}
        axes[0][0].errorbar(use, jain, **error, fmt="o", ms=4, lw=0.8, capsize=2)
        axes[0][0].annotate(control, (use, jain), textcoords="offset points", xytext=(5, 4), fontsize="small")
    axes[0][0].set(xlabel="use of the receive limit, % of the oracle's", ylabel="Jain's index, backlogged senders")
    _save(figure, path)
    return True


def _draw_received(box: Any, run: ScenarioRun, title: str) -> None:
    unit = run.time_s[1:] / INTERVAL_S
    rates = run.received_bits / np.diff(run.time_s)[:, None] / 1e6
    many = len(run.receivers) > 2
    for column, (vid, pn) in enumerate(run.receivers):
        colour = ("tab:blue", "tab:red")[(vid - 1) % 2] if many else None
        box.plot(unit, rates[:, column], lw=0.6, color=colour, alpha=0.6 if many else 1.0, label=f"VLAN {vid}, PN {pn}")
    for vid, limits in run.scenario.limits.items():
        box.axhline(limits.receive_bps / 1e6, ls="--", lw=0.7, color=("tab:blue", "tab:red")[(vid - 1) % 2])
    for begin_s, _ in run.scenario.phases.values():
        box.axvline(begin_s / INTERVAL_S, lw=0.5, color="grey", ls=":")
    box.set(title=title, ylabel="Mb/s", ylim=(0, None))
    if not many:
        box.legend(loc="lower right", fontsize="x-small")


def _draw_granted(box: Any, run: ScenarioRun, title: str) -> None:
    if run.control == "none":
        box.set_axis_off()
        return
    means, spreads = grant_statistics(run, oracle_of(run).demand_bps > 0)
    unit = run.time_s[1:] / INTERVAL_S
    box.plot(unit, means / 1e6, lw=0.8, label="mean")
    box.plot(unit, spreads / 1e6, lw=0.8, label="standard deviation")
    box.set(title=title, ylabel="Mb/s", ylim=(0, None))
    box.legend(loc="upper right", fontsize="x-small")


def _figure(rows: int, columns: int, height: float = ROW_INCHES) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, max(height * rows, 2.6)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for box in axes.flat:
        box.title.set_fontsize("small")
        box.tick_params(labelsize="small")
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    for box in figure.axes:
        box.title.set_fontsize("small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_PER_INCH)
