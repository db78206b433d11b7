"""What people read: ``docs/results.md``, a page of claims for each paper, and ``results/index.html`` with the pictures.

All of it is made from the digests, ``docs/results/*.json``, so that the pages can be written again without a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.evaluation.claims import ClaimVerdict, Paper
from experiments.figures.digests import FABRICS, HOLDS, read_digests
from experiments.papers import papers, source_of
from experiments.scenarios.scenario import CONDITIONS

SHORT = {"model": "model", "ovs": "Open vSwitch", "wire": "software switches"}


@dataclass(frozen=True, slots=True)
class PaperResults:
    """A paper, and what its runs came to on each fabric."""

    paper: Paper
    digests: Mapping[str, dict[str, Any]]
    conditions: Mapping[str, dict[str, Any]]

    def verdicts(self, key: str) -> dict[str, ClaimVerdict]:
        """Return what each fabric says of a claim."""
        found = {fabric: digest["claims"].get(key) for fabric, digest in self.digests.items()}
        return {fabric: ClaimVerdict(**one) if one else ClaimVerdict("-", None) for fabric, one in found.items()}


def read_results(folder: Path) -> list[PaperResults]:
    """Return the results of the papers that have any, from the folder of the digests."""
    read = [PaperResults(one, read_digests(folder, name), read_digests(folder, name, "-conditions"))
            for name, one in papers().items()]  # fmt: skip
    return [one for one in read if one.digests or one.conditions]


def write_docs(docs: Path) -> list[Path]:
    """Write the pages for all digests of ``docs/results``; return them."""
    results = read_results(docs / "results")
    pages = {docs / "results.md": overview_page(results)}
    pages |= {docs / page_of(one.paper): paper_page(one) for one in results}
    for path, text in pages.items():
        path.write_text(text)
    return list(pages)


def page_of(paper: Paper) -> str:
    """Return where a paper's page stands in docs/."""
    return paper.page or f"results/{paper.name}.md"


def overview_page(results: Sequence[PaperResults]) -> str:
    """Return ``docs/results.md``: how many of each paper's claims hold, and those that do not."""
    fabrics = [fabric for fabric in SHORT if any(fabric in one.digests for one in results)]
    lines = [
        "# Results",
        "",
        "Written by `dets figures`; do not edit. A paper's page has what was found for each claim.",
        "",
        _row(["paper", "claims", *(f"hold on {SHORT[fabric]}" for fabric in fabrics), "not tested"]),
        _row(["---"] * (len(fabrics) + 3)),
    ]
    for one in results:
        holds = {claim.key: [v.holds for v in one.verdicts(claim.key).values()] for claim in one.paper.claims}
        counts = []
        for fabric in fabrics:
            known = [one.verdicts(key)[fabric].holds for key in holds if fabric in one.digests]
            tested = [verdict for verdict in known if verdict is not None]
            counts.append(f"{sum(tested)} of {len(tested)}" if tested else "-")
        untested = sum(all(verdict is None for verdict in verdicts) for verdicts in holds.values())
        name = f"[{one.paper.title}]({page_of(one.paper)})"
        lines.append(_row([name, str(len(holds)), *counts, str(untested)]))
    lines += ["", "## Claims that do not hold", ""]
    lines += [_row(["paper", "section", "claim", "found where it does not hold"]), _row(["---"] * 4)]
    for one in results:
        for claim in one.paper.claims:
            verdicts = one.verdicts(claim.key).items()
            failed = [f"{SHORT[fabric]}: {verdict.found}" for fabric, verdict in verdicts if verdict.holds is False]
            if failed:
                lines.append(_row([one.paper.title, claim.section, claim.says, "; ".join(failed)]))
    lines += [
        "",
        "## Where the figures are",
        "",
        "- How claims are judged: `experiments/papers/PAPER.py`. What is measured: [experiments](experiments.md).",
        "- Every measure by experiment and control, with confidence intervals: the `tables` of "
        "`docs/results/PAPER-FABRIC.json`.",
        "- Pictures, the same tables, and each run's manifest: `results/index.html`, after `make figures`.",
        "- `make figures PAPER=NAME` runs what is missing and writes the pages; `dets figures --pages` writes them.",
    ]
    return "\n".join(lines) + "\n"


def paper_page(results: PaperResults) -> str:
    """Return ``docs/results/PAPER.md``: each claim with what was found, and what decides under other conditions."""
    paper, fabrics = results.paper, list(results.digests)
    best = [f"{paper.best_title} (`{paper.best}`)"] if paper.best else []
    heads = ["section", "claim", *(FABRICS[fabric] for fabric in fabrics), *best, "holds"]
    up = "../" * page_of(paper).count("/")
    judged = "How each claim is judged" if paper.claims else "How it is made"
    lines = [
        f"# {paper.title}: which claims hold" if paper.claims else f"# {paper.title}",
        "",
        f"Written by `dets figures --paper {paper.name}`; do not edit. {judged}: "
        f"`{source_of(paper.name)}`. All papers: [results]({up}results.md).",
        "",
        *([_row(heads), _row(["---"] * len(heads))] if paper.claims else [paper.note]),
    ]
    for claim in paper.claims:
        verdicts = results.verdicts(claim.key)
        shown = "; ".join(f"{fabric}: {one.best}" for fabric, one in verdicts.items() if one.best != "-") or "-"
        holds = ", ".join(f"{fabric} {bold(HOLDS[one.holds])}" for fabric, one in verdicts.items())
        found = [one.found for one in verdicts.values()]
        lines.append(_row([claim.section, claim.says, *found, *([shown] if best else []), holds]))
    lines += [
        "",
        'Means over seeds; "+-" is half the width of the 95 % confidence interval. "-": not run there, or it does not '
        "tell. Open vSwitch carries a twentieth of the paper's rates, and fewer algorithms and seeds.",
        "",
        *(f"- {FABRICS[fabric]}: {made_with(digest)}" for fabric, digest in results.digests.items()),
    ]
    for fabric, digest in results.digests.items():
        for title, (heading, *rows) in digest.get("paper_tables", {}).items():
            lines += ["", f"## {title}: {FABRICS[fabric]}", "", _row(heading), _row(["---"] * len(heading))]
            lines += [_row(row) for row in rows]
    for fabric, digest in results.conditions.items():
        lines += ["", f"## Under the paper's conditions: {FABRICS[fabric]}", "", *_conditions(digest)]
    return "\n".join(lines) + "\n"


def _conditions(digest: Mapping[str, Any]) -> list[str]:
    """Return whether claims hold under each of the conditions, and what decides."""
    names = digest["conditions"]
    heads = ["section", "claim", *(f"`{name}`" for name in names), "what decides"]
    lines = [f"- `{name}`: {CONDITIONS[name].title}" for name in names]
    lines += ["", made_with(digest), "", _row(heads), _row(["---"] * len(heads))]
    for row in digest["claims"]:
        holds = [bold(verdict.split(":")[0]) for verdict in row["verdicts"]]
        lines.append(_row([row["section"], row["says"], *holds, row["decides"]]))
    return lines


def bold(holds: str) -> str:
    """Return a verdict as text of a page: what does not hold is to be seen."""
    return "**no**" if holds == "no" else holds


def made_with(digest: Mapping[str, Any]) -> str:
    """Return what the runs of a digest were made with."""
    machine, commits = digest["machine"], ", ".join(digest["commits"])
    busy = digest["runs_with_warnings"]
    return (
        f"last command `{digest['command']}`; in all {digest['runs']} runs, {busy} of them with warnings; "
        f"commit {commits}; "
        f"{machine.get('cpus')} processors, Linux {machine.get('kernel')}, Python {machine.get('python')}"
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
