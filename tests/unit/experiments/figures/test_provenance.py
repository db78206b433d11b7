"""Pages say with what tree their runs were made, and what has changed since; no page outlives the law it judges."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from support.paths import ROOT

from apps.cli import main
from experiments.evaluation.run_matrix import scenario_runs
from experiments.figures import markdown_pages, provenance
from experiments.scenarios import scenarios

RESULTS = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def depends():
    (spec, *_) = scenario_runs("dets-fig5", scenarios()["dets-fig5"], "model", 1, ["fp"])
    return spec.depends


def runs(*parts):
    return [{"manifest": {"depends": one}} for one in parts]


def digest(*parts):
    made = {"fabric": "model", "command": "make figures", "runs": 3, "runs_with_warnings": 0, "machine": {}}
    return {**made, "programs": {}, "claims": {}, "tables": {}, "trees": provenance.trees_of(runs(*parts))}


def test_runs_of_this_tree_are_told_from_those_of_an_older_one(depends):
    law, scenario = {**depends, "controller/dets": "other"}, {**depends, "scenario dets-fig5": "other"}
    assert provenance.provenance(digest(depends)).endswith("; laws and scenarios are those of this version")
    assert provenance.provenance(digest(law)).endswith("; made by an older version; changed since: controller/dets")
    assert provenance.provenance(digest(scenario)).endswith("; changed since: scenario dets-fig5")
    four = {f"scenario dets-fig{number}": "other" for number in (1, 2, 5, 6)}
    assert provenance.provenance(digest({**law, **four})).endswith("; changed since: controller/dets, 4 scenarios")
    assert provenance.provenance(digest({})).endswith("; made by an older version; what changed since is not known")


def test_runs_with_other_digests_of_one_part_are_of_two_trees(depends):
    other = {"controller/seawall": "abc", "controller/loop": depends["controller/loop"]}
    assert len(provenance.trees_of(runs(depends, depends, other))) == 1  # another law beside: no contradiction
    mixed = digest(depends, {**depends, "controller/loop": "abc"})
    assert len(mixed["trees"]) == 2
    assert "made by 2 versions; changed since: no law and no scenario" in provenance.provenance(mixed)
    assert provenance.stale_because(mixed) == "made by 2 versions; changed since: controller/loop"


def test_what_surrounds_the_laws_and_what_judges_them_make_a_page_stale_too(depends):
    assert provenance.stale_because({**digest(depends), "judged": provenance.judges_of("dets")}) == ""
    judged = {**digest(depends), "judged": {"experiments/papers/dets.py": "other"}}
    assert provenance.stale_because(judged) == "changed since: experiments/papers/dets.py"
    assert provenance.stale_because(digest({**depends, "topologies": "x"})) == "changed since: topologies"
    assert provenance.stale_because(digest({})) == "made by a version that is not known"


def test_a_page_names_a_law_that_changes(monkeypatch):
    """So that it cannot outlive it: the test of the pages in the repository compares them with what is written here."""
    now = provenance.part_digest
    law = "controller/policy"  # part of every run
    monkeypatch.setattr(provenance, "part_digest", lambda part: "x" if part == law else now(part))
    for one in markdown_pages.read_results(RESULTS):
        page = markdown_pages.paper_page(one)
        known = [each for each in one.digests.values() if all(tree["depends"] for tree in each["trees"])]
        assert page.count(law) >= len(known), one.paper.name
        assert "of this tree" not in page


def test_the_check_lists_stale_pages_and_says_by_its_status_if_there_are_any(depends, tmp_path, capsys):
    docs = tmp_path / "docs"
    (docs / "results").mkdir(parents=True)
    path = docs / "results" / "dets-model.json"

    def check():
        status = main(["figures", "--check", "--docs", str(docs)])
        return status, capsys.readouterr().out

    path.write_text(json.dumps(digest(depends)))
    status, text = check()
    assert (status, "dets.md: not as `dets figures --pages-only` writes it" in text) == (1, True)
    markdown_pages.write_docs(docs)
    assert check() == (0, "all pages are of this tree\n")
    path.write_text(json.dumps(digest({**depends, "controller/loop": "other"})))
    assert check() == (1, f"{docs}/results/dets.md, model: changed since: controller/loop\n")


def test_no_page_names_a_commit_that_is_in_no_history():
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("no repository")
    digests = [json.loads(path.read_text()) for path in RESULTS.glob("*.json")]
    for commit in {tree["commit"] for one in digests for tree in one["trees"] if "commit" in tree}:
        assert (
            subprocess.run([git, "merge-base", "--is-ancestor", commit, "HEAD"], cwd=ROOT, check=False).returncode == 0
        )
