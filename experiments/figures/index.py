"""``results/index.html``: claims, pictures, measures and manifests in one file."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.figures.digests import FABRICS, HOLDS
from experiments.figures.pages import PaperResults, made_with
from experiments.scenarios import scenarios


def index_page(
    results: Sequence[PaperResults],
    pictures: Mapping[str, Sequence[tuple[str, str, Path]]],
    manifests: Mapping[str, Mapping[str, object]],
) -> str:
    """Return the page: claims by paper, then a section per experiment with pictures and tables, then manifests.

    ``pictures`` holds (fabric, caption, file) by experiment, ``manifests`` each run's by its name.
    """
    parts = [_HEAD, "<h1>The papers' evaluations, made again</h1>", *(_claims(one) for one in results)]
    tables: dict[str, dict[str, list[list[str]]]] = {fabric: {} for fabric in FABRICS}
    for one in results:
        for fabric, digest in one.digests.items():
            tables[fabric] |= digest["tables"]
    for name in dict.fromkeys([*pictures, *(name for mine in tables.values() for name in mine)]):
        parts.append(f"<h2 id='{html.escape(name)}'>{html.escape(name)}</h2><p>{html.escape(_title(name))}</p>")
        for fabric, caption, path in pictures.get(name, ()):
            data = base64.b64encode(path.read_bytes()).decode()
            text = html.escape(f"{caption} ({FABRICS[fabric]})")
            parts.append(f"<figure><img alt='{text}' src='data:image/png;base64,{data}'>")
            parts.append(f"<figcaption>{text}</figcaption></figure>")
        for fabric, mine in tables.items():
            if name in mine:
                parts.append(f"<h3>{html.escape(FABRICS[fabric])}</h3>{_table(mine[name])}")
    parts += [_conditions(one) for one in results]
    parts.append("<h2>Manifests</h2>")
    for name, one_run in manifests.items():
        text = html.escape(json.dumps(one_run, indent=1, default=str))
        parts.append(f"<details><summary>{html.escape(name)}</summary><pre>{text}</pre></details>")
    return "\n".join([*parts, "</body></html>\n"])


def _claims(results: PaperResults) -> str:
    paper, heading = results.paper, ["section", "claim"]
    for fabric in results.digests:
        heading += [FABRICS[fabric], *([paper.best_title] if paper.best else []), "holds"]
    rows = [heading]
    for claim in paper.claims:
        row = [claim.section, claim.says]
        for verdict in results.verdicts(claim.key).values():
            row += [verdict.found, *([verdict.best] if paper.best else []), HOLDS[verdict.holds]]
        rows.append(row)
    made = "".join(f"<p>{html.escape(FABRICS[name])}: {html.escape(made_with(one))}</p>"
                   for name, one in results.digests.items())  # fmt: skip
    tables = "".join(
        f"<h3>{html.escape(title)}: {html.escape(FABRICS[name])}</h3>{_table(table)}"
        for name, one in results.digests.items()
        for title, table in one.get("paper_tables", {}).items()
    )
    return f"<h2>{html.escape(paper.title)}: claims</h2>{_table(rows)}{made}{tables}"


def _conditions(results: PaperResults) -> str:
    """Return the claims and measures under each of the conditions."""
    parts = []
    for fabric, digest in results.conditions.items():
        heading = ["section", "claim", *digest["conditions"], "what decides"]
        rows = [[one["section"], one["says"], *one["verdicts"], one["decides"]] for one in digest["claims"]]
        parts.append(f"<h2>{html.escape(results.paper.title)}, by conditions: {html.escape(FABRICS[fabric])}</h2>")
        parts.append(_table([heading, *rows]))
        parts += [f"<h3>{html.escape(name)}</h3>{_table(table)}" for name, table in digest["tables"].items()]
    return "".join(parts)


def _title(name: str) -> str:
    known = scenarios()
    return known[name].title if name in known else name


def _table(rows: Sequence[Sequence[str]]) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        classes = {"yes": " class='yes'", "no": " class='no'"}
        return "".join(f"<{tag}{classes.get(cell, '')}>{html.escape(cell.replace('`', ''))}</{tag}>" for cell in row)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows[1:])
    return f"<table><tr>{cells(rows[0], 'th')}</tr>{body}</table>"


_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Results</title><style>
body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 1200px; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; }
th, td { border: 1px solid #ccc; padding: 4px 8px; text-align: left; vertical-align: top; }
th { background: #f2f2f2; } .yes { background: #e2f4e2; } .no { background: #fbe0de; }
img { max-width: 100%; } figure { margin: 1em 0; } figcaption { font-size: 13px; color: #555; }
pre { overflow-x: auto; background: #f7f7f7; padding: 1em; font-size: 12px; }
</style></head><body>"""
