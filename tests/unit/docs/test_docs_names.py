"""Identifiers, tests and metrics on pages exist in the sources; constants on pages have the values of the code."""

import re
from functools import cache
from pathlib import Path

import pytest
from support.paths import ROOT

from apps.rest.schema.request_bodies import MAX_LIMITS
from controller.agents.agent_port import DISTRUST_S, FLOOD_FRAMES
from controller.capability.meter_probe import BURST_KBITS, FRAMES, RATE_KBPS
from controller.forwarding.host_probing import MAX_SEARCHES_PER_VN
from controller.metering.backstop import BACKSTOP
from controller.metering.enforcement import DEADBAND_S, MAX_UNREAD_S, RESPONSIVE_BURST_S, UNRESPONSIVE_BURST_S
from controller.metering.mark_readings import PHANTOM_BURST_S, PHANTOM_PART
from controller.metering.receive_budgets import IDLE_RESERVE_S, PRESSED
from controller.seawall.policy import HOST_TARGET, ROOM_TARGET, TARGET
from controller.shards.peer_timeout import GRANT_HOLD_S

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/adr").glob("*.md")])
PAGES += sorted((ROOT / "docs/policies").glob("*.md"))
_FOLDERS = ("apps", "controller", "deploy", "experiments", "scripts", "tests", "topologies")
_IDENTIFIER = re.compile(r"(?<![\w./:-])@?_?[a-zA-Z]\w*_\w*\b(?!\.|/|-)")
_FOREIGN = {"is_connected", "limit_conn", "locking_mode", "simple_switch_13"}  # of other programs
_FOREIGN |= {"my_burst", "my_plugin", "v1_5"}  # of examples


@cache
def _words() -> frozenset[str]:
    """Return every word of the project's sources."""
    files = [one for top in _FOLDERS for one in (ROOT / top).rglob("*") if one.is_file() and one != Path(__file__)]
    files += [ROOT / name for name in ("Makefile", "setup.py", "pyproject.toml")]
    plain = (
        one
        for one in files
        if not {"vendor", "data", "__pycache__"}.intersection(one.parts) and one.suffix not in {".png", ".so"}
    )
    return frozenset(
        word for one in plain for word in re.findall(r"\w+", one.read_text(encoding="utf-8", errors="replace"))
    )


def unknown(text: str) -> set[str]:
    """Return the identifiers with an underscore in a page's inline code that no source has."""
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    found = {word for span in spans for word in _IDENTIFIER.findall(span)} - _FOREIGN
    return {word for word in found if not {word.lstrip("@"), _counter(word)} & _words()}


def _counter(metric: str) -> str:
    """Return a counter's name in the sources: ``_total`` and ``dets_vn_`` are added when it is exported."""
    return metric.removesuffix("_total").removeprefix("dets_vn_")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_identifier_of_a_page_is_in_the_sources(page: Path) -> None:
    assert unknown(page.read_text(encoding="utf-8")) - {"MALLOC_"} == set()


def spans() -> list[str]:
    """Return the inline code of all pages."""
    return [span for page in PAGES for span in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))]


def test_every_path_of_rest_that_a_page_names_is_in_the_reference() -> None:
    reference = (ROOT / "docs/rest-api.md").read_text(encoding="utf-8")
    paths = {*re.findall(r"^\| `[A-Z]+ (/\S+)` \|", reference, re.MULTILINE), "/v1"}
    known = [re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in paths]
    named = {path for span in spans() for path in re.findall(r"(?<![\w.:])/v1(?:/[\w.{}-]+)*", span)}
    assert {path for path in named if not any(one.fullmatch(path) for one in known)} == set()
    assert len(named) > 20


def test_every_configuration_key_that_a_page_names_is_in_the_reference() -> None:
    reference = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### `(\w+)`\n(.*?)(?=^### )", reference, re.DOTALL | re.MULTILINE)
    keys = {f"{name}.{key}" for name, text in sections for key in re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)}
    known = re.compile(rf"(?<![\w./-])(?:{'|'.join(name for name, _ in sections)})\.[a-z_]+\b(?!\.)")
    named = {key for span in spans() for key in known.findall(span) if not key.endswith(".py")}
    assert named - keys == set()
    assert len(named) > 20


def test_the_page_of_security_names_tests_that_exist() -> None:
    spans = " ".join(re.findall(r"`([^`\n]+)`", (ROOT / "docs/security.md").read_text(encoding="utf-8")))
    files = {one.name for one in (ROOT / "tests").rglob("test_*.py")}
    tests = [word for word in _words() if word.startswith("test_")]
    assert {one for one in re.findall(r"test_\w+\.py", spans) if one not in files} == set()
    assert {part for part in re.findall(r"\.\.(\w+)", spans) if not any(part in one for one in tests)} == set()


def test_what_does_not_exist_is_found() -> None:
    assert unknown("`a.no_such_name` and `@no_such_decorator x`, not `--no_such` or plain no_such_word") == {
        "@no_such_decorator"
    }
    assert unknown("`no_such_name(1)`, `dets_no_such_total`, `dets_cluster_takeovers_total`, `tests/no_such.py`") == {
        "no_such_name",
        "dets_no_such_total",
    }


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("adr/0112-seawall-by-link.md", f"`ROOM_TARGET` {ROOM_TARGET}"),
        ("adr/0112-seawall-by-link.md", f"`HOST_TARGET` {HOST_TARGET}"),
        ("policies/seawall.md", f"`TARGET` {TARGET}"),
        ("policies/seawall.md", f"`ROOM_TARGET` {ROOM_TARGET}"),
        ("policies/seawall.md", f"`HOST_TARGET` {HOST_TARGET}"),
        ("policies/hygenicc.md", f"{PHANTOM_PART} of its receive limit"),
        ("policies/hygenicc.md", f"{1e3 * PHANTOM_BURST_S:.0f} ms of burst"),
        ("enforcement.md", f"| {1e3 * RESPONSIVE_BURST_S:.0f} ms of the grant |"),
        ("enforcement.md", f"| {1e3 * UNRESPONSIVE_BURST_S:.0f} ms |"),
        ("enforcement.md", f"| {1e3 * DEADBAND_S:.0f} ms of the grant,"),
        ("enforcement.md", f"at most {1e3 * MAX_UNREAD_S:.0f} ms"),
        ("enforcement.md", f"{1e3 * IDLE_RESERVE_S:.0f} ms of the smallest receive limit"),
        ("enforcement.md", f"more than {PRESSED:.0%} of the limit".replace("%", " %")),
        ("switches.md", f"{FRAMES} frames of the controller's own"),
        ("switches.md", f"a meter of {RATE_KBPS} kb/s and {BURST_KBITS} kb of burst"),
        ("agents.md", f"a meter at {BACKSTOP} of the rate"),
        ("agents.md", f"drops them for {DISTRUST_S:.0f} s"),
        ("security.md", f"{FLOOD_FRAMES} frames"),
        ("security.md", f"{MAX_SEARCHES_PER_VN} host probes a VN"),
        ("cluster.md", f"held for {GRANT_HOLD_S:.0f} s"),
        ("rest-api.md", f"up to {MAX_LIMITS:,} VNs"),
    ],
)
def test_constants_on_pages_are_those_of_the_code(page: str, text: str) -> None:
    assert text in " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())
