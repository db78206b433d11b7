"""REST: bodies, paths, queries and methods that are refused, and failures that are not shown."""

from __future__ import annotations

import logging

import pytest
from support.rest_in_process import VLAN, VN, Desk, problem_of

from apps.rest.http.body import MAX_BODY_BYTES
from controller.errors import InvalidValueError


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{", "line 1 column 2"),
        (b"send_limit_bps=1000000", "line 1"),
        (b'{"send_limit_bps": 1000000} x', "Extra data"),
        (b'{"send_limit_bps": 01000000}', "line 1"),
        (b"{'send_limit_bps': 1000000}", "line 1"),
        (b'{"send_limit_bps": 1000000, "send_limit_bps": 2000000}', "'send_limit_bps' more than once"),
        (b'{"a": {"b": 1, "b": 2}}', "'b' more than once"),
        (b'\xef\xbb\xbf{"send_limit_bps": 1000000}', "BOM"),
        ('{"send_limit_bps": 1000000}'.encode("utf-16"), "utf-8"),
        (b'{"\xff": 1}', "utf-8"),
        (b'{"\\ud800": 1}', "surrogate"),
        (b"[" * 30_000, "nested too deeply"),
        (b'{"send_limit_bps": %s}' % (b"9" * 5000), "a number of more than 4300 digits"),
    ],
)
def test_broken_json_is_refused(desk: Desk, body: bytes, detail: str) -> None:
    before = desk.fingerprint()
    assert detail in problem_of(desk.send(VN, body), 400)["detail"]
    assert desk.fingerprint() == before


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/merge-patch+json"]
)
def test_another_content_type_is_refused(desk: Desk, content_type: str | None) -> None:
    before = desk.fingerprint()
    problem = problem_of(desk.send(VN, b'{"send_limit_bps": 1000000}', content_type), 415)
    assert "application/json" in problem["detail"]
    assert desk.fingerprint() == before


@pytest.mark.parametrize("coding", ["gzip", "br, identity", "x", "Deflate"])
def test_a_coded_body_is_refused(desk: Desk, coding: str) -> None:
    before = desk.fingerprint()
    headers = {"Content-Encoding": coding}
    answer = desk.client.patch(VN, json={"send_limit_bps": 1_000_000}, headers=headers)
    assert coding.lower() in problem_of(answer, 415)["detail"]
    assert answer.headers["Accept-Encoding"] == "identity"
    assert desk.fingerprint() == before
    headers["Content-Encoding"] = "Identity"
    assert desk.client.patch(VN, json={"send_limit_bps": 1_000_000}, headers=headers).status_code == 200


def test_a_path_with_an_empty_part_or_a_coded_slash_leads_nowhere(desk: Desk) -> None:
    for path in ("/v1/vns/10%2fs1/1", "/v1/vns%2F10/s1/1", "/v1//vns", "/v1/vns//"):
        assert path in problem_of(desk.client.get(path), 404)["detail"]
    assert desk.client.get("/v1/vns?switch=s1%2f").status_code == 404  # a query may hold one; no switch has that name
    assert desk.client.get("/v1/vns/10/%73%31/1").status_code == 200


def test_the_longest_body_and_one_byte_more(desk: Desk) -> None:
    body = b'{"send_limit_bps": 1000000}'
    before = desk.fingerprint()
    problem = problem_of(desk.send(VN, body.rjust(MAX_BODY_BYTES + 1)), 413)
    assert "64 KiB" in problem["detail"]
    assert problem_of(desk.send(VN, body.rjust(10 * MAX_BODY_BYTES)), 413)
    assert desk.fingerprint() == before
    assert desk.send(VN, body.rjust(MAX_BODY_BYTES), "application/json; charset=utf-8").status_code == 200


def test_more_keys_or_parameters_than_there_are_names_for_are_counted_and_not_looked_at_one_by_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    monkeypatch.setattr("apps.rest.http.problems.near_name", lambda name, known: compared.append(name) or "")
    names = [f"n{number}" for number in range(1000)]
    for answer, field, limit in (
        (desk.client.get("/v1/live?" + "&".join(names)), "query", "64"),
        (desk.client.get("/metrics?" + "&".join(names)), "query", "64"),
        (desk.patch(VN, dict.fromkeys(names, 1)), "body", "16"),
        (desk.client.post("/v1/limits", json=dict.fromkeys(names, 1)), "body", "16"),
    ):
        (error,) = problem_of(answer, 422)["errors"]
        assert error["field"] == field
        assert limit in error["reason"]
    assert not compared
    assert len(problem_of(desk.client.get("/v1/live?" + "&".join(names[:64])), 422)["errors"]) == 20
    assert len(problem_of(desk.patch(VN, dict.fromkeys(names[:16], 1)), 422)["errors"]) == 16


@pytest.mark.parametrize(
    ("path", "field", "exists"),
    [
        ("/v1/vlans/99", "vlan_vid", "10, 20"),
        ("/v1/vlans/abc", "vlan_vid", "10, 20"),
        ("/v1/vlans/010", "vlan_vid", "10, 20"),
        ("/v1/vlans/10.0", "vlan_vid", "10, 20"),
        ("/v1/vlans/-10", "vlan_vid", "10, 20"),
        ("/v1/vlans/" + "9" * 5000, "vlan_vid", "10, 20"),
        ("/v1/vlans/%D9%A1%D9%A0", "vlan_vid", "10, 20"),  # 10 in Arabic-Indic digits
        ("/v1/vns/99/s1/1", "vlan_vid", "10, 20"),
        ("/v1/vns/10/s9/1", "switch", "s1, s2"),
        ("/v1/vns/10/s1/9", "port_no", "1, 2, 3"),
        ("/v1/vns/10/s1/one", "port_no", "1, 2, 3"),
        ("/v1/vns/10/s1/s2-7", "port_no", "1, 2, 3"),  # of another switch
        ("/v1/vns/20/s1/3", "vlan_vid", "its VLANs are 10"),
    ],
)
def test_what_does_not_exist_is_told_what_does(desk: Desk, path: str, field: str, exists: str) -> None:
    before = desk.fingerprint()
    body = {"send_limit_bps": 1_000_000} if "vns" in path else {"algorithm": "fs"}
    for answer in (desk.client.get(path), desk.patch(path, body)):
        (error,) = problem_of(answer, 404)["errors"]
        assert error["field"] == field
        assert exists in error["reason"]
        assert len(answer.text) < 1000
    assert desk.fingerprint() == before


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("/v1/vns?vlan=99", 404, "vlan"),
        ("/v1/vns?vlan=", 404, "vlan"),
        ("/v1/vns?switch=", 404, "switch"),
        ("/v1/pairs?switch=s9", 404, "switch"),
        ("/v1/vns?vlan=10&vlan=20", 422, "vlan"),
        ("/v1/vns?vid=10", 422, "vid"),
        ("/v1/vlans?x=1", 422, "x"),
        ("/v1/health?verbose", 422, "verbose"),
        ("/v1/events?after=-1", 422, "after"),
        ("/v1/events?after=", 422, "after"),
        ("/v1/events?after=1.0", 422, "after"),
        ("/v1/events?after=last", 422, "after"),
        ("/v1/events?after=" + "1" * 5000, 422, "after"),
    ],
)
def test_a_bad_query_is_refused(desk: Desk, path: str, status: int, field: str) -> None:
    assert [error["field"] for error in problem_of(desk.client.get(path), status)["errors"]] == [field]


@pytest.mark.parametrize(
    "path", ["/", "/v2/vns", "/v1/", "/v1/vns/", "/v1//vns", "/v1/vns/10/s1", "/openapi", "/static/x"]
)
def test_other_paths_are_problems_too_and_no_redirects(desk: Desk, path: str) -> None:
    detail = problem_of(desk.client.get(path), 404)["detail"]
    assert "/v1/openapi.json" in detail
    assert ("web UI is at /ui" in detail) == (path == "/")


@pytest.mark.parametrize(
    ("path", "alike"),
    [
        ("/v1/vns/10/s1:1", "/v1/vns, /v1/vns/{vlan_vid}/{switch}/{port_no}, "),
        ("/v1/vlan/10", "/v1/vlans, /v1/vlans/{vlan_vid}, "),
        ("/v1/nothing-alike", ""),
    ],
)
def test_an_unknown_path_is_told_the_paths_that_begin_alike(desk: Desk, path: str, alike: str) -> None:
    detail = problem_of(desk.client.get(path), 404)["detail"]
    assert detail.partition("lists what there is")[2].startswith(f", such as {alike}" if alike else "")
    assert (", such as " in detail) == bool(alike)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/vns", {"GET", "HEAD", "OPTIONS"}),
        ("PUT", VN, {"GET", "HEAD", "OPTIONS", "PATCH"}),
        ("DELETE", VLAN, {"GET", "HEAD", "OPTIONS", "PATCH"}),
        ("PATCH", "/v1/health", {"GET", "HEAD", "OPTIONS"}),
    ],
)
def test_another_method_is_told_the_allowed_ones(desk: Desk, method: str, path: str, allowed: set[str]) -> None:
    answer = desk.client.open(path, method=method, json={"send_limit_bps": 1_000_000})
    assert problem_of(answer, 405)["detail"].endswith(f"possible are {', '.join(sorted(allowed))}")
    assert set(answer.headers["Allow"].split(", ")) == allowed


def test_what_requests_may_hold_is_described_once_and_not_with_every_request(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/v1/vns?vlan=10&limit=1"
    first = desk.get(path)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it is described again")

    monkeypatch.setattr("pydantic.json_schema.GenerateJsonSchema.generate", never)
    assert desk.get(path) == first


def test_answers_are_not_kept_by_anyone(desk: Desk) -> None:
    for path in ("/v1/vns", "/v1/vlans/99"):
        assert desk.client.get(path).headers["Cache-Control"] == "no-store"


# -- what nobody expected


@pytest.mark.parametrize("error", [RuntimeError("a secret"), InvalidValueError("a", "secret", "inside")])
def test_a_failure_is_logged_and_not_shown(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(desk.service, "health", fail)
    monkeypatch.setattr(desk.service, "on_change", fail)
    client = desk.client
    for answer in (client.get("/v1/health"), client.patch(VN, json={"send_limit_bps": 1_000_000})):
        with caplog.at_level(logging.ERROR):
            problem = problem_of(answer, 500)
        assert "secret" not in answer.text
        assert "log" in problem["detail"]
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert logged == [error, error]
