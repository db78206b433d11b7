"""REST: a VN's weight is shown, changed, undone, and refused where it is out of bounds or has no effect."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.rest_in_process import VLAN, VN, Desk, problem_of

OTHER = "/v1/vns/10/s1/2"
PLACE = {"vlan_vid": 10, "switch": "s1", "port_no": 2}


def errors_of(answer: Any) -> list[tuple[str, Any]]:
    return [(one["field"], one["value"]) for one in problem_of(answer, 422)["errors"]]


def test_a_weight_is_set_and_taken_back(desk: Desk) -> None:
    before, ceilings = desk.get(VN), desk.central.vns.send_ceiling_bps
    assert before["weight"] == 2.0
    after = desk.patch(VN, {"weight": 3}).get_json()
    assert after == {**before, "weight": 3.0, "overridden": ["weight"], "revision": 2}
    assert (desk.get(VN), desk.get(OTHER)["weight"]) == (after, 2.0)
    assert desk.central.vns.send_ceiling_bps is not ceilings
    (item,) = desk.get("/v1/history/2")["items"]
    assert (item["field"], item["before"], item["after"]) == ("weight", 2.0, 3.0)
    (override,) = desk.get("/v1/overrides")["overrides"]
    assert (override["values"], override["file"]) == ({"weight": 3.0}, {"weight": 2.0})
    desk.client.delete(f"{VN}/overrides")
    assert desk.get(VN) == {**before, "revision": 3}


def test_whole_numbers_are_shown_as_they_were_written(desk: Desk) -> None:
    desk.patch(VN, {"weight": 3})
    desk.patch(VLAN, {"weight": 4, "algorithm": "fp", "parameters": {"d": 3}})
    shown = [desk.get(VN), desk.get(VLAN), desk.get("/v1/history/3"), desk.get("/v1/overrides"), desk.get("/v1/export")]
    found = re.findall(r'"(?:weight|d|before|after)": ([0-9.]+)', json.dumps(shown))
    assert len(found) > 8
    assert {one for one in found if "." in one} == set()


@pytest.mark.parametrize("weight", [0, -1, 1e-7, 1e7, "2", None, True])
def test_a_bad_weight_is_named_with_its_bounds_and_changes_nothing(desk: Desk, weight: object) -> None:
    before = desk.fingerprint()
    answer = desk.patch(VN, {"weight": weight, "send_limit_bps": 1_000_000})
    assert errors_of(answer) == [("weight", weight)]
    assert "0.000001 to 1000000" in answer.text
    many = desk.client.post("/v1/limits", json={"limits": [{**PLACE, "weight": weight}]})
    assert errors_of(many) == [("limits.0.weight", weight)]
    assert desk.fingerprint() == before


def test_a_weight_that_nothing_uses_is_refused(desk: Desk) -> None:
    desk.patch(VLAN, {"algorithm": "fe"})
    assert desk.central.events.newer_than(0)[-1].text == "VLAN 10: fe; the weights of 4 VNs are stored and not used"
    before = desk.fingerprint()
    for path, body in ((VN, {"weight": 3}), (VLAN, {"weight": 3})):
        answer = desk.patch(path, body)
        assert errors_of(answer) == [("weight", 3)]
        words = "has no effect: the VLAN's algorithm is fe, and only fs, sp, fp, level, max-min"
        assert answer.get_json()["errors"][0]["reason"].startswith(words)
    assert desk.fingerprint() == before
    assert desk.patch(VLAN, {"shadow": "fs"}).status_code == 200  # it shows what the weight would do
    assert desk.patch(VN, {"weight": 3}).get_json()["weight"] == 3.0


def test_an_override_whose_weight_nothing_uses_is_listed_with_the_reason(desk: Desk) -> None:
    desk.patch(VN, {"weight": 3})
    desk.patch(OTHER, {"weight": 3, "send_limit_bps": 1_000_000})
    desk.patch(VLAN, {"algorithm": "fe"})
    listed = {one["port_no"]: one for one in desk.get("/v1/overrides")["overrides"] if one["switch"] is not None}
    assert [listed[port]["active"] for port in (1, 2)] == [False, True]
    for one in listed.values():
        assert one["reason"].startswith("its weight has no effect: the VLAN's algorithm is fe, and only fs, sp")
