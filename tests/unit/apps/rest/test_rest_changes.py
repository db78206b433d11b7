"""REST: revisions, dry runs, many at once, what was set and by whom, pages, export and import, the page for people."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import pytest
from support.configs import star
from support.rest_in_process import Desk, problem_of

VN, VLAN = "/v1/vns/10/s1/1", "/v1/vlans/10"
LIMITS = [{"vlan_vid": 10, "switch": "s1", "port_no": 1, "weight": 0.25, "send_limit_bps": 1_000_000}]
CHANGES = [
    ("PATCH", VN, {"send_limit_bps": 300_000_000}),
    ("PATCH", VLAN, {"weight": 2}),
    (
        "POST",
        "/v1/limits",
        {"limits": LIMITS},
    ),
    ("DELETE", f"{VN}/overrides", None),
    ("DELETE", f"{VLAN}/overrides", None),
    ("DELETE", "/v1/overrides", None),
    ("POST", "/v1/import", {"format": "dets-overrides-1", "vlans": [], "vns": []}),
]
ALWAYS = {"/v1/import", "/v1/overrides"}


@pytest.fixture
def rest() -> Desk:
    """A controller of 5 ports of 1 Gb/s with VLAN 10 (400 Mb/s) and 20 (500 Mb/s)."""
    return Desk(star())


def state(rest: Desk) -> Any:
    """All that a change could change."""
    return [rest.get(f"/v1/{path}") for path in ("vns", "vlans", "overrides", "history")]


# -- revisions


def test_an_etag_is_the_revision_and_guards_against_lost_updates(rest: Desk) -> None:
    assert rest.client.get(VN).headers["ETag"] == '"1"'
    first = rest.change("PATCH", VN, {"send_limit_bps": 300_000_000}, '"1"')
    assert (first.status_code, first.headers["ETag"], first.get_json()["revision"]) == (200, '"2"', 2)
    late = rest.change("PATCH", VN, {"send_limit_bps": 200_000_000}, '"1"')
    assert late.status_code == 412
    assert '"2"' in late.get_json()["detail"]
    assert rest.get(VN)["send_limit_bps"] == 300_000_000
    assert rest.client.get("/v1/vns/10/s1/2").headers["ETag"] == '"1"'  # another VN is as it was
    for tag, status in (('"7", "1"', 200), ("*", 200), ('"3"', 412)):  # the second has made it revision 4
        assert rest.change("PATCH", "/v1/vns/10/s1/2", {"send_limit_bps": 1_000_000}, tag).status_code == status


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
@pytest.mark.parametrize("tag", ['"99"', 'W/"1"', "1x", ""])
def test_a_change_for_another_revision_is_refused_and_changes_nothing(
    rest: Desk, method: str, path: str, body: object, tag: str
) -> None:
    before = state(rest)
    answer = rest.change(method, path, body, tag)
    problem_of(answer, 412)
    assert state(rest) == before
    assert rest.changes == 0


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_where_a_revision_is_needed(method: str, path: str, body: object, required: bool) -> None:
    rest = Desk(star(), needs_if_match=required)
    answer = rest.change(method, path, body)
    assert answer.status_code == (428 if required or path in ALWAYS else 200)
    assert rest.change(method, path, body, "*").status_code == 200


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_a_dry_run_answers_as_the_change_and_changes_nothing(rest: Desk, method: str, path: str, body: object) -> None:
    rest.change("PATCH", VN, {"send_limit_bps": 250_000_000})
    rest.change("PATCH", VLAN, {"weight": 3})
    before, changes = state(rest), rest.changes
    dry = rest.change(method, f"{path}?dry_run=true", body, "*")
    assert (dry.status_code, dry.headers["Dry-Run"]) == (200, "true")
    assert state(rest) == before
    assert rest.changes == changes
    real = rest.change(method, path, body, "*")
    assert (real.status_code, "Dry-Run" in real.headers) == (200, False)
    same = [{key: value for key, value in one.get_json().items() if key != "revision"} for one in (dry, real)]
    assert same[0] == same[1]
    assert rest.changes == changes + 1


def test_a_dry_run_refuses_what_the_change_would(rest: Desk) -> None:
    for path, body in ((VN, {"send_limit_bps": 500_001_000}), (VLAN, {"algorithm": "xx"})):
        answers = [rest.change("PATCH", f"{path}{query}", body) for query in ("?dry_run=true", "")]
        assert [answer.status_code for answer in answers] == [422, 422]
        assert answers[0].get_json() == answers[1].get_json()


# -- many at once


def item(port_no: int, vlan_vid: int = 10, **values: object) -> dict[str, object]:
    return {"vlan_vid": vlan_vid, "switch": "s1", "port_no": port_no, **values}


@pytest.mark.parametrize(
    ("limits", "field", "reason"),
    [
        ([item(1, send_limit_bps=600_000_000), item(2, send_limit_bps=1)], "limits.1.send_limit_bps", "outside"),
        (
            [item(2, send_limit_bps=1_000_000), item(1, send_limit_bps=500_001_000)],
            "limits.1.send_limit_bps",
            "500000000",
        ),
        ([item(1, send_limit_bps=1e6 + 0.5)], "limits.0.send_limit_bps", "whole number"),
        ([item(1, send_limit_bps="1M")], "limits.0.send_limit_bps", "whole number"),
        ([item(1, send_limit_bps=True)], "limits.0.send_limit_bps", "whole number"),
        ([item(1, send_limit_bps=None)], "limits.0.send_limit_bps", "whole number"),
        ([item(1, send_ceiling_bps=399_999_999)], "limits.0.send_ceiling_bps", "only max-min"),
        ([item(1)], "limits.0", "changes nothing"),
        ([{"vlan_vid": 10, "switch": "s1", "send_limit_bps": 1_000_000}], "limits.0", "lacks port_no"),
        ([item(1, speed=5)], "limits.0.speed", "not known"),
        ([item(9, send_limit_bps=1_000_000)], "limits.0", "not a VN"),
        ([item(1, send_limit_bps=1_000_000), item(1, receive_limit_bps=1_000_000)], "limits.1", "twice"),
        (["x"], "limits.0", "object"),
        ([], "limits", "at least one"),
        ({}, "limits", "list"),
        ([item(1, send_limit_bps=1_000_000)] * 20_001, "limits", "longer than 20000"),
    ],
)
def test_many_limits_are_set_together_or_not_at_all(rest: Desk, limits: object, field: str, reason: str) -> None:
    before = state(rest)
    error = problem_of(rest.change("POST", "/v1/limits", {"limits": limits}), 422)["errors"][0]
    assert error["field"] == field
    assert reason in error["reason"]
    assert state(rest) == before


def test_many_limits_are_one_change(rest: Desk) -> None:
    limits = [item(port, send_limit_bps=100_000_000 + port, send_ceiling_bps=None) for port in range(1, 6)]
    answer = rest.change("POST", "/v1/limits", {"limits": limits})
    assert answer.get_json() == {"revision": 2, "changed": 5}
    assert [vn["send_limit_bps"] for vn in rest.get("/v1/vns?vlan=10")["vns"]] == [100_000_000 + n for n in range(1, 6)]
    change = rest.get("/v1/history/2")
    assert (change["action"], change["changed"], change["who"]) == ("limits", 5, "anonymous")
    assert change["items"][0] == {
        "vlan_vid": 10,
        "switch": "s1",
        "port_no": 1,
        "port": "1",
        "field": "send_limit_bps",
        "before": 400_000_000,
        "after": 100_000_001,
    }


# -- what was set


def test_overrides_say_what_the_file_says(rest: Desk) -> None:
    rest.change("PATCH", VN, {"send_limit_bps": 300_000_000})
    rest.change("PATCH", VLAN, {"algorithm": "sp", "name": "new"})
    vlan, vn = rest.get("/v1/overrides")["overrides"]
    assert vlan["values"] == {"algorithm": "sp", "parameters": {}, "name": "new"}
    assert vlan["file"] == {"algorithm": "fs", "parameters": {}, "name": "vlan10"}
    assert (vn["values"], vn["file"]) == ({"send_limit_bps": 300_000_000}, {"send_limit_bps": 400_000_000})
    assert (vn["active"], vn["reason"], vn["revision"]) == (True, None, 2)
    assert rest.change("DELETE", f"{VN}/overrides").get_json() == {"revision": 4, "changed": 1}
    assert [one["switch"] for one in rest.get("/v1/overrides")["overrides"]] == [None]
    assert rest.get(VN)["overridden"] == []
    assert rest.change("DELETE", f"{VLAN}/overrides").status_code == 200
    assert (rest.get(VLAN)["algorithm"], rest.get(VLAN)["name"]) == ("fs", "vlan10")
    assert rest.get("/v1/overrides")["overrides"] == []


def test_what_was_exported_can_be_imported_elsewhere(rest: Desk) -> None:
    rest.change("PATCH", VN, {"send_limit_bps": 300_000_000, "send_ceiling_bps": 900_000_000, "weight": 0.25})
    rest.change("PATCH", VN, {"send_ceiling_bps": None})
    rest.change("PATCH", VLAN, {"weight": 2, "receive_limit_bps": 350_000_000})
    document = rest.get("/v1/export")
    other = Desk(star())
    other.change("PATCH", "/v1/vns/20/s1/3", {"send_limit_bps": 1_000_000})
    document["vns"].append(item(77, send_limit_bps=5_000_000))
    answer = other.change("POST", "/v1/import", document, "*").get_json()
    assert [(one["port_no"], one["active"], one["file"]) for one in answer["inactive"]] == [(77, False, {})]
    assert other.get("/v1/export") == document
    places = [(one["switch"], one["port_no"]) for one in other.get("/v1/overrides?active=true")["overrides"]]
    assert places == [(None, None), ("s1", 1)]
    assert [one["port_no"] for one in other.get("/v1/overrides?active=false")["overrides"]] == [77]
    unlike = {"revision", "hosts"}
    views = [
        [{key: value for key, value in vn.items() if key not in unlike} for vn in one.get("/v1/vns")["vns"]]
        for one in (rest, other)
    ]
    assert views[0] == views[1]
    # What names nothing (any more) can be removed as well.
    assert other.change("DELETE", "/v1/vns/10/s1/77/overrides").status_code == 200
    assert other.change("DELETE", "/v1/vns/10/s1/77/overrides").status_code == 404


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        ({"format": "other", "vlans": [], "vns": []}, "format", '"other" is not acceptable'),
        ({"vlans": []}, "vns", "null is missing"),
        ({"vlans": [{"vlan_vid": 10}], "vns": []}, "vlans.0", '"{'),
        ({"vlans": [{"vlan_vid": 10, "values": {"x": 1}}], "vns": []}, "x", "1 is not known here; there are: name, "),
        ({"vlans": [], "vns": [item(1, send_limit_bps=5)]}, "vns.0.send_limit_bps", "5 is outside 1k to"),
    ],
)
def test_a_bad_import_is_named_and_changes_nothing(rest: Desk, document: dict[str, Any], field: str, said: str) -> None:
    before = state(rest)
    problem = problem_of(rest.change("POST", "/v1/import", {"format": "dets-overrides-1", **document}, "*"), 422)
    assert [error["field"] for error in problem["errors"]] == [field]
    assert problem["detail"].startswith(f"{field}: {said}")
    assert state(rest) == before


# -- pages


@pytest.mark.parametrize(
    ("path", "name", "count"), [("/v1/vns", "vns", 10), ("/v1/vlans", "vlans", 2), ("/v1/ports", "ports", 5)]
)
@pytest.mark.parametrize("limit", [1, 3, 5, 10])
def test_pages_put_together_are_the_list(rest: Desk, path: str, name: str, count: int, limit: int) -> None:
    whole, pages = rest.get(path)[name], [page[name] for page in rest.pages(path, limit)]
    assert len(whole) == count
    assert all(0 < len(page) <= limit for page in pages)
    assert [*chain(*pages)] == whole


def test_history_and_overrides_have_pages_too(rest: Desk) -> None:
    for port_no in range(1, 6):
        rest.change("PATCH", f"/v1/vns/10/s1/{port_no}", {"send_limit_bps": 1_000_000})
    for path, name, wanted in (
        ("/v1/history", "changes", [6, 5, 4, 3, 2, 1]),
        ("/v1/overrides", "overrides", [2, 3, 4, 5, 6]),
    ):
        assert [one["revision"] for page in rest.pages(path, 2) for one in page[name]] == wanted


@pytest.mark.parametrize("cursor", ["x", "WzFd", "bnVsbA==", "%FF", "W1tdXQ==", "Wzk5LCAiczkiLCA5XQ=="])
@pytest.mark.parametrize("path", ["/v1/vns", "/v1/vlans", "/v1/ports", "/v1/pairs", "/v1/history", "/v1/overrides"])
def test_a_cursor_from_elsewhere_is_refused_or_harmless(rest: Desk, path: str, cursor: str) -> None:
    answer = rest.client.get(f"{path}?cursor={cursor}")
    if answer.status_code != 200:
        assert "list again without it" in problem_of(answer, 422)["detail"]


@pytest.mark.parametrize("limit", ["0", "251", "1.0", "-1", "x", ""])
def test_a_page_has_bounds(rest: Desk, limit: str) -> None:
    assert "1 to 250" in problem_of(rest.client.get(f"/v1/vns?limit={limit}"), 422)["detail"]


# -- for people


def test_the_page_shows_everything_and_needs_nothing_from_elsewhere(rest: Desk) -> None:
    answer = rest.client.get("/docs")
    assert answer.mimetype == "text/html"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert re.findall(r"<(?:script|img|link|iframe)|(?:src|href)=['\"]?(?:https?:)?//", answer.text) == []
    document = rest.get("/v1/openapi.json")
    for path, operations in document["paths"].items():
        assert path in answer.text
        assert len(operations) <= answer.text.count(f"<code>{path}</code>")
    links = set(re.findall(r'href="#(\w+)"', answer.text))
    assert links <= set(re.findall(r'id="(\w+)"', answer.text))
    assert "VnPatch" in links


def test_revision_says_what_is_in_force(rest: Desk) -> None:
    rest.change("PATCH", VN, {"send_limit_bps": 300_000_000})
    assert rest.get("/v1/revision") == {
        "revision": 2,
        "installed_revision": 2,
        "unconfirmed_switches": [],
        "disconnected_switches": [],
    }
    problem_of(rest.client.get("/v1/history/9"), 404)
