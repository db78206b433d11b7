"""REST: limits, ceilings and policies are changed, and what is refused changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.rest_in_process import DPID, VLAN, VN, Desk, problem_of

from controller.policy.registry import policies_with_ceilings


def test_a_limit_is_changed_and_the_rest_stays(desk: Desk) -> None:
    before = desk.get("/v1/vns")["vns"]
    desk.now_s = 123.0
    answer = desk.patch(VN, {"receive_limit_bps": 35_000_000})
    assert answer.status_code == 200
    told = {"receive_limit_bps": 35_000_000, "overridden": ["receive_limit_bps"], "revision": 2}
    floods = {"flood_limit_bps": 35_000_000 // 10 // 3 // 1000 * 1000}  # of all VNs of that VLAN
    assert answer.get_json() == {**before[0], **told, **floods}
    others = [{**vn, **(floods if vn["vlan_vid"] == 10 else {})} for vn in before[1:]]
    assert desk.get("/v1/vns")["vns"] == [answer.get_json(), *others]
    assert desk.changes == 1
    (event,) = desk.get("/v1/events")["events"]
    assert (event["kind"], event["at_s"]) == ("limit-changed", 123.0)


def test_a_send_limit_reaches_the_switch_by_a_meter(desk: Desk) -> None:
    desk.connect()
    desk.central.drain_updates()
    assert desk.patch(VN, {"send_limit_bps": 12_345_000, "receive_limit_bps": 20_000_000}).status_code == 200
    update = desk.central.drain_updates()[DPID]
    row = desk.central.vns.row_of(10, DPID, 1)
    assert row is not None
    meter_id = desk.central.switches[DPID].vn_meters[row].send
    rates = dict(zip(*update.meter_mods()[1:3].tolist(), strict=True))
    assert rates.pop(meter_id) == 12_345
    assert set(rates.values()) == {333, 4_444}  # what the VLAN's VNs may flood, and ask for neighbours; and begin with
    assert update.flow_adds == []


def test_a_lower_receive_limit_is_kept_from_the_next_interval_on(desk: Desk) -> None:
    desk.connect()
    desk.talk(1, 2)
    desk.run([30e6], [0.0], 2)
    assert not desk.get("/v1/vns/10/s1/2")["congested"]
    assert desk.patch("/v1/vns/10/s1/2", {"receive_limit_bps": 20_000_000}).status_code == 200
    desk.run([30e6], [0.0], 1)
    assert desk.get("/v1/vns/10/s1/2")["congested"]
    assert desk.get("/v1/pairs")["pairs"][0]["limit_bps"] <= 20_000_000


@pytest.mark.parametrize("way", ["send", "receive"])
def test_a_limit_may_fill_the_port_and_no_more(desk: Desk, way: str) -> None:
    free_bps = 50_000_000  # of 100 Mb/s, next to the 50 Mb/s of VLAN 20
    key = f"{way}_limit_bps"
    problem = problem_of(desk.patch(VN, {key: free_bps + 1}), 422)
    assert [(e["field"], e["value"]) for e in problem["errors"]] == [(key, free_bps + 1)]
    assert "50000000 (50M)" in problem["errors"][0]["reason"]
    assert "100M" in problem["detail"]
    assert desk.patch(VN, {key: free_bps}).get_json()[key] == free_bps


@pytest.fixture
def lending(desk: Desk) -> Desk:
    assert desk.patch(VLAN, {"shadow": "max-min"}).status_code == 200
    return desk


def test_ceilings_are_set_and_taken_away(lending: Desk) -> None:
    desk, before = lending, lending.get(VN)
    both = {"send_ceiling_bps": 90_000_000, "receive_ceiling_bps": 50_000_000}
    told = {"overridden": list(both), "revision": 3}
    assert desk.patch(VN, both).get_json() == {**before, **both, **told}
    both["send_ceiling_bps"] = None
    assert desk.patch(VN, {"send_ceiling_bps": None}).get_json() == {**before, **both, **told, "revision": 4}


def test_a_ceiling_that_nothing_uses_is_refused(desk: Desk) -> None:
    """Neither the VLAN's algorithm, fp, nor a shadow borrows; one ceiling of many refuses all."""
    before = desk.fingerprint()
    problem = problem_of(desk.patch(VN, {"send_ceiling_bps": 90_000_000}), 422)
    assert [(e["field"], e["value"]) for e in problem["errors"]] == [("send_ceiling_bps", 90_000_000)]
    assert "the VLAN's algorithm is fp, and only max-min" in problem["errors"][0]["reason"]
    place = {"vlan_vid": 10, "switch": "s1", "port_no": 2}
    many = {"limits": [{**place, "receive_limit_bps": 1_000_000, "receive_ceiling_bps": 90_000_000}]}
    problem = problem_of(desk.client.post("/v1/limits", json=many), 422)
    assert [e["field"] for e in problem["errors"]] == ["limits.0.receive_ceiling_bps"]
    assert desk.fingerprint() == before


def test_a_ceiling_is_listed_as_not_in_force_while_nothing_uses_it(lending: Desk) -> None:
    """It is kept for an algorithm that does; a limit next to it holds meanwhile."""
    desk, other = lending, VN.replace("/s1/1", "/s1/2")
    desk.patch(VN, {"send_ceiling_bps": 90_000_000})
    desk.patch(other, {"send_ceiling_bps": 90_000_000, "send_limit_bps": 35_000_000})
    standing = [(one["active"], one["reason"]) for one in desk.get("/v1/overrides")["overrides"]]
    assert standing == [(True, None)] * 3
    assert desk.patch(VLAN, {"shadow": None}).status_code == 200
    reason = (
        f"its ceilings have no effect: the VLAN's algorithm is fp, and only {policies_with_ceilings()} use ceilings"
    )
    found = {one["port_no"]: (one["active"], one["reason"]) for one in desk.get("/v1/overrides")["overrides"]}
    assert (found[1], found[2]) == ((False, reason), (True, reason))
    assert [one["port_no"] for one in desk.get("/v1/overrides?active=false")["overrides"]] == [1]
    assert desk.get(other)["send_limit_bps"] == 35_000_000
    assert desk.patch(VLAN, {"algorithm": "max-min"}).status_code == 200
    assert {one["active"] for one in desk.get("/v1/overrides")["overrides"]} == {True}
    assert desk.get(VN)["send_ceiling_bps"] == 90_000_000


@pytest.mark.parametrize(
    "body",
    [
        {"send_ceiling_bps": 39_999_999},
        {"receive_ceiling_bps": 100_000_001},
        {"receive_ceiling_bps": 0},
        {"receive_ceiling_bps": 1.5},
        {"receive_limit_bps": 45_000_000, "receive_ceiling_bps": 44_000_000},
        {"send_ceiling_bps": None, "receive_ceiling_bps": "50M"},
    ],
)
def test_a_ceiling_that_is_not_between_limit_and_capacity_changes_nothing(lending: Desk, body: dict[str, Any]) -> None:
    desk, before = lending, lending.get(VN)
    answer = desk.patch(VN, body)
    assert answer.status_code == 422
    assert "_ceiling_bps" in answer.text
    assert desk.get(VN) == before


def test_an_algorithm_is_changed(desk: Desk) -> None:
    answer = desk.patch(VLAN, {"algorithm": "fe"})
    assert answer.status_code == 200
    assert answer.get_json()["algorithm"] == "fe"
    assert "d" not in answer.get_json()["parameters"]
    assert desk.get(VLAN) == answer.get_json()
    assert desk.get("/v1/vlans/20")["algorithm"] == "fs"
    assert desk.changes == 1
    desk.patch(VLAN, {"algorithm": "fp", "parameters": {"d": 4.0}, "shadow": "fs"})
    assert [(event["kind"], event["text"]) for event in desk.get("/v1/events")["events"]] == [
        ("algorithm-changed", "VLAN 10: fe; the weights of 4 VNs are stored and not used"),
        ("algorithm-changed", "VLAN 10: fp d=4, shadow fs"),
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"algorithm": "fp"},
            {"d": 3.0, "inflation": 0.1, "floor": 0.01, "headroom": 0.0},
        ),  # as it was: what is not given stays
        (
            {"parameters": {"inflation": 0.2}},
            {"d": 2.0, "inflation": 0.2, "floor": 0.01, "headroom": 0.0},
        ),  # all are replaced
        ({"parameters": {}}, {"d": 2.0, "inflation": 0.1, "floor": 0.01, "headroom": 0.0}),
        ({"algorithm": "fp", "parameters": {"d": 4}}, {"d": 4.0, "inflation": 0.1, "floor": 0.01, "headroom": 0.0}),
        ({"algorithm": "fs"}, {}),
    ],
)
def test_parameters_after_a_change(desk: Desk, body: object, expected: dict[str, float]) -> None:
    assert desk.patch(VLAN, body).get_json()["parameters"] == expected


# -- what is refused


BAD_LIMITS = [
    ("999", 999, "outside 1k to 4.295T"),
    ("4294967296000", 4_294_967_296_000, "outside 1k to 4.295T"),
    ("1" + "0" * 30, "1" + "0" * 30, "outside 1k to 4.295T"),
    ("1.5", 1.5, "whole number"),
    ("4e-7", 4e-7, "whole number"),
    ('"40M"', "40M", "whole number"),
    ("true", True, "whole number"),
    ("null", None, "whole number"),
    ("NaN", "NaN", "whole number"),
    ("-Infinity", "-Infinity", "whole number"),
    ("1e999", "Infinity", "whole number"),
    ("{}", "{}", "whole number"),
]


@pytest.mark.parametrize("key", ["send_limit_bps", "receive_limit_bps"])
@pytest.mark.parametrize(("text", "value", "reason"), BAD_LIMITS)
def test_a_bad_rate_is_named_and_changes_nothing(desk: Desk, key: str, text: str, value: object, reason: str) -> None:
    before = desk.fingerprint()
    problem = problem_of(desk.send(VN, b'{"%s": %s}' % (key.encode(), text.encode())), 422)
    (error,) = problem["errors"]
    assert (error["field"], error["value"]) == (key, value)
    assert reason in error["reason"]
    assert error["reason"] in problem["detail"]
    assert key in problem["detail"]
    assert desk.fingerprint() == before


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["body"]),
        ({"send_limit_bps": 1_000_000, "Receive_limit_bps": 1_000_000}, ["Receive_limit_bps"]),
        ({"send_limit_bps": 1.5, "receive_limit_bps": "x"}, ["send_limit_bps", "receive_limit_bps"]),
        ([], ["body"]),
        ("x", ["body"]),
        ('{"send_limit_bps": 1000000}', ["body"]),  # JSON inside a JSON text
        (5, ["body"]),
        (None, ["body"]),
    ],
)
def test_a_bad_body_names_its_fields(desk: Desk, body: object, fields: list[str]) -> None:
    before = desk.fingerprint()
    problem = problem_of(desk.send(VN, json.dumps(body).encode()), 422)
    assert [error["field"] for error in problem["errors"]] == fields
    assert desk.fingerprint() == before


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ('{"algorithm": "xx"}', "algorithm", "fs, sp, fp, fe"),
        ('{"algorithm": 5}', "algorithm", "fs, sp, fp, fe"),
        ('{"algorithm": NaN}', "algorithm", "fs, sp, fp, fe"),
        ('{"algorithm": "fs", "shadow": "best"}', "shadow", "fs, sp, fp, fe"),
        ('{"parameters": {"x": 1}}', "parameters.x", "inflation, floor, headroom, d"),
        ('{"algorithm": "fs", "parameters": {"d": 2}}', "parameters.d", "takes: none"),
        ('{"parameters": {"d": 1}}', "parameters.d", "above 1"),
        ('{"parameters": {"d": 1e6}}', "parameters.d", "at most 1000"),
        ('{"parameters": {"d": "2"}}', "parameters.d", "number"),
        ('{"parameters": {"d": true}}', "parameters.d", "number"),
        ('{"parameters": {"d": NaN}}', "parameters.d", "number"),
        ('{"parameters": {"d": %s}}' % ("9" * 400), "parameters.d", "larger"),
        ('{"parameters": null}', "parameters", "object"),
        ('{"parameters": [2]}', "parameters", "object"),
        ('{"weight": 0}', "weight", "0.000001 to 1000000"),
        ('{"weight": 1e9}', "weight", "1000000"),
        ('{"weight": "2"}', "weight", "number"),
        ('{"name": "a b"}', "name", "letters"),
        ('{"send_limit_bps": 1.5}', "send_limit_bps", "whole number"),
        ('{"priority": 2}', "priority", "algorithm, parameters"),
        ("{}", "body", "algorithm or parameters"),
    ],
)
def test_a_bad_policy_is_named_and_changes_nothing(desk: Desk, body: str, field: str, reason: str) -> None:
    before = desk.fingerprint()
    (error,) = problem_of(desk.send(VLAN, body.encode()), 422)["errors"]
    assert error["field"] == field
    assert reason in error["reason"]
    assert desk.fingerprint() == before


# -- any body at all

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
LIMITS = (
    st.sampled_from([999, 1000, 1001, 50_000_000, 50_000_001, 4_294_967_295_000])
    | st.integers(1000, 50_000_000)
    | st.integers()
    | JSON
)
BODIES = st.dictionaries(st.sampled_from(["send_limit_bps", "receive_limit_bps"]), LIMITS) | st.dictionaries(
    st.sampled_from(["send_limit_bps", "receive_limit_bps", "x"]) | st.text(max_size=5), LIMITS, max_size=3
)


@pytest.fixture(scope="module")
def shared() -> Desk:
    return Desk()


@settings(derandomize=True, max_examples=300, deadline=None)
@given(body=BODIES)
def test_a_change_is_made_exactly_when_all_of_it_is_acceptable(shared: Desk, body: dict[str, Any]) -> None:
    keys = {"send_limit_bps", "receive_limit_bps"}
    acceptable = bool(body) and all(
        key in keys and type(value) is int and 1000 <= value <= 50_000_000 for key, value in body.items()
    )
    before = shared.get(VN)
    print_before = shared.fingerprint()
    answer = shared.send(VN, json.dumps(body).encode())
    if acceptable:
        assert answer.status_code == 200
        shown = answer.get_json()
        before["flood_limit_bps"] = shown["flood_limit_bps"]
        assert shown["revision"] == before["revision"] + 1
        assert shown["overridden"] == sorted({*before["overridden"], *body}, reverse=True)
        assert shown == {**before, **body, "revision": shown["revision"], "overridden": shown["overridden"]}
    else:
        problem_of(answer, 422)
        assert shared.fingerprint() == print_before


@settings(derandomize=True, max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    path=st.text(st.characters(codec="utf-8"), max_size=8).map("/v1/vns/10/s1/{}".format) | st.sampled_from([VN, VLAN]),
    body=st.binary(max_size=40) | JSON.map(json.dumps).map(str.encode),
)
def test_no_request_makes_it_fail(shared: Desk, path: str, body: bytes) -> None:
    before = shared.fingerprint()
    answer = shared.send(path, body)
    if answer.status_code != 200:
        problem_of(answer, answer.status_code)
        assert 400 <= answer.status_code < 500
        assert shared.fingerprint() == before
