"""The parts of the documentation that are made from the code: complete, true and up to date."""

import re
from pathlib import Path

import pytest
from support.paths import ROOT

from apps import cli
from apps.cli.reference import commands, configuration, pages, regenerate, rest
from controller.config.sections import ListenerSection, RootSection, Section
from controller.errors import InvalidValueError

DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", pages(DOCS), ids=lambda page: page.name)
def test_the_pages_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == regenerate(text, cli.COMMAND), "run dets docs"


def test_every_section_and_key_is_there_and_says_what_it_means() -> None:
    def all_of(section: type[Section]) -> set[type[Section]]:
        return {section}.union(*(all_of(one) for one in section.__subclasses__()))

    assert set(configuration.sections()) == all_of(Section) - {Section, ListenerSection, RootSection}
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", configuration.reference(), re.MULTILINE)
    assert [row[0] for row in rows] == [name for one in configuration.sections() for name in one.model_fields]
    assert all(cell.strip() for row in rows for cell in row)
    sections = {one.path.split(".")[0].split("[")[0] for one in configuration.sections()}
    assert sections | {"include"} == set(RootSection.model_fields)


def test_every_command_is_there_and_hidden_ones_are_not() -> None:
    text = commands.reference(cli.COMMAND)
    named = re.findall(r"^\| `dets ((?:[a-z-]+ ?)+)", text, re.MULTILINE)
    shown = {name.strip() for name in named}
    assert {"vlan list", "limit reset", "bench loop"} <= shown
    assert "docs" not in shown
    assert "| `dets check CONFIG` | " in text
    assert "| `dets limit set --vlan VLAN --port PORT` | Set limits and weight of a VN, " in text
    assert all(re.fullmatch(r"\| `[^`]+` \| \S.*\. \|", row) for row in text.splitlines()[2:])


def test_every_request_is_there_and_says_what_it_does() -> None:
    text = rest.reference()
    document = rest.description()
    for path, methods in document["paths"].items():
        for method in methods:
            assert re.search(rf"^\| `{method.upper()} {re.escape(path)}` \| \S.* \|$", text, re.MULTILINE)


def test_pages_are_written_anew_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- made by dets docs: configuration -->\nold\n<!-- end -->\nafter\n")
    assert cli.main(["docs", "--check", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"dets: {page} is out of date: run dets docs\n"
    assert cli.main(["docs", str(tmp_path)]) == 0
    assert cli.main(["docs", "--check", str(tmp_path)]) == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "`interval_ms`" in text
    assert "old" not in text


def test_what_is_no_part_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidValueError, match="'colours' is not one of commands, configuration, rest"):
        regenerate("<!-- made by dets docs: colours -->\n<!-- end -->\n", cli.COMMAND)
    assert cli.main(["docs", str(tmp_path)]) == 2
    assert "has no page with a part made by dets docs" in capsys.readouterr().err
