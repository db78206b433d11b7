"""The pages of results in the repository are those of its digests, and say which laws have changed since the runs."""

from __future__ import annotations

from support.paths import ROOT

from experiments.figures import markdown_pages


def test_the_pages_in_the_repository_are_those_of_its_figures():
    """``dets figures --pages-only`` after a change of claims, figures, laws or scenarios: a page outlives no law."""
    docs = ROOT / "docs"
    results = markdown_pages.read_results(docs / "results")
    written = markdown_pages.pages_of(docs, results)
    other = [str(path.relative_to(ROOT)) for path, text in written.items() if path.read_text() != text]
    assert not other, "run dets figures --pages-only"
    assert len(written[docs / "results.md"].split()) < 1500
