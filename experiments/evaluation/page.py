"""What people read: ``docs/results.md`` and ``results/index.html``, both written from what the runs left.

What a fabric's runs came to is kept in ``docs/results/FABRIC.json``, so that a run on one fabric does not forget the
other.
"""

from __future__ import annotations

import base64
import dataclasses
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.evaluation.cells import by_experiment
from experiments.evaluation.claims import CLAIMS, COMPARED, ClaimVerdict, Measured, judge, show
from experiments.evaluation.pictures import title_of
from experiments.scenarios import scenarios
from experiments.scenarios.scenario import CONDITIONS

FABRICS = {"model": "model, 1 Gb/s", "ovs": "Open vSwitch, 50 Mb/s", "wire": "software switches, 50 Mb/s"}
HOLDS = {True: "yes", False: "**no**", None: "-"}
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
)


def digest_of(fabric: str, summaries: Sequence[dict[str, Any]], command: str) -> dict[str, Any]:
    """Return what a fabric's runs came to, as JSON can hold it."""
    measured = Measured(summaries)
    tables = {
        name: table_of(measured, name, list(dict.fromkeys(one["control"] for one in rows)))
        for name, rows in by_experiment(summaries).items()
    }
    warnings = sum(bool(one["notes"].get("warnings")) for one in summaries)
    manifests = [one["manifest"] for one in summaries]
    return {
        "fabric": fabric,
        "command": command,
        "runs": len(summaries),
        "runs_with_warnings": warnings,
        "commits": sorted({one["commit"]["id"][:12] for one in manifests if one["commit"]["id"]}),
        "machine": manifests[-1]["machine"] if manifests else {},
        "programs": manifests[-1]["programs"] if manifests else {},
        "claims": {key: dataclasses.asdict(verdict) for key, verdict in judge(summaries).items()},
        "tables": tables,
    }


def conditions_digest(summaries: Sequence[dict[str, Any]], made: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a fabric's runs came to under each of the conditions, as JSON can hold it.

    ``made`` says of all runs of the fabric what digest_of does.
    """
    rows = [one for one in summaries if "conditions" in one]
    names = [name for name in CONDITIONS if any(one["conditions"] == name for one in rows)]
    rows = _paired(rows, names)
    measured = {name: Measured([one for one in rows if one["conditions"] == name]) for name in names}
    claims = []
    for claim in COMPARED:
        verdicts = {name: claim.judge(measured[name]) for name in names}
        holds = {name: verdict.holds for name, verdict in verdicts.items()}
        shown = [f"{HOLDS[verdict.holds].strip('*')}: {verdict.found}" for verdict in verdicts.values()]
        claims.append({"section": claim.section, "says": claim.says, "verdicts": shown, "decides": what_decides(holds)})
    kept = ("fabric", "commits", "machine", "programs", "command")
    return {
        **{key: made[key] for key in kept},
        "runs": len(rows),
        "runs_with_warnings": sum(bool(one["notes"].get("warnings")) for one in rows),
        "conditions": names,
        "claims": claims,
        "tables": {name: _conditions_table(measured, name, mine) for name, mine in by_experiment(rows).items()},
    }


def _paired(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the runs whose experiment, control and seed were run under all conditions: only those can be compared."""
    runs = [[(one["experiment"], one["control"], one["seed"]) for one in rows if one["conditions"] == n] for n in names]
    common = set(runs[0]).intersection(*runs) if runs else set()
    return [one for one in rows if (one["experiment"], one["control"], one["seed"]) in common]


def what_decides(holds: Mapping[str, bool | None]) -> str:
    """Return which condition makes the difference between the first verdict, the product's, and the last."""
    if len(holds) < 2 or None in holds.values():
        return "not known"
    first, *between, last = holds.values()
    if first == last:
        if len(set(holds.values())) > 1:
            return "the two conditions make up for each other"
        return f"nothing: it {'holds' if last else 'fails'} under all"
    if not between:
        return "the receiver's shaping queue"
    alone = [name for name, verdict in zip(holds, (first, *between), strict=False) if verdict == last]
    causes = [{"unshaped": "the receiver's shaping queue", "late": "the delay of grants"}[name] for name in alone]
    return " or ".join(causes) if causes else "both together"


def _conditions_table(
    measured: Mapping[str, Measured], experiment: str, rows: Sequence[dict[str, Any]]
) -> list[list[str]]:
    """Return a heading, and a row for each control under each of the conditions."""
    table = [["control", "conditions", "seeds", *(label for _, label, _ in CONDITION_COLUMNS)]]
    for control, conditions in dict.fromkeys((one["control"], one["conditions"]) for one in rows):
        runs = measured[conditions].runs(experiment, control)
        values = [[run[key] for run in runs if run.get(key) is not None] for key, _, _ in CONDITION_COLUMNS]
        cells = [show(known, form) for known, (_, _, form) in zip(values, CONDITION_COLUMNS, strict=True)]
        table.append([f"{title_of(control)} (`{control}`)", f"`{conditions}`", str(len(runs)), *cells])
    return table


def table_of(measured: Measured, name: str, controls: list[str]) -> list[list[str]]:
    """Return a table of measures: a heading, then a row per control; columns that nobody has are left out.

    Where it is measured what the first VLAN keeps, the columns are those of figure 5.
    """
    if any("victim_goodput_bps_during" in run for control in controls for run in measured.runs(name, control)):
        columns = [(label, [_figure_5(measured, name, control, key, form) for control in controls])
                   for key, label, form in FIGURE_5]  # fmt: skip
    else:
        columns = [
            (label, [measured.shown(name, control, key, form=form) for control in controls])
            for key, label, form in COLUMNS
        ]
    kept = [(label, cells) for label, cells in columns if any(cell != "-" for cell in cells)]
    counts = [len(measured.runs(name, control)) for control in controls]
    heads = [f"{title_of(control)} (`{control}`)" for control in controls]
    rows = [[heads[n], str(counts[n]), *(cells[n] for _, cells in kept)] for n in range(len(controls))]
    return [["control", "seeds", *(label for label, _ in kept)], *rows]


def _figure_5(measured: Measured, name: str, control: str, key: str, form: str) -> str:
    runs = measured.runs(name, control)
    if key == "victim_goodput_share":
        return show([run["victim_goodput_bps_during"] / run["victim_goodput_limit_bps"] for run in runs], form)
    if key == "aggressor_share":
        return show([run["aggressor_received_bps_during"] / run["aggressor_limit_bps"] for run in runs], form)
    values = [run[key] for run in runs]
    return "never" if None in values else show(values, form)


def read_digests(folder: Path, kind: str = "") -> dict[str, dict[str, Any]]:
    """Return what is known of each fabric, the model first; ``kind`` ends the name of the file."""
    found = {}
    for fabric in FABRICS:
        path = folder / f"{fabric}{kind}.json"
        if path.exists():
            found[fabric] = json.loads(path.read_text())
    return found


def results_page(digests: Mapping[str, dict[str, Any]], conditions: Mapping[str, dict[str, Any]]) -> str:
    """Return ``docs/results.md``."""
    lines = [
        "# Results",
        "",
        "Written by `dets figures`; do not edit. What each claim means and how it is judged: "
        "`experiments/evaluation/claims.py`; what is measured: [experiments](experiments.md).",
        "",
        "## The paper's claims",
        "",
        _row(["section", "claim", *(FABRICS[fabric] for fabric in digests), "Fair Level (`level`)", "holds"]),
        _row(["---"] * (len(digests) + 4)),
    ]
    for claim in CLAIMS:
        verdicts = [_verdict(digest, claim.key) for digest in digests.values()]
        best = "; ".join(f"{fabric}: {v.best}" for fabric, v in zip(digests, verdicts, strict=True) if v.best != "-")
        holds = ", ".join(f"{fabric} {HOLDS[v.holds]}" for fabric, v in zip(digests, verdicts, strict=True))
        lines.append(_row([claim.section, claim.says, *(v.found for v in verdicts), best or "-", holds]))
    lines += [
        "",
        'Means over seeds; "+-" is half the width of the 95 % confidence interval. "-": not run there, or it does not '
        "tell. Open vSwitch carries a twentieth of the paper's rates, and fewer algorithms and seeds.",
    ]
    for fabric, digest in conditions.items():
        lines += ["", f"## The product's conditions and the paper's: {FABRICS[fabric]}", "", *_conditions(digest)]
    for fabric, digest in digests.items():
        lines += ["", f"## Measures: {FABRICS[fabric]}", "", _made_with(digest)]
        for name, table in digest["tables"].items():
            lines += ["", f"### {name}", "", _title(name), "", _row(table[0]), _row(["---"] * len(table[0]))]
            lines += [_row(row) for row in table[1:]]
    return "\n".join(lines) + "\n"


def _conditions(digest: Mapping[str, Any]) -> list[str]:
    """Return the claims under each of the conditions, what decides, and the measures that show it."""
    titles = [f"`{name}`: {CONDITIONS[name].title}" for name in digest["conditions"]]
    lines = ["; ".join(titles) + ".", "", _made_with(digest), ""]
    heads = ["section", "claim", *(f"`{name}`" for name in digest["conditions"]), "what decides"]
    lines += [_row(heads), _row(["---"] * len(heads))]
    for row in digest["claims"]:
        lines.append(_row([row["section"], row["says"], *row["verdicts"], row["decides"]]))
    for name, table in digest["tables"].items():
        lines += ["", f"### {name}, by conditions", "", _row(table[0]), _row(["---"] * len(table[0]))]
        lines += [_row(row) for row in table[1:]]
    return lines


def index_page(
    digests: Mapping[str, dict[str, Any]],
    pictures: Mapping[str, Sequence[tuple[str, str, Path]]],
    manifests: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return ``index.html``: the claims, then a section per experiment with its pictures and tables, then manifests.

    ``pictures`` holds (fabric, caption, file) by experiment, ``manifests`` each run's by its name.
    """
    parts = [_HEAD, "<h1>The DETS paper's evaluation, made again</h1>", _claims_table(digests)]
    for name in pictures:
        parts.append(f"<h2 id='{html.escape(name)}'>{html.escape(name)}</h2><p>{html.escape(_title(name))}</p>")
        for fabric, caption, path in pictures[name]:
            data = base64.b64encode(path.read_bytes()).decode()
            text = html.escape(f"{caption} ({FABRICS[fabric]})")
            parts.append(f"<figure><img alt='{text}' src='data:image/png;base64,{data}'>")
            parts.append(f"<figcaption>{text}</figcaption></figure>")
        for fabric, digest in digests.items():
            if name in digest["tables"]:
                parts.append(f"<h3>{html.escape(FABRICS[fabric])}</h3>{_html_table(digest['tables'][name])}")
    parts.append("<h2>Manifests</h2>")
    for name, one in manifests.items():
        text = html.escape(json.dumps(one, indent=1, default=str))
        parts.append(f"<details><summary>{html.escape(name)}</summary><pre>{text}</pre></details>")
    return "\n".join([*parts, "</body></html>\n"])


def _claims_table(digests: Mapping[str, dict[str, Any]]) -> str:
    heading = ["section", "claim"]
    for fabric in digests:
        heading += [FABRICS[fabric], "Fair Level", "holds"]
    rows = [heading]
    for claim in CLAIMS:
        row = [claim.section, claim.says]
        for digest in digests.values():
            verdict = _verdict(digest, claim.key)
            row += [verdict.found, verdict.best, HOLDS[verdict.holds].strip("*")]
        rows.append(row)
    made = "".join(f"<p>{html.escape(_made_with(digest))}</p>" for digest in digests.values())
    return f"<h2>Claims</h2>{_html_table(rows)}{made}"


def _verdict(digest: Mapping[str, Any], key: str) -> ClaimVerdict:
    found = digest["claims"].get(key)
    return ClaimVerdict(**found) if found else ClaimVerdict("-", None)


def _made_with(digest: Mapping[str, Any]) -> str:
    machine, commits = digest["machine"], ", ".join(digest["commits"])
    busy = digest["runs_with_warnings"]
    return (
        f"Last command: `{digest['command']}`; in all {digest['runs']} runs, {busy} of them with warnings; "
        f"commit {commits}; "
        f"{machine.get('cpus')} processors, Linux {machine.get('kernel')}, Python {machine.get('python')}"
    )


def _title(name: str) -> str:
    known = scenarios()
    return known[name].title if name in known else name


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _html_table(rows: Sequence[Sequence[str]]) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        classes = {"yes": " class='yes'", "no": " class='no'"}
        return "".join(f"<{tag}{classes.get(cell, '')}>{html.escape(cell.replace('`', ''))}</{tag}>" for cell in row)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows[1:])
    return f"<table><tr>{cells(rows[0], 'th')}</tr>{body}</table>"


_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>DETS: results</title><style>
body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; }
th, td { border: 1px solid #ccc; padding: 4px 8px; text-align: left; vertical-align: top; }
th { background: #f2f2f2; } .yes { background: #e2f4e2; } .no { background: #fbe0de; }
img { max-width: 100%; } figure { margin: 1em 0; } figcaption { font-size: 13px; color: #555; }
pre { overflow-x: auto; background: #f7f7f7; padding: 1em; font-size: 12px; }
</style></head><body>"""
