"""The paper's claims under the product's conditions, the paper's and those between: what holds where, what decides.

In the paper no queue shapes what a receiver gets, and grants work two intervals after what they answer was sent. Each
claim is judged with neither, either and both of the two, so that the cause of a difference shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.evaluation.cells import by_experiment
from experiments.evaluation.claims import COMPARED, Measured, show
from experiments.evaluation.pictures import title_of
from experiments.scenarios.scenario import CONDITIONS

HOLDS = {True: "yes", False: "no", None: "not known"}
COLUMNS = (
    ("use_of_oracle", "use of the limit, of the oracle's", "percent"),
    ("above_limit_share", "intervals above 105 % of the limit", "percent"),
    ("oracle_distance", "distance from the oracle, of the limit", "percent"),
    ("received_swing", "swing of the received rate", "percent"),
)


def conditions_digest(summaries: Sequence[dict[str, Any]], made: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a fabric's runs came to under each of the conditions, as JSON can hold it.

    ``made`` says of all runs of the fabric what page.digest_of does.
    """
    rows = [one for one in summaries if "conditions" in one]
    names = [name for name in CONDITIONS if any(one["conditions"] == name for one in rows)]
    measured = {name: Measured([one for one in rows if one["conditions"] == name]) for name in names}
    claims = []
    for claim in COMPARED:
        verdicts = {name: claim.judge(measured[name]) for name in names}
        holds = {name: verdict.holds for name, verdict in verdicts.items()}
        shown = [f"{HOLDS[verdict.holds]}: {verdict.found}" for verdict in verdicts.values()]
        claims.append({"section": claim.section, "says": claim.says, "verdicts": shown, "decides": what_decides(holds)})
    kept = ("fabric", "commits", "machine", "programs", "command")
    return {
        **{key: made[key] for key in kept},
        "runs": len(rows),
        "runs_with_warnings": sum(bool(one["notes"].get("warnings")) for one in rows),
        "conditions": names,
        "claims": claims,
        "tables": {name: _table(measured, name, mine) for name, mine in by_experiment(rows).items()},
    }


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


def _table(measured: Mapping[str, Measured], experiment: str, rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a heading, and a row for each control under each of the conditions."""
    table = [["control", "conditions", "seeds", *(label for _, label, _ in COLUMNS)]]
    for control, conditions in dict.fromkeys((one["control"], one["conditions"]) for one in rows):
        runs = measured[conditions].runs(experiment, control)
        values = [[run[key] for run in runs if run.get(key) is not None] for key, _, _ in COLUMNS]
        cells = [show(known, form) for known, (_, _, form) in zip(values, COLUMNS, strict=True)]
        table.append([f"{title_of(control)} (`{control}`)", f"`{conditions}`", str(len(runs)), *cells])
    return table
