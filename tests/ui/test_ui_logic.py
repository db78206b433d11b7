"""The page's own logic, called in the page: rates, frames of the stream, sorting, the map."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect
from support.ovs import wait_until
from support.paths import ROOT
from support.rest_server import CONFIG, RestProcess

from controller.units import exact_rate, format_rate, parse_rate

AXE = Path(__file__).parent / "vendor" / "axe-core-4.14.1" / "axe.min.js"
UI = ROOT / "apps" / "ui"
VIEWS = ("#/", "#/vlan/10", "#/vn/10/s2/1", "#/guarantees", "#/changes", "#/events")


@pytest.fixture(scope="module")
def server():
    with RestProcess(CONFIG) as server:
        yield server


@pytest.fixture
def page(open_page, server):
    return open_page(f"http://127.0.0.1:{server.port}")


@pytest.fixture
def call(page):
    """Call a function of one of the page's modules, in the page."""
    script = "([module, name, given]) => import(`/ui/${module}.js`).then((one) => one[name](...given))"
    return lambda module, name, *given: page.evaluate(script, [module, name, list(given)])


def test_rates_are_those_of_the_command_line(call):
    rates = [0, 999, 1000, 64_500, 37_500_000, 123_456_789, 999_999_999, 1_000_000_000, 4_294_967_295_000]
    for rate_bps in rates:
        assert call("format", "rate", rate_bps) == format_rate(rate_bps)
        assert call("format", "exactRate", rate_bps) == exact_rate(rate_bps)
    for text in ("25M", "1.5G", "64k", "64000", "400Mbit", "400 Mb/s", "0.1M", "4.294967295T"):
        assert call("format", "parseRate", text) == parse_rate(text)
    assert call("format", "rate", None) == "–"


def test_frames_come_in_any_pieces(call):
    text = 'event: keys\ndata: {"a":1}\n\n: nothing\n\nid: 7\nevent: event\ndata: x\ndata: y\n\nevent: st'
    taken = call("stream", "takeFrames", text)
    assert [(one["event"], one["data"], one["id"]) for one in taken["events"]] == [
        ("keys", '{"a":1}', None),
        ("event", "x\ny", "7"),
    ]
    assert taken["rest"] == "event: st"
    rest, found = "", []
    for character in text:
        taken = call("stream", "takeFrames", rest + character)
        rest, found = taken["rest"], found + taken["events"]
    assert len(found) == 2


def test_loads_have_four_steps_and_links_of_a_vlan_are_on_its_paths(call, page):
    assert [call("map", "step", load, 100) for load in (0, 24, 25, 74, 75, 100, 130)] == [0, 0, 1, 2, 3, 3, 3]
    assert call("map", "step", None, 100) is None
    links = [
        {"a": {"switch": a}, "b": {"switch": b}, "up": True} for a, b in (("s1", "c1"), ("s2", "c1"), ("s3", "c1"))
    ]
    script = "([names, links]) => import('/ui/map.js').then((one) => [...one.linksBetween(names, links)].sort())"
    assert page.evaluate(script, [["s1", "s2"], links]) == [0, 1]


FABRICS = {
    "one switch": ([48], 0),
    "one edge and a core": ([24], 1),
    "two edges": ([3, 4], 0),
    "two edges and a core": ([2, 2], 1),
    "a star of 11": ([1] * 11, 1),
    "leaves and spines": ([12] * 8, 4),
    "fifty switches": ([4] * 46, 4),
    "a ring without core": ([24] * 8, 0),
}


@pytest.mark.parametrize("name", FABRICS)
def test_no_port_of_the_map_lies_on_a_link(call, page, name):
    """Every switch is linked with every other one; no square of a port lies on such a link, and all are in the map."""
    port_counts, core = FABRICS[name]
    edges = [f"s{number}" for number in range(len(port_counts))]
    names = edges + [f"c{number}" for number in range(core)]
    switches = [{"switch": one, "role": "edge" if one in edges else "core"} for one in names]
    links = [{"a": {"switch": a}, "b": {"switch": b}, "up": True} for a in names for b in names if a < b]
    script = """([switches, links, counts]) => import("/ui/map.js").then(({ layout }) => {
      const { places, blocks, box } = layout(switches, links, counts);
      return { places: Object.fromEntries(places), blocks: Object.fromEntries(blocks), box };
    })"""
    found = page.evaluate(script, [switches, links, dict(zip(edges, port_counts, strict=True))])
    places, (left, top, width, height) = found["places"], found["box"]
    assert set(places) == set(names)
    assert set(found["blocks"]) == set(edges)
    for block in found["blocks"].values():
        x, y, right, bottom = block["x"], block["y"], block["x"] + block["w"], block["y"] + block["h"]
        assert left <= x < right <= left + width
        assert top <= y < bottom <= top + height
        corners = [(x, y), (right, y), (x, bottom), (right, bottom)]
        for link in links:
            a, b = (places[link[end]["switch"]] for end in "ab")
            # All corners on one side of the line, or the line ends before the block: they do not meet.
            sides = [(b["x"] - a["x"]) * (cy - a["y"]) - (b["y"] - a["y"]) * (cx - a["x"]) for cx, cy in corners]
            beside = min(sides) > 0 or max(sides) < 0
            beyond = max(a["x"], b["x"]) < x or min(a["x"], b["x"]) > right or max(a["y"], b["y"]) < y
            assert beside or beyond or min(a["y"], b["y"]) > bottom, link
    boxes = [{"x": at["x"] - 46, "y": at["y"] - 17, "w": 92, "h": 34} for at in places.values()]
    boxes += found["blocks"].values()
    for at, one in enumerate(boxes):
        for two in boxes[:at]:
            apart = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
            assert apart or one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"]


def test_a_state_is_shown_a_while_and_everywhere_the_same(open_page, server):
    """A violated guarantee that is restored stays for 5 s; missed intervals are bad from 5 % on, down to 2 %."""
    page = open_page(f"http://127.0.0.1:{server.port}", "/ui/api.js")
    script = """(states) => import("/ui/live_state.js").then(({ live, note, violatedCount }) => states.map(
      ([at, violated, rounds, skipped]) => {
        note({ violated, violated_vns: violated.length, rounds, skipped }, at);
        return [violatedCount(0), violatedCount(3), violatedCount(), live.isLate];
      }))"""
    states = [
        [1000, [3], 0, 0],
        [2000, [], 18, 0],
        [5999, [], 90, 0],
        [7001, [], 108, 0],
        [13000, [0], 200, 20],  # 9 % of the intervals since the first state
        [14000, [], 600, 20],  # 3 %
        [15000, [], 2000, 20],  # 1 %
        [16000, [], 5, 1],  # another process: nothing is known of its last minute
    ]
    shown = page.evaluate(script, states)
    assert [one[:3] for one in shown[:4]] == [[0, 1, 1], [0, 1, 1], [0, 1, 1], [0, 0, 0]]
    assert [one[3] for one in shown] == [False] * 4 + [True, True, False, False]
    assert shown[4][:3] == [1, 0, 1]


def test_times_are_iso_8601(call):
    assert re.fullmatch(r"2024-02-29 [012]\d:[0-5]\d:07", call("format", "localTime", "2024-02-29T12:00:07Z"))
    assert re.fullmatch(r"[012]\d:[0-5]\d:[0-5]\d", call("format", "localTime", 1000 * time.time()))
    assert call("format", "localTime", None) == "–"


def test_twenty_thousand_rows_are_few_elements_and_sorted(page):
    found = page.evaluate("""() => import("/ui/table.js").then(({ Table }) => {
      const values = Float64Array.from({ length: 20000 }, (_, i) => (i * 7919) % 20011);
      const text = (i) => String(values[i]);
      const table = new Table("Many", [{ key: "v", title: "V", num: true, value: (i) => values[i], text }],
        { sort: "v", matches: (i, words) => String(values[i]).includes(words) });
      document.getElementById("main").replaceChildren(table.element);
      table.setCount(20000, true);
      const began = performance.now();
      table.sort(true);
      const sortMs = performance.now() - began;
      const first = table.order.slice(0, 3).map((i) => values[i]);
      const rows = table.body.querySelectorAll("tr").length;
      table.scroller.scrollTop = 30 * 10000;
      table.paint();
      return { first: [...first], rows, sortMs, count: table.table.getAttribute("aria-rowcount"),
        sorted: table.order.every((row, at, all) => at === 0 || values[all[at - 1]] >= values[row]) };
    })""")
    assert found["sorted"]
    assert found["first"] == [20010, 20009, 20008]
    assert found["rows"] <= 82
    assert found["count"] == "20001"


def open_view(lab, open_page, view, **options):
    page = open_page(lab.url, f"/ui{view}", **options)
    expect(page.locator("main td, main li, main dd").first).to_be_attached()
    return page


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_light_or_dark(lab, open_page, view):
    page = open_view(lab, open_page, view, bypass_csp=True)  # axe compiles its rules
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for stale in ("remove", "add"):  # until the page says again what it is
            found = page.evaluate(f"document.body.classList.{stale}('stale'), axe.run({{resultTypes: ['violations']}})")
            shown = [(one["id"], [node["html"][:160] for node in one["nodes"]][:3]) for one in found["violations"]]
            assert shown == [], (scheme, stale)


@pytest.mark.parametrize("view", VIEWS)
def test_no_screen_scrolls_sideways(lab, open_page, view):
    page = open_view(lab, open_page, view)

    def shown() -> int:
        return int(page.evaluate("document.documentElement.scrollWidth"))

    for width in (2560, 1280, 320):
        page.set_viewport_size({"width": width, "height": 800})
        # The chart follows the width a frame or two later.
        wait_until(lambda limit=width: shown() <= limit, f"within {width} pixels")


def test_what_is_vendored_is_what_was_released():
    for folder in (UI / "vendor" / "uPlot-1.6.32", AXE.parent):
        sums = dict(line.split()[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
        names = {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
        assert names == set(sums)
        assert "LICENSE" in names
        for name, digest in sums.items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_the_pages_own_scripts_are_small():
    scripts = [path for path in UI.rglob("*.js") if "vendor" not in path.parts]
    assert sum(path.stat().st_size for path in scripts) <= 85_000
    assert sum(len(path.read_text().splitlines()) for path in scripts) <= 2500
    served = {path for path in UI.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc", "")}
    from apps.ui import paths

    assert {UI / (path.removeprefix("/ui").strip("/") or "index.html") for path in paths()} == served
