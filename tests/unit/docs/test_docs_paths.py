"""Every file and page that the documentation names exists, and so does every module that the code's own words name."""

import re
from functools import cache
from pathlib import Path

from support.paths import ROOT

PRODUCT = ("apps", "controller", "experiments", "topologies")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_FOLDERS = "apps|controller|deploy|docs|experiments|scripts|tests|topologies"
_PATH = re.compile(rf"(?:{_FOLDERS})/[\w./-]*\w")
_LINK = re.compile(r"\]\(([^)#\s]+)")
_SOURCE = re.compile(r"(?<![\w./*])(?:[a-z_]+/)*_?[a-z]\w*\.(?:py|c)\b")
_EXAMPLES = {"controller/dets/fixed_part.py", "controller/policy/steps.py", "my.py", "my_burst.py", "my/burst.py"}
_EXAMPLES |= {"fixed_part.py", "steps.py", "line.py"}  # of the plugin
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


def test_each_path_through_the_code_has_the_files_that_it_says() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"^\*\*[^*]+\*\* \((\d+) files\)\. (.+?)\n\n", page, re.DOTALL | re.MULTILINE)
    found = {}
    for count, text in paths:
        named = set(re.findall(r"`([a-z_]+(?:/\w+)+)`", text))
        files = {name for name in named if f"/{name}.py".replace("ALGORITHM", "fair_share") in _ends()}
        assert named - files == set(re.findall(r"`(rest/http)`", text)), named - files  # a package
        found[int(count)] = len(files)
    assert found == {15: 15, 12: 12, 10: 10}


def unknown_sources(text: str) -> set[str]:
    """Return the source files that a text names, by the end of their paths, and that do not exist."""
    return {one for one in _SOURCE.findall(text) if f"/{one}" not in _ends()} - _EXAMPLES


@cache
def _ends() -> set[str]:
    """Return the ends of the paths of all source files, from each of their slashes on."""
    found = [*ROOT.glob("*.py"), *(path for top in (*PRODUCT, "tests") for path in (ROOT / top).rglob("*.[pc]*"))]
    paths = [path.relative_to(ROOT) for path in found]
    return {"/" + "/".join(path.parts[at:]) for path in paths for at in range(len(path.parts))}


def test_every_source_file_that_pages_and_modules_name_exists() -> None:
    sources = (path for top in PRODUCT for end in ("*.py", "*.c", "*.h") for path in (ROOT / top).rglob(end))
    found = {path: unknown_sources(path.read_text(encoding="utf-8")) for path in (*PAGES, *sources)}
    assert {str(path.relative_to(ROOT)): gone for path, gone in found.items() if gone} == {}


def test_a_source_file_that_does_not_exist_is_found() -> None:
    text = "setup.py, errors.py, `controller/errors.py`, loop/errors.py, _nothing.c"
    assert unknown_sources(text) == {"loop/errors.py", "_nothing.c"}


def test_what_does_not_exist_is_found() -> None:
    text = "`controller/errors.py`, `python scripts/nothing`, `controller/NAME`, [a](operator-guide.md#x), [b](c.md)"
    assert missing(text, ROOT / "docs") == {"scripts/nothing", "c.md"}
