"""The pages of results: ``docs/results.md`` and a page of claims for each paper.

All of it is made from the digests, ``docs/results/*.json``, so that pages can be written again without a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.evaluation.claims import UNDECIDED, ClaimVerdict, NotRun, Outcome, Paper, Published
from experiments.evaluation.elements import Element
from experiments.figures import comparison
from experiments.figures.provenance import provenance
from experiments.figures.result_digests import FABRICS, HOLDS, read_digests
from experiments.papers import elements_of, papers, source_of
from experiments.scenarios.scenario import CONDITIONS

UNKNOWN = ClaimVerdict("-", None)
SHORT = {"model": "model", "ovs": "Open vSwitch", "wire": "software switches"}


@dataclass(frozen=True, slots=True)
class PaperResults:
    """A paper; by fabric, the ``digests`` of its runs, and the digests of its runs under each of the ``conditions``."""

    paper: Paper
    digests: Mapping[str, dict[str, Any]]
    conditions: Mapping[str, dict[str, Any]]

    def ours(self, key: str, fabric: str) -> ClaimVerdict:
        """Return a fabric's verdict on a claim or an aim under the product's default."""
        verdict = self.digests.get(fabric, {}).get("claims", {}).get(key)
        return ClaimVerdict(**verdict) if verdict else UNKNOWN

    def published(self, key: str, fabric: str) -> ClaimVerdict:
        """Return a fabric's verdict on a claim as published; ``ours`` if no law takes part."""
        claim = next(candidate for candidate in self.paper.claims if candidate.key == key)
        if claim.published is None:
            return self.ours(key, fabric)
        verdict = self.digests.get(fabric, {}).get("published", {}).get(key)
        return ClaimVerdict(**verdict) if verdict else UNKNOWN


def read_results(folder: Path) -> list[PaperResults]:
    """Return the results of the papers that have any, from the folder of the digests."""
    read = [PaperResults(paper, read_digests(folder, name), read_digests(folder, name, "-conditions"))
            for name, paper in papers().items()]  # fmt: skip
    return [result for result in read if result.digests or result.conditions]


def write_docs(docs: Path) -> list[Path]:
    """Write the pages for all digests of ``docs/results``; return them."""
    pages = pages_of(docs, read_results(docs / "results"))
    for path, text in pages.items():
        path.write_text(text)
    return list(pages)


def pages_of(docs: Path, results: Sequence[PaperResults]) -> dict[Path, str]:
    """Return the text of each page by its path."""
    pages = {docs / page_of(result.paper): paper_page(result) for result in results}
    return {docs / "results.md": overview_page(results)} | pages | _pictures(docs, results)


def page_of(paper: Paper) -> str:
    """Return the path of a paper's page in docs/."""
    return paper.page or f"results/{paper.name}.md"


def overview_page(results: Sequence[PaperResults]) -> str:
    """Return ``docs/results.md``: how many of each paper's claims hold, as published and ours, by fabric."""
    fabrics = [fabric for fabric in SHORT if any(fabric in paper_result.digests for paper_result in results)]
    heads = ["paper", "claims", *(f"{kind}, {SHORT[f]}" for kind in ("as published", "ours") for f in fabrics)]
    counted = "Claims by verdict: holds / fails / undecided / not run."
    lines = ["# Results", "", counted, "", _row(heads), _row(["---"] * len(heads))]
    for result in results:
        if result.paper.claims:
            counts = [
                _verdict_counts([verdict_of(claim.key, fabric).holds for claim in result.paper.claims])
                for verdict_of in (result.published, result.ours)
                for fabric in fabrics
            ]
            name = f"[{result.paper.title}]({page_of(result.paper)})"
            lines.append(_row([name, str(len(result.paper.claims)), *counts]))
    lines += [
        "",
        "Written by `dets figures`; do not edit. *As published*: the paper's law, constants and conditions; each page "
        "says how they are scaled. *Ours*: the default parameters of the policy of that name. A verdict is undecided "
        "if the threshold lies within the 95 % interval of the seeds' mean, or if there are fewer than three seeds. "
        "This project's own aims are not counted. [Comparison](comparison.md) runs all systems on the same traffic.",
        "",
        "## Where the figures are",
        "",
        "- How claims are judged: `experiments/papers/PAPER.py`. What is measured: "
        "[experiments](experiments.md#what-is-measured).",
        "- Every measure by experiment and control, with confidence intervals: the `tables` of "
        "`docs/results/PAPER-FABRIC.json`.",
        "- Pictures: `results/figures/FABRIC/EXPERIMENT.png`, after `make figures`. The folders beside them have the "
        "columns and the manifest of each run.",
        "- `make figures PAPER=NAME` makes missing runs; `dets figures --pages-only` only writes the pages; "
        "`dets figures --check` lists pages made by an older version, and what has changed since.",
    ]
    return "\n".join(lines) + "\n"


def _verdict_counts(outcomes: Sequence[Outcome]) -> str:
    """Return the numbers of outcomes that hold, fail, are undecided and are not run, as text."""
    return " / ".join(str(outcomes.count(outcome)) for outcome in (True, False, UNDECIDED, None))


def paper_page(results: PaperResults) -> str:
    """Return ``docs/results/PAPER.md``: the verdict of each fabric on each claim, and the deciding conditions."""
    paper = results.paper
    docs = "../" * page_of(paper).count("/")  # from the page's folder
    files = ", ".join(f"`docs/results/{paper.name}-{fabric}.json`" for fabric in results.digests)
    judged = "How each claim is judged" if paper.claims else "How it is made"
    lines = [
        f"# {paper.title}: which claims hold" if paper.claims else f"# {paper.title}",
        "",
        f"Written by `dets figures --paper {paper.name}`; do not edit. {judged}: `{source_of(paper.name)}`. "
        f"What was measured: {files}. All papers: [results]({docs}results.md).",
        "",
        *([paper.note, ""] if paper.note else []),
        *(_claims(results) if paper.claims else _systems(results)),
        "",
        '"-": not run, or the runs do not decide. On Open vSwitch rates are a twentieth, and runs are fewer: what is '
        "undecided there with fewer than three seeds needs more of them.",
        "",
        *(line for fabric, digest in results.digests.items() for line in _made_with(fabric, digest)),
    ]
    if elements := elements_of(paper.name):
        lines += ["", "## Every element, figure and number of the paper", "", *_elements(elements)]
    for fabric, digest in results.conditions.items():
        lines += ["", f"## Under the paper's conditions: {FABRICS[fabric]}", "", *_conditions(digest)]
    return "\n".join(lines) + "\n"


def _made_with(fabric: str, digest: Mapping[str, Any]) -> list[str]:
    """Return the provenance of a fabric's runs, and their warnings by kind."""
    kinds = [f"  - in {count} of the runs: {kind}" for kind, count in digest.get("warnings", {}).items()]
    return [f"- {FABRICS[fabric]}: {provenance(digest)}", *kinds]


def _claims(results: PaperResults) -> list[str]:
    """Return the lines of the table of claims, of the table of aims, and of the list of what is as published."""
    fabrics = list(results.digests)
    heads = [f"{kind}, {SHORT[fabric]}" for kind in ("published", "ours") for fabric in fabrics]
    heads = ["section", "claim", "key", *heads, "found where it does not hold", "what decides"]
    lines = [_row(heads), _row(["---"] * len(heads))]
    for claim in results.paper.claims:
        published = {fabric: results.published(claim.key, fabric) for fabric in fabrics}
        ours = {fabric: results.ours(claim.key, fabric) for fabric in fabrics}
        verdicts = [HOLDS[verdict.holds] for verdict in (*published.values(), *ours.values())]
        found = [] if claim.published is None else _found(published, ", as published")
        decides = {fabric: results.digests[fabric].get("decides", {}).get(claim.key) for fabric in fabrics}
        known = "; ".join(f"{SHORT[fabric]}: {text}" for fabric, text in decides.items() if text)
        cells = [claim.section, claim.title, f"`{claim.key}`", *map(bold, verdicts)]
        lines.append(_row([*cells, "; ".join(found + _found(ours)), known]))
    if results.paper.aims:
        heads = ["aim", "key", *(SHORT[fabric] for fabric in fabrics), "found where it does not hold"]
        lines += ["", "Aims of this project, no claims of the paper:", "", _row(heads), _row(["---"] * len(heads))]
    for aim in results.paper.aims:
        ours = {fabric: results.ours(aim.key, fabric) for fabric in fabrics}
        cells = [aim.title, f"`{aim.key}`", *(bold(HOLDS[our.holds]) for our in ours.values()), "; ".join(_found(ours))]
        lines.append(_row(cells))
    return [*lines, "", *_forms(results.paper)]


def _found(verdicts: Mapping[str, ClaimVerdict], more: str = "") -> list[str]:
    """Return the results on the fabrics on which a statement does not hold; ``more`` follows the fabric's name."""
    failed = {fabric: verdict for fabric, verdict in verdicts.items() if verdict.holds in (False, UNDECIDED)}
    return [f"{SHORT[fabric]}{more}: {verdict.result}" for fabric, verdict in failed.items()]


def _forms(paper: Paper) -> list[str]:
    """Return the lines that say what "as published" means, and what is missing for claims that are not run so."""
    lines: dict[str, list[str]] = {}
    for claim in paper.claims:
        if isinstance(claim.published, Published):
            lines.setdefault(f"As published: {claim.published.form}.", [])
        elif isinstance(claim.published, NotRun):
            lines.setdefault(f"Not run as published; missing: {claim.published.why}", []).append(claim.key)
    return [f"- {text}{': ' + ', '.join(f'`{key}`' for key in keys) if keys else ''}" for text, keys in lines.items()]


def _elements(elements: Sequence[Element]) -> list[str]:
    """Return a row for each element of a paper: the keys of its judges, or a test, or why it is not judged."""
    lines = [_row(["where", "what", "judged by"]), _row(["---"] * 3)]
    for element in elements:
        without_keys = f"a test: `{element.tested}`" if element.tested else f"not testable here: {element.not_testable}"
        judge = ", ".join(f"`{key}`" for key in element.judged) or without_keys
        lines.append(_row([element.where, element.says, judge]))
    return lines


def _systems(results: PaperResults) -> list[str]:
    """Return for each fabric the picture of systems by criteria and a summary; after the first picture the criteria."""
    tables_by_fabric = {fabric: digest.get("paper_tables", {}) for fabric, digest in results.digests.items()}
    lines = []
    for number, (fabric, tables) in enumerate(tables_by_fabric.items()):
        title = f"Systems by criteria, {FABRICS[fabric]}"
        lines += [f"![{title}]({_picture_of(results.paper, fabric)})", ""]
        criteria = [] if number else [comparison.criteria(tables)]  # the first fabric has all of them
        for heads, *rows in (*criteria, comparison.summary(tables)):
            lines += [_row(heads), _row(["---"] * len(heads)), *map(_row, rows), ""]
    files = ", ".join(f"`docs/results/{results.paper.name}-{fabric}.json`" for fabric in results.digests)
    return [*lines, f"Each system's figures under each traffic are the `paper_tables` of {files}."]


def _picture_of(paper: Paper, fabric: str) -> str:
    """Return the name of the picture of a fabric's results of a paper that has no claims."""
    return f"{paper.name}-{fabric}.svg"


def _pictures(docs: Path, results: Sequence[PaperResults]) -> dict[Path, str]:
    """Return the pictures of each page that has tables and no claims, one for each fabric."""
    return {
        (docs / page_of(result.paper)).with_name(_picture_of(result.paper, fabric)): comparison.picture(
            digest.get("paper_tables", {})
        )
        for result in results
        if not result.paper.claims
        for fabric, digest in result.digests.items()
    }


def _conditions(digest: Mapping[str, Any]) -> list[str]:
    """Return the lines about conditions: a list of them, then a table of the claims whose verdict depends on them."""
    names = digest["conditions"]
    heads = ["section", "claim", *(f"`{name}`" for name in names), "what decides"]
    dependent = [row for row in digest["claims"] if not row["decides"].startswith("nothing")]
    same = len(digest["claims"]) - len(dependent)
    lines = [f"- `{name}`: {CONDITIONS[name].title}" for name in names]
    lines += ["", f"{provenance(digest)}. The verdicts on {same} other claims are the same under all conditions.", ""]
    lines += [_row(heads), _row(["---"] * len(heads))] if dependent else []
    for row in dependent:
        holds = [bold(verdict.split(":")[0]) for verdict in row["verdicts"]]
        lines.append(_row([row["section"], row["says"], *holds, row["decides"]]))
    return lines


def bold(holds: str) -> str:
    """Return a verdict as text of a page, bold if the claim does not hold."""
    return f"**{holds}**" if holds == "fails" else holds


def _row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
