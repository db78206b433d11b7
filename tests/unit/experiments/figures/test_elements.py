"""Every element of the four papers is judged, or its file says why not; the pages have a row for each."""

from __future__ import annotations

import re

import pytest
from support.paths import ROOT

from controller.errors import InvalidValueError
from experiments.evaluation.elements import read_elements
from experiments.figures.markdown_pages import page_of
from experiments.papers import elements_of, papers

PAPERS = ("dets", "gatekeeper", "hygenicc", "seawall")
NUMBERED = {
    "dets": ["fig. 1", "fig. 2", "fig. 3", "fig. 4", "fig. 5", "fig. 6", "fig. 7", "alg. 1", "alg. 2"],
    "gatekeeper": ["fig. 1", "fig. 2", "fig. 3", "fig. 4", "fig. 5a", "fig. 5b", "fig. 6a", "fig. 6b", "fig. 7"],
    "hygenicc": ["fig. 1", *(f"fig. 2{part}" for part in "abcdef"), "fig. 3", "tab. I", "alg. 1", "alg. 2"],
    "seawall": [
        *("fig. 1", "fig. 2", "fig. 3", "fig. 4a", "fig. 4b", "figs. 5, 6", "fig. 7", "fig. 8", "fig. 9(a)"),
        *("fig. 9(b)", "fig. 10", "fig. 11", "table 1", "class 1", "class 2", "class 3"),
    ],
}
"""What the papers number, besides sections."""


@pytest.mark.parametrize("name", PAPERS)
def test_every_figure_and_table_of_a_paper_is_an_element(name):
    places = "; ".join(one.where for one in elements_of(name)) + ";"
    assert not [one for one in NUMBERED[name] if not re.search(rf"{re.escape(one)}(?![0-9])", places)]


def test_every_claim_is_cited_by_an_element_and_nothing_else_is():
    known = papers()
    keys = {(name, one.key) for name, paper in known.items() for one in (*paper.claims, *paper.aims)}
    cited = set()
    for name in PAPERS:
        for element in elements_of(name):
            cited |= {(key.rpartition("/")[0] or name, key.rpartition("/")[2]) for key in element.judged}
    assert cited <= keys
    assert {(name, claim.key) for name, paper in known.items() for claim in paper.claims} <= cited


@pytest.mark.parametrize("name", PAPERS)
def test_a_page_has_a_row_for_each_element_and_no_other(name):
    elements = elements_of(name)
    assert not [one.tested for one in elements if one.tested and not (ROOT / one.tested).is_file()]
    lines = (ROOT / "docs" / page_of(papers()[name])).read_text().splitlines()
    begin = lines.index("| where | what | judged by |") + 2
    rows = [line.strip("| ").split(" | ") for line in lines[begin : begin + len(elements)]]
    assert [row[:2] for row in rows] == [[one.where, one.says] for one in elements]
    for one, row in zip(elements, rows, strict=True):
        assert all(f"`{key}`" in row[2] for key in one.judged)
        assert one.tested in row[2]
        assert row[2].startswith("not testable here: ") == bool(one.not_testable)
    assert not "".join(lines[begin + len(elements) : begin + len(elements) + 1])


@pytest.mark.parametrize(
    "row",
    [
        '{ where = "1", says = "fast" }',
        '{ where = "1", says = "fast", judged = [] }',
        '{ where = "1", says = "fast", judged = ["a"], not_testable = "b" }',
        '{ where = "1", judged = ["a"] }',
        '{ where = "1", says = "fast", judge = ["a"] }',
    ],
)
def test_an_element_that_nothing_or_two_things_judge_is_refused_by_its_number(tmp_path, row):
    path = tmp_path / "whisper.toml"
    path.write_text(f'elements = [{{ where = "1", says = "slow", judged = ["b"] }}, {row}]')
    with pytest.raises(InvalidValueError, match=r"whisper.toml elements\[1\]"):
        read_elements(path)
