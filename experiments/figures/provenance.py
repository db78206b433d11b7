"""The version of the code that made the runs of a digest, and the parts of it that have changed since.

A version is a *tree*. A digest's ``trees`` have the parts of the project that its runs depend on, each with its digest;
``judged`` has the parts that judged them. Older trees may have a ``commit`` in place of the parts' digests. The
``outcomes`` are digests of the outcome of one seed of each control; ``repeated`` has the parts of a later tree with the
same outcomes, and the number of its runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.evaluation.run_matrix import RunSpec, scenario_digest_on
from experiments.measure.source_digests import is_law, part_digest
from experiments.papers import source_of

SCENARIO = "scenario "
MAX_NAMED = 3
"""If more scenarios have changed, a page only counts them; ``dets figures --check`` names each."""


def trees_of(summaries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the versions of the project that runs were made with, as digests by part.

    Runs whose parts have no different digests share a tree.
    """
    trees: list[dict[str, str]] = []
    for summary in summaries:
        parts = summary["manifest"].get("depends", {})
        agreeing = (tree for tree in trees if all(tree.get(part, digest) == digest for part, digest in parts.items()))
        # Runs without recorded parts share a tree of their own.
        tree = next((candidate for candidate in agreeing if bool(candidate) == bool(parts)), None)
        if tree is None:
            trees.append(dict(parts))
        else:
            tree.update(parts)
    return [{"depends": dict(sorted(tree.items()))} for tree in trees]


def outcomes_of(runs: Sequence[tuple[RunSpec, Mapping[str, Any]]]) -> list[tuple[str, str, int, str]]:
    """Return experiment, control, seed and the digest of the outcome, for the first seed of each control."""
    first_by_control: dict[tuple[str, str], tuple[str, str, int, str]] = {}
    for spec, summary in sorted(runs, key=lambda run: run[0].seed):
        outcome = (spec.experiment, spec.control, spec.seed, outcome_digest(summary))
        first_by_control.setdefault((spec.experiment, spec.control), outcome)
    return list(first_by_control.values())


def outcome_digest(summary: Mapping[str, Any]) -> str:
    """Return the digest of all measures of a run: the model gives the same ones every time."""
    text = json.dumps([summary["figures"], summary["phases"]], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def judges_of(paper: str) -> dict[str, str]:
    """Return the digests of the files that judge a paper's runs."""
    return {part: part_digest(part) for part in (source_of(paper), "experiments/evaluation/claims.py")}


def decides_rates(part: str) -> bool:
    """Whether a part is a law or a scenario: a page names these if they have changed."""
    return is_law(part) or part.startswith(SCENARIO)


def changed_parts(digest: Mapping[str, Any], counts: Callable[[str], bool] = lambda _part: True) -> list[str] | None:
    """Return the parts for which ``counts`` that have changed since a digest's runs; None if that is not known."""
    trees = [tree["depends"] for tree in _trees(digest)]
    if not all(trees):
        return None
    recorded = [item for tree in (*trees, digest.get("judged", {})) for item in tree.items() if counts(item[0])]
    return sorted({part for part, then in recorded if then != _digest_now(part, digest["fabric"])})


def _trees(digest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the later tree with the same outcomes, if a digest has one; otherwise its trees."""
    return [digest["repeated"]] if "repeated" in digest else digest["trees"]


def _digest_now(part: str, fabric: str) -> str:
    """Return the digest of a part, or of a scenario on a fabric, in the present project."""
    if part.startswith(SCENARIO):
        return scenario_digest_on(fabric, part.removeprefix(SCENARIO))
    return part_digest(part)


def provenance(digest: Mapping[str, Any]) -> str:
    """Return the version that made the runs of a digest, and the laws and scenarios that have changed since."""
    runs = f"{digest['runs']} runs, {digest['runs_with_warnings'] or 'none'} with warnings"
    return f"{runs}{_cost(digest.get('cpu_s', []))}; last command `{digest['command']}`; {_tree(digest)}"


def _cost(cpu_s: Sequence[float]) -> str:
    """Return the CPU time of the runs that recorded it as text; ``cpu_s`` has a value for each run."""
    return f"; CPU of {len(cpu_s)} runs: {sum(cpu_s) / 60:.1f} min" if cpu_s else ""


def _tree(digest: Mapping[str, Any]) -> str:
    """Return by which versions of the project a digest's runs were made, and what has changed since."""
    count = len(digest["trees"])
    changed = changed_parts(digest, decides_rates)
    if "repeated" in digest and not changed:
        return f"made by an older version; {digest['repeated']['runs']} runs, repeated by this version, gave the same"
    if changed == [] and count == 1:
        return "laws and scenarios are those of this version"
    commits = [tree["commit"] for tree in digest["trees"] if "commit" in tree]
    named = f" ({', '.join(commits)})" if commits else ""
    older = f"made by an older version{named}" if count == 1 else f"made by {count} versions{named}"
    if changed is None:
        return f"{older}; what changed since is not known"
    scenarios = [part for part in changed if part.startswith(SCENARIO)]
    if len(scenarios) > MAX_NAMED:
        changed = [part for part in changed if part not in scenarios] + [f"{len(scenarios)} scenarios"]
    return f"{older}; changed since: {', '.join(changed) or 'no law and no scenario'}"


def stale_because(digest: Mapping[str, Any]) -> str:
    """Return why a digest's runs would have to be repeated; "" if they are of one tree, still unchanged."""
    changed = changed_parts(digest)
    if changed is None:
        return "made by a version that is not known"
    mixed = f"made by {len(digest['trees'])} versions" if len(_trees(digest)) > 1 else ""
    return "; ".join(filter(None, (mixed, f"changed since: {', '.join(changed)}" if changed else "")))
