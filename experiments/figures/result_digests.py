"""The results of a paper's runs on a fabric, as ``docs/results/PAPER-FABRIC.json`` stores them.

One file per fabric, so that runs on one fabric do not replace those on another. The pages are made from the files.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.evaluation.claims import UNDECIDED, ClaimVerdict, Measured, Outcome, Paper, show
from experiments.evaluation.plots import title_of
from experiments.evaluation.run_matrix import by_experiment
from experiments.figures.provenance import judges_of, trees_of
from experiments.scenarios.scenario import CONDITIONS

FABRICS = {"model": "model, 1 Gb/s", "ovs": "Open vSwitch, 50 Mb/s", "wire": "software switches, 50 Mb/s"}
HOLDS = {True: "holds", False: "fails", UNDECIDED: "undecided", None: "-"}
COLUMNS = (
    ("use_of_oracle", "use of the limit, of the oracle's", "percent"),
    ("jain_backlogged", "Jain, backlogged", "plain"),
    ("missed_share", "intervals below 95 % of the oracle's", "percent"),
    ("above_limit_share", "intervals above 105 % of the limit", "percent"),
    ("oracle_distance", "distance from the oracle, of the limit", "percent"),
    ("lost_share", "packets lost", "percent"),
    ("probing_cost", "probing cost", "percent"),
    ("grant_spread", "spread of grants", "percent"),
    ("completion_mean_s", "transfers, mean s", "count"),
    ("answers_per_s", "answers a second", "count"),
    ("latency_mean_s", "latency, mean s", "plain"),
    ("latency_p50_s", "median s", "plain"),
    ("latency_p99_s", "99 % within s", "plain"),
)
CONDITION_COLUMNS = (
    ("use_of_oracle", "use of the limit, of the oracle's", "percent"),
    ("above_limit_share", "intervals above 105 % of the limit", "percent"),
    ("oracle_distance", "distance from the oracle, of the limit", "percent"),
    ("received_swing", "swing of the received rate", "percent"),
)
FIGURE_5 = (
    ("victim_goodput_share", "TCP during UDP, of its limit", "percent"),
    ("aggressor_share", "UDP, of its limit", "percent"),
    ("victim_recovery_intervals", "back at 95 % after, intervals", "count"),
    ("victim_intervals_below_95_percent", "longest below 95 %, intervals", "count"),
    ("victim_below_share", "below 95 % during UDP, of its intervals", "percent"),
    ("victim_below_share_before", "and of those before it", "percent"),
)
# The share by name: (part, whole), two measures of a run.
SHARES = {
    "victim_goodput_share": ("victim_goodput_bps_during", "victim_goodput_limit_bps"),
    "aggressor_share": ("aggressor_received_bps_during", "aggressor_limit_bps"),
    "victim_below_share": ("victim_intervals_below_95_percent_total", "intervals_during_blast"),
    "victim_below_share_before": ("victim_intervals_below_95_percent_before_total", "intervals_before_blast"),
}


def digest_of(
    paper: Paper,
    fabric: str,
    summaries: Sequence[dict[str, Any]],
    command: str,
    all_summaries: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the results of a fabric's runs, as JSON can hold them.

    ``summaries`` are runs under the product's conditions; ``all_summaries`` are those under any conditions (none:
    ``summaries``). ``command`` is the command that was given.
    """
    measured = Measured(summaries)
    tables = {
        name: table_of(measured, name, list(dict.fromkeys(row["control"] for row in rows)))
        for name, rows in by_experiment(summaries).items()
    }
    manifests = [summary["manifest"] for summary in summaries]
    verdicts = paper.judge(summaries)
    return {
        "fabric": fabric,
        "command": command,
        "runs": len(summaries),
        "cpu_s": [round(summary["cpu_s"], 1) for summary in (all_summaries or summaries) if "cpu_s" in summary],
        **warnings_of(summaries),
        "trees": trees_of((*summaries, *all_summaries)),
        "judged": judges_of(paper.name),
        "machine": manifests[-1]["machine"] if manifests else {},
        "programs": manifests[-1]["programs"] if manifests else {},
        "claims": _as_json(verdicts),
        "published": _as_json(paper.judge_published(all_summaries or summaries)),
        "decides": paper.deciding(all_summaries or summaries),
        "tables": tables,
        "paper_tables": {table.title: rows for table in paper.tables if (rows := table.rows(measured))},
    }


def _as_json(verdicts: Mapping[str, ClaimVerdict]) -> dict[str, dict[str, Any]]:
    """Return the verdicts as dicts."""
    return {key: dataclasses.asdict(verdict) for key, verdict in verdicts.items()}


def warnings_of(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how many runs have warnings, and how many have each kind: the text with N for each number."""
    kinds_by_run = [{re.sub("[0-9]+", "N", text) for text in run["notes"].get("warnings", [])} for run in summaries]
    kinds = Counter(kind for kinds in kinds_by_run for kind in kinds)
    return {"runs_with_warnings": sum(map(bool, kinds_by_run)), "warnings": dict(kinds.most_common())}


def conditions_digest(
    paper: Paper, summaries: Sequence[dict[str, Any]], own_digest: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the results of a fabric's runs under each of the conditions, as JSON can hold them.

    Runs without a run of the same experiment, control and seed under every condition are left out. ``own_digest`` is
    the value of digest_of for all runs of the fabric.
    """
    rows = [summary for summary in summaries if "conditions" in summary]
    names = [name for name in CONDITIONS if any(row["conditions"] == name for row in rows)]
    rows = _paired(rows, names)
    runs_under = {name: [row for row in rows if row["conditions"] == name] for name in names}
    measured = {name: Measured(runs) for name, runs in runs_under.items()}
    claims = []
    for claim in paper.compared:
        verdicts = {name: paper.verdict(claim.judge, runs_under[name]) for name in names}
        holds = {name: verdict.holds for name, verdict in verdicts.items()}
        shown = [f"{HOLDS[verdict.holds]}: {verdict.result}" for verdict in verdicts.values()]
        claim_row = {"section": claim.section, "says": claim.title, "verdicts": shown}
        claims.append({**claim_row, "decides": deciding_condition(holds)})
    shared_keys = ("fabric", "judged", "machine", "programs", "command")
    return {
        **{key: own_digest[key] for key in shared_keys},
        "trees": trees_of(rows),
        "runs": len(rows),
        **warnings_of(rows),
        "conditions": names,
        "claims": claims,
        "tables": {name: _conditions_table(measured, name, runs_of) for name, runs_of in by_experiment(rows).items()},
    }


def _paired(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the runs whose experiment, control and seed were run under all conditions: only those are comparable."""

    def key(row: dict[str, Any]) -> tuple[str, str, int]:
        return row["experiment"], row["control"], row["seed"]

    runs = [{key(row) for row in rows if row["conditions"] == name} for name in names]
    common = set.intersection(*runs) if runs else set()
    return [row for row in rows if key(row) in common]


def deciding_condition(holds: Mapping[str, Outcome]) -> str:
    """Return, as text, which condition explains that the product's verdict differs from the paper's.

    ``holds`` are the verdicts by name of the conditions: the product's first, the paper's last. Each of those between
    them differs from the product's in one condition.
    """
    if len(holds) < 2 or None in holds.values():
        return "not known"
    first, *between, last = holds.values()
    if first == last:
        if len(set(holds.values())) > 1:
            return "the two conditions make up for each other"
        return f"nothing: it {'is undecided' if last == UNDECIDED else HOLDS[last]} under all"
    if not between:  # only the model delays grants: elsewhere the two conditions differ in the queue alone
        return "the receiver's shaping queue"
    sufficient = [name for name, verdict in zip(holds, (first, *between), strict=False) if verdict == last]
    causes = [{"unshaped": "the receiver's shaping queue", "late": "the delay of grants"}[name] for name in sufficient]
    return " or ".join(causes) if causes else "both together"


def _conditions_table(
    measured: Mapping[str, Measured], experiment: str, rows: Sequence[dict[str, Any]]
) -> list[list[str]]:
    """Return a heading, and a row for each control under each of the conditions."""
    table = [["control", "conditions", "seeds", *(label for _, label, _ in CONDITION_COLUMNS)]]
    for control, conditions in dict.fromkeys((row["control"], row["conditions"]) for row in rows):
        runs = measured[conditions].runs(experiment, control)
        values = [[run[key] for run in runs if run.get(key) is not None] for key, _, _ in CONDITION_COLUMNS]
        cells = [show(column, form) for column, (_, _, form) in zip(values, CONDITION_COLUMNS, strict=True)]
        table.append([f"{title_of(control)} (`{control}`)", f"`{conditions}`", str(len(runs)), *cells])
    return table


def table_of(measured: Measured, name: str, controls: list[str]) -> list[list[str]]:
    """Return a table of measures: a heading, then a row per control; empty columns are left out.

    If the isolation of the first VLAN is measured, the columns are those of figure 5.
    """
    if any("victim_goodput_bps_during" in run for control in controls for run in measured.runs(name, control)):
        columns = [(label, [_figure_5(measured, name, control, key, form) for control in controls])
                   for key, label, form in FIGURE_5]  # fmt: skip
    else:
        columns = [(label, [measured.shown(name, control, key, form=form) for control in controls])
                   for key, label, form in COLUMNS]  # fmt: skip
    shown = [(label, cells) for label, cells in columns if any(cell != "-" for cell in cells)]
    counts = [len(measured.runs(name, control)) for control in controls]
    heads = [f"{title_of(control)} (`{control}`)" for control in controls]
    by_control = zip(*(cells for _, cells in shown), strict=True) if shown else ((),) * len(controls)
    rows = [[head, str(count), *cells] for head, count, cells in zip(heads, counts, by_control, strict=True)]
    return [["control", "seeds", *(label for label, _ in shown)], *rows]


def _figure_5(measured: Measured, name: str, control: str, key: str, form: str) -> str:
    """Return a measure of the isolation experiment as text: one of SHARES, or a measure of the runs."""
    runs = measured.runs(name, control)
    if key in SHARES:
        part, whole = SHARES[key]
        return show([run[part] / run[whole] for run in runs if part in run], form)
    values = [run[key] for run in runs]
    return "never" if None in values else show(values, form)


def write_digest(folder: Path, name: str, digest: Mapping[str, Any]) -> None:
    """Write a digest as ``NAME.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(digest, indent=1, default=str) + "\n")


def read_digests(folder: Path, paper: str, kind: str = "") -> dict[str, dict[str, Any]]:
    """Return the digests of a paper by fabric, the model first; ``kind`` ends the name of the file."""
    paths = {fabric: folder / f"{paper}-{fabric}{kind}.json" for fabric in FABRICS}
    return {fabric: json.loads(path.read_text()) for fabric, path in paths.items() if path.exists()}
