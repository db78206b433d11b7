"""What the pages say of the ``dets`` command, of files and of messages: it is there, and reads as they say."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from support.paths import ROOT

from apps.cli import COMMAND
from apps.cli.support.limits_file import read_limits
from controller.config.loader import parse_config

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
_SAID = re.compile(r"`dets ([^`\n]+)`|^(?: {4})?(?:\S*/bin/)?dets (.+)$", re.MULTILINE)


def commands(text: str) -> list[str]:
    """Return what follows ``dets`` in inline code and on lines of their own, comments and redirections cut off."""
    found = [one or other for one, other in _SAID.findall(text)]
    return [re.split(r"\s#|\s>|\s\|\||\s&", words)[0] for words in found]


def unknown(words: str) -> str | None:
    """Return what in a command line ``dets`` does not know, None if it knows all of it."""
    command, options = COMMAND, []
    for word in shlex.split(words.replace("'s", "").replace("|", " ")):
        children = command.list_commands(None) if hasattr(command, "list_commands") else []
        if word.startswith("-") and word != "-":
            options.append(word.split("=")[0].rstrip(",."))
        elif children and not options:
            if word.isupper() or word == "...":
                break
            if word not in children:
                return word
            command = command.get_command(None, word)
    here = {name for one in [*command.params, *COMMAND.params] for name in (*one.opts, *one.secondary_opts)}
    return next((option for option in options if option not in {*here, "-h", "--help"}), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    text = re.sub(
        r"<!-- made by dets docs: \w+ -->.*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert [(words, unknown(words)) for words in commands(text) if unknown(words)] == []


def test_what_does_not_exist_is_found() -> None:
    assert unknown("frobnicate") == "frobnicate"
    assert unknown("limit set --vlan 10 --speed 3") == "--speed"
    assert unknown("limit set --vlan 10 --receive 3M --wait") is None
    assert commands("x `dets vn list` y\n    dets top   # z\n") == ["vn list", "top  "]


def yaml_blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_guides_files_are_read(tmp_path: Path) -> None:
    blocks = yaml_blocks("operator-guide.md")
    config = parse_config(blocks[0])
    assert len(list(config.vns())) == 3
    assert len(yaml.safe_load(blocks[1])) == 2
    rest, proxied, openflow, databases, limits = (
        next(one for one in blocks if words in one)
        for words in ("rest:\n  listen: 192", "trusted_proxies", "openflow:", "pssl:", "send: 10M")
    )
    assert parse_config(blocks[0] + rest.replace("/etc/dets", "/tmp")).rest.authentication == "token"
    assert parse_config(blocks[0] + proxied).rest.trusted_proxies == ("127.0.0.1/32",)
    assert parse_config(blocks[0] + openflow).openflow_tls is not None
    switch = yaml.safe_load(databases)["switches"]["s1"]
    assert parse_config(
        blocks[0].replace("unix:/run/openvswitch/db.sock", switch["ovsdb"]) + databases.partition("\n")[0]
    )
    (tmp_path / "limits.yaml").write_text(limits)
    assert [row["port"] for row in read_limits(tmp_path / "limits.yaml")] == ["s1:1", "s1:2"]


def test_the_example_of_gatekeeper_is_a_configuration() -> None:
    (block,) = yaml_blocks("policies/gatekeeper.md")
    config = parse_config(block)
    assert [vlan.algorithm for vlan in config.vlans.values()] == ["gatekeeper", "gatekeeper"]
    assert len(list(config.vns())) == 8


@pytest.mark.parametrize(
    "message",
    [
        "is below the sum of the port's",
        "cannot be listened on",
        "cannot be used",
        "was written by another version",
        "no controller answers at",
        "send a token",
        "may only read",
        "does not fit",
        "it was changed since",
        "is kept, but not in force after",
        "is not in the configuration; ignored",
        "refuses meters",
        "has not sent its counters for",
        "guarantee-violated",
        "skipped_rounds",
        "poll_timeouts",
        "dets_event_loop_lag_seconds",
    ],
)
def test_messages_in_troubleshooting_are_those_of_the_code(message: str) -> None:
    assert message in (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    sources = [*(ROOT / "apps").rglob("*.py"), *(ROOT / "controller").rglob("*.py")]
    assert any(message in source.read_text(encoding="utf-8") for source in sources)
