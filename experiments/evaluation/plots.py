"""Plots of runs, arranged as DETS's figure 6: a row per control, received rates left, granted rates right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from controller.policy.registry import title_of as title_of_policy
from experiments.evaluation.measures import confidence, grant_statistics, pair_rates, rates_at, sums_by_sender
from experiments.evaluation.oracle import Oracle, guarantees_over_time, oracle_of
from experiments.evaluation.run_matrix import RunSpec
from experiments.measure.rate_series import RECOVERED_SHARE, goodput_limit_bps
from experiments.runs.scenario_run import FloatArray, ScenarioRun
from experiments.scenarios.scenario import INTERVAL_S, Scenario

BASELINE_TITLES = {"none": "no control", "static": "static equal limits"}
PAPER_ORDER = ("sp", "fp", "fs", "fe")  # a to d of figure 6
ROW_INCHES, ISOLATION_INCHES, WIDTH_INCHES, DOTS_PER_INCH = 1.9, 3.0, 11.0, 80
AROUND_INTERVALS = 40.0  # before and after a controller's kill
LINE_COLOURS = ("tab:blue", "tab:red", "tab:green", "tab:purple")
MAX_NAMED = 5  # phases whose names fit side by side
NODE_COLOURS = ("tab:green", "tab:orange", "tab:purple")
_Run = TypeVar("_Run", RunSpec, ScenarioRun)


def title_of(control: str) -> str:
    """Return the displayed name of a control, such as ``fp d=4``."""
    name, _, parameters = control.partition(" ")
    title = BASELINE_TITLES.get(name) or title_of_policy(name)
    return f"{title}, {parameters}" if parameters else title


def in_order(runs: Sequence[_Run]) -> list[_Run]:
    """Return the run with the lowest seed of each control; the controls of the paper come first, in its order."""
    first_by_control: dict[str, _Run] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        first_by_control.setdefault(run.control, run)
    order = [*PAPER_ORDER, *(control for control in first_by_control if control not in PAPER_ORDER)]
    return [first_by_control[control] for control in order if control in first_by_control]


@dataclass(frozen=True, slots=True)
class RateLine:
    """A line of a plot: ``label`` ("": not in the legend), colour, and ``rate_bps`` (intervals,).

    ``promised_bps`` (intervals,) is drawn as a dashed line; None: without.
    """

    label: str
    colour: str
    rate_bps: FloatArray
    promised_bps: FloatArray | None = None


def received_lines(run: ScenarioRun, oracle: Oracle) -> list[RateLine]:
    """Return a line for each receiver: its rate, and its receive limit as promised rate.

    With the promise ``entities`` there is a line for each sender instead: its delivered rate, and the oracle's rate. If
    there are more lines than colours, lines have the colours of their VLANs, and the first of a VLAN has the label. The
    last line is the delivered rate of the scenario's ``tagged`` PN, if it has one.
    """
    scenario, sum_by_sender, pairs_bps = run.scenario, sums_by_sender(run), pair_rates(run)
    if scenario.promise == "entities":
        vns, role = run.senders, "senders"
        rates_bps, promised_bps = sum_by_sender(pairs_bps), sum_by_sender(oracle.rate_bps)
    else:
        vns, rates_bps, role = run.receivers, run.received_bits / np.diff(run.time_s)[:, None], "receivers"
        promised_bps = receive_limits_bps(run)
    vids, by_vlan = sorted(scenario.limits), len(vns) > len(LINE_COLOURS)
    lines = []
    for rank, column in enumerate(sorted(range(len(vns)), key=vns.__getitem__)):
        vid, pn = vns[column]
        same_vlan = [other for other in vns if other[0] == vid]
        label = f"VLAN {vid}, {'from ' if role == 'senders' else ''}PN {pn}"
        if by_vlan and len(same_vlan) > 1:
            label = f"VLAN {vid}, {len(same_vlan)} {role}" if vns[column] == min(same_vlan) else ""
        colour = LINE_COLOURS[(vids.index(vid) if by_vlan else rank) % len(LINE_COLOURS)]
        lines.append(RateLine(label, colour, rates_bps[:, column], promised_bps[:, column]))
    for column, (_, pn) in enumerate(run.senders):
        if pn == scenario.tagged:
            colour = LINE_COLOURS[len(lines) % len(LINE_COLOURS)]
            lines.append(RateLine(f"part of PN {pn}", colour, sum_by_sender(pairs_bps)[:, column]))
    return lines


def receive_limits_bps(run: ScenarioRun) -> FloatArray:
    """Return the receive limit of each receiver in each interval, (intervals, receivers), with the limit changes."""
    column_of = {(vn.vlan_vid, vn.pn.number): column for column, vn in enumerate(run.scenario.fabric().vns())}
    limits_bps = guarantees_over_time(run.scenario, run.time_s).receive_bps
    return limits_bps[:, [column_of[receiver] for receiver in run.receivers]]


def draw_scenario(runs: Sequence[ScenarioRun], path: Path) -> None:
    """Draw a row per control: received rates left, mean and standard deviation of the grants right.

    Controls with parameters are left out, unless all controls have some.
    """
    shown = [run for run in in_order(runs) if " " not in run.control] or in_order(runs)
    figure, axes = _figure(len(shown), 2)
    for row, run in enumerate(shown):
        oracle = oracle_of(run)
        letter = f"{chr(ord('a') + row)}"
        _draw_received(axes[row][0], run, received_lines(run, oracle), f"{letter}1) {title_of(run.control)}: received")
        title = f"{letter}2) {title_of(run.control)}: granted to pairs that send"
        _draw_granted(axes[row][1], run, grant_statistics(run, oracle.demand_bps > 0), title)
    _name_phases(axes[0][0], shown[0].scenario)
    dashed = "the oracle's rate" if shown[0].scenario.promise == "entities" else "the VN's effective receive limit"
    axes[-1][0].set_xlabel(f"time unit (55 ms); on the wire; dashed: {dashed}", fontsize="small")
    axes[-1][1].set_xlabel("time unit (55 ms)", fontsize="small")
    _save(figure, path)


def draw_isolation(runs: Sequence[tuple[str, ScenarioRun]], path: Path) -> None:
    """Draw the rates at the receiving PN, a row per run with its title, as the paper's figures 2 and 5.

    A run in which a controller was killed has two more rows: each interval around the kill, and the owners of switches.
    """
    killed = [(title, run) for title, run in runs if "killed_at_s" in run.notes]
    figure, axes = _figure(len(runs) + 2 * len(killed), 1, height=ISOLATION_INCHES)
    boxes = [box for (box,) in axes]
    for box, (title, run) in zip(boxes, runs, strict=False):
        _draw_rates(box, run, run.time_s[1:] / INTERVAL_S)
        if "killed_at_s" in run.notes:
            box.axvline(run.notes["killed_at_s"] / INTERVAL_S, color="black", lw=1.0, label=_kill_label(run))
        box.set(title=title, ylabel="received rate, Mb/s", ylim=(0, None))
        box.legend(loc="upper right", fontsize="x-small")
    dashed = "dashed: the VN's effective receive limit, for TCP as goodput"
    boxes[len(runs) - 1].set_xlabel(f"time unit (55 ms); {dashed}")
    for row, (title, run) in zip(range(len(runs), len(boxes), 2), killed, strict=True):
        _draw_around_kill(boxes[row], boxes[row + 1], title, run)
    _save(figure, path)


def draw_trade_off(summaries: Sequence[dict[str, Any]], path: Path) -> bool:
    """Draw use against fairness, a point with confidence intervals per control; return whether it was drawn.

    It needs two controls that have both measures; runs without control do not count.
    """
    values_of: dict[str, tuple[list[float], list[float]]] = {}
    for summary in summaries:
        use, jain = (summary["figures"].get(name) for name in ("use_of_oracle", "jain_backlogged"))
        if use is not None and jain is not None and summary["control"] != "none":
            use_percents, jain_indices = values_of.setdefault(summary["control"], ([], []))
            use_percents.append(100 * use)
            jain_indices.append(jain)
    if len(values_of) < 2:
        return False
    figure, axes = _figure(1, 1, height=4.5)
    for control, (use_percents, jain_indices) in values_of.items():
        (use, use_error), (jain, jain_error) = confidence(use_percents), confidence(jain_indices)
        error = {"xerr": np.nan_to_num(use_error), "yerr": np.nan_to_num(jain_error)}
        axes[0][0].errorbar(use, jain, **error, fmt="o", ms=4, lw=0.8, capsize=2)
        axes[0][0].annotate(control, (use, jain), textcoords="offset points", xytext=(5, 4), fontsize="small")
    axes[0][0].set(xlabel="use of the receive limit, % of the oracle's", ylabel="Jain's index, backlogged senders")
    _save(figure, path)
    return True


def _draw_rates(axes: Any, run: ScenarioRun, positions: FloatArray, **style: Any) -> None:
    """Draw the received rates of the first two VLANs (TCP, UDP) at ``positions``, (intervals,), and their limits."""
    victim, aggressor = list(run.scenario.limits)[:2]
    limits_bps = receive_limits_bps(run)
    for vid, colour, is_tcp in ((victim, "tab:blue", True), (aggressor, "tab:red", False)):
        column = next(column for column, receiver in enumerate(run.receivers) if receiver[0] == vid)
        rates = rates_at(run, run.receivers[column])
        shown_bps = rates.tcp_goodput_bps if is_tcp else rates.wire_bps
        label = f"VLAN {vid}, TCP (goodput)" if is_tcp else f"VLAN {vid}, UDP (wire)"
        axes.plot(positions, shown_bps / 1e6, color=colour, label=label, **{"lw": 0.9, **style})
        limit_bps = limits_bps[:, column] * (goodput_limit_bps(1.0) if is_tcp else 1.0)
        axes.plot(positions, limit_bps / 1e6, color=colour, ls="--", lw=0.7, drawstyle="steps-pre")


def _draw_around_kill(rates_axes: Any, owner_axes: Any, title: str, run: ScenarioRun) -> None:
    """Draw the rates in each interval around a controller's kill, and below them the owner of each switch over time.

    The horizontal axes are in intervals since the kill. The bar of a switch that got a new owner has a gap until all
    switches are under control again.
    """
    killed_at_s, uncontrolled_s = run.notes["killed_at_s"], run.notes["out_of_control_s"] or 0.0
    controlled_again = uncontrolled_s / INTERVAL_S
    _draw_rates(rates_axes, run, (run.time_s[1:] - killed_at_s) / INTERVAL_S, marker="o", ms=3.0, lw=0.5)
    victim = next(iter(run.scenario.limits.values()))
    min_goodput_bps = RECOVERED_SHARE * goodput_limit_bps(victim.receive_bps)
    label = f"{100 * RECOVERED_SHARE:.0f} % of what TCP's limit allows"
    rates_axes.axhline(min_goodput_bps / 1e6, color="tab:blue", ls=":", lw=0.7, label=label)
    before, after = run.notes["owners"], run.notes["owners_after"] or {}
    names, nodes = sorted(before), sorted({*before.values(), *after.values()})
    for row, name in enumerate(names):
        has_moved = after.get(name) != before[name]
        for node, begins, ends in (
            (before[name], -AROUND_INTERVALS, 0.0),
            (after.get(name), controlled_again if has_moved else 0.0, AROUND_INTERVALS),
        ):
            if node is not None:
                colour = NODE_COLOURS[nodes.index(node) % len(NODE_COLOURS)]
                owner_axes.barh(row, ends - begins, left=begins, height=0.7, color=colour, alpha=0.6)
                owner_axes.text((begins + ends) / 2, row, node, ha="center", va="center", fontsize="small")
    owner_axes.set_yticks(range(len(names)), names)
    owner_axes.invert_yaxis()
    for axes in (rates_axes, owner_axes):
        axes.axvline(0.0, color="black", lw=1.0, label=_kill_label(run))
        axes.set_xlim(-AROUND_INTERVALS, AROUND_INTERVALS)
    label = f"not all switches under control: {uncontrolled_s:.2f} s at most"
    rates_axes.axvspan(0.0, controlled_again, color="grey", alpha=0.3, label=label)
    rates_axes.set(title=f"{title}: each interval around the kill", ylabel="received rate, Mb/s", ylim=(0, None))
    rates_axes.legend(loc="lower left", fontsize="x-small", ncols=2)
    receiver = run.scenario.fabric().pn(run.receivers[0][1]).switch
    title = f"owners of the switches; the receiver is behind {receiver}"
    owner_axes.set(title=title, xlabel="time units (55 ms) since the kill")


def _kill_label(run: ScenarioRun) -> str:
    """Return the legend of the kill: the killed controller, and how many controllers there were."""
    return f"{run.notes['killed']}, one of {len(set(run.notes['owners'].values()))} controllers, is killed"


def _draw_received(box: Any, run: ScenarioRun, lines: Sequence[RateLine], title: str) -> None:
    """Draw received rates in Mb/s over intervals; guaranteed rates are dashed."""
    time_units = run.time_s[1:] / INTERVAL_S
    for line in lines:
        box.plot(time_units, line.rate_bps / 1e6, lw=0.6, color=line.colour, label=line.label or None)
        if line.promised_bps is not None:
            box.plot(time_units, line.promised_bps / 1e6, ls="--", lw=0.7, color=line.colour, drawstyle="steps-pre")
    for begin_s, _ in run.scenario.phases.values():
        box.axvline(begin_s / INTERVAL_S, lw=0.5, color="grey", ls=":")
    box.set(title=title, ylabel="Mb/s", ylim=(0, None))
    box.legend(loc="lower right", fontsize="xx-small", framealpha=0.6)


def _name_phases(box: Any, scenario: Scenario) -> None:
    """Write the phases' names above a box, in the middle of each."""
    if not scenario.phases:
        return
    middles = [(begin_s + end_s) / 2 / INTERVAL_S for begin_s, end_s in scenario.phases.values()]
    above = box.secondary_xaxis("top")
    above.set_xticks(middles, list(scenario.phases), fontsize="xx-small")
    above.tick_params(length=0)
    if len(middles) > MAX_NAMED:
        above.tick_params(rotation=90)


def _draw_granted(box: Any, run: ScenarioRun, statistics: tuple[FloatArray, FloatArray], title: str) -> None:
    """Draw mean and standard deviation of the grants in Mb/s over intervals; nothing without control."""
    if run.control == "none":
        box.set_axis_off()
        return
    time_units = run.time_s[1:] / INTERVAL_S
    for label, rate_bps in zip(("mean", "standard deviation"), statistics, strict=True):
        box.plot(time_units, rate_bps / 1e6, lw=0.8, label=label)
    box.set(title=title, ylabel="Mb/s", ylim=(0, None))
    box.legend(loc="upper right", fontsize="xx-small", framealpha=0.6)


def _figure(rows: int, columns: int, height: float = ROW_INCHES) -> tuple[Any, Any]:
    """Return an empty figure and its axes, (rows, columns)."""
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
    """Write a figure to a file; its folder is made if missing."""
    for box in figure.axes:
        box.title.set_fontsize("small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_PER_INCH)
