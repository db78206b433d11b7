"""Every file and page that the documentation names exists."""

import re
from pathlib import Path

from support.paths import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_FOLDERS = "apps|controller|deploy|docs|experiments|scripts|tests|topologies"
_PATH = re.compile(rf"(?:{_FOLDERS})/[\w./-]*\w")
_LINK = re.compile(r"\]\(([^)#\s]+)")
_NOT_THERE = {  # what readers are shown how to add
    "docs/allocation.md": {"controller/dets/fixed_part.py"},
    "docs/policies.md": {"controller/policy/steps.py"},
}


def missing(text: str, folder: Path) -> set[str]:
    """Return the paths in inline code, and the targets of links from a page in ``folder``, that do not exist."""
    words = (word for code in re.findall(r"`([^`\n]+)`", text) for word in code.split())
    named = {found[0] for word in words if (found := _PATH.match(word)) and not re.search(r"[A-Z]{3}", word)}
    linked = {link for link in _LINK.findall(text) if "://" not in link}
    return {one for one in named if not (ROOT / one).exists()} | {one for one in linked if not (folder / one).exists()}


def test_every_path_and_link_of_a_page_exists() -> None:
    found = {page: missing(page.read_text(encoding="utf-8"), page.parent) for page in PAGES}
    assert {str(page.relative_to(ROOT)): gone for page, gone in found.items() if gone} == _NOT_THERE


def test_what_does_not_exist_is_found() -> None:
    text = "`controller/errors.py`, `python scripts/nothing`, `controller/NAME`, [a](operator-guide.md#x), [b](c.md)"
    assert missing(text, ROOT / "docs") == {"scripts/nothing", "c.md"}
