"""The decisions of ``docs/adr`` have one form, an index, and each is referred to by the code or a page."""

import re
from pathlib import Path

from support.paths import ROOT

FOLDER = ROOT / "docs" / "adr"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))
MAX_DECISIONS = 45
MAX_WORDS = 300
_HEADINGS = ["Context", "Decision", "Rejected, with why"]
_GOES = re.compile(r"^Status: accepted, until .+ removed$", re.MULTILINE)
_ROW = re.compile(r"^\| \[(\d+)\]\((\S+)\) \| (.+) \|$", re.MULTILINE)
_REFERENCE = re.compile(r"\badr/(\d{4})\b|\bADR\s(\d+)\b")
_FOLDERS = ("apps", "controller", "docs", "experiments", "scripts", "tests", "topologies")
_SUFFIXES = {".c", ".h", ".md", ".py"}


def number(decision: Path) -> int:
    """Return the number that a decision's file begins with."""
    return int(decision.name[:4])


def will_go(decision: Path) -> bool:
    """Return whether a decision's status says that it ends with its code."""
    return bool(_GOES.search(decision.read_text(encoding="utf-8")))


def references(text: str) -> set[int]:
    """Return the numbers of the decisions that a text refers to."""
    return {int(one or other) for one, other in _REFERENCE.findall(text)}


def has_the_form(decision: Path) -> bool:
    """Return whether a decision has its headings, something under each, and no more words than it may."""
    text = decision.read_text(encoding="utf-8")
    return (
        bool(re.match(rf"# {number(decision)}\. \S[^\n]+\n\nStatus: accepted[^\n]*\n\n## Context\n", text))
        and re.findall(r"^#+ (.+)$", text, re.MULTILINE)[1:] == _HEADINGS
        and all(section.strip() for section in re.split(r"^## .+$", text, flags=re.MULTILINE))
        and len(text.split()) <= MAX_WORDS
    )


def test_decisions_have_the_form() -> None:
    assert [one.name for one in DECISIONS if not has_the_form(one)] == []


def test_decisions_are_few() -> None:
    assert len([decision for decision in DECISIONS if not will_go(decision)]) <= MAX_DECISIONS


def test_the_index_is_complete() -> None:
    titles = [decision.read_text(encoding="utf-8").split("\n")[0].partition(". ")[2] for decision in DECISIONS]
    expected = [(number(one), one.name, title) for one, title in zip(DECISIONS, titles, strict=True)]
    rows = _ROW.findall((FOLDER / "README.md").read_text(encoding="utf-8"))
    assert [(int(row[0]), row[1], row[2]) for row in rows] == expected


def test_each_decision_is_referred_to_and_no_other() -> None:
    numbers = {number(decision) for decision in DECISIONS}
    files = [*ROOT.glob("*.md"), *(one for name in _FOLDERS for one in (ROOT / name).rglob("*"))]
    readable = [one for one in files if one.suffix in _SUFFIXES and one != Path(__file__) and one.is_file()]
    named = {one: references(one.read_text(encoding="utf-8")) for one in readable}
    assert {str(one.relative_to(ROOT)): gone for one, found in named.items() if (gone := found - numbers)} == {}
    elsewhere = set().union(*(found for one, found in named.items() if one.parent != FOLDER))
    assert {number(one) for one in DECISIONS if not will_go(one)} - elsewhere == set()


def test_references_are_found() -> None:
    assert references("(docs/adr/0077), [a](../adr/0030-buckets.md), ADR\n12 and ADR 5") == {77, 30, 12, 5}
