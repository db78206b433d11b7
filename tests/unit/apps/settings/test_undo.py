"""Undoing a change: the values of before are in force again, or it is refused by name and nothing has changed."""

from __future__ import annotations

from typing import Any

import pytest
from support.rest_in_process import VLAN, VN, Desk

OTHER = "/v1/vns/10/s1/2"
M = 1_000_000


@pytest.fixture
def desk() -> Desk:
    return Desk()


def undo(desk: Desk, revision: int, **how: Any) -> Any:
    return desk.client.post(f"/v1/history/{revision}/undo", **how)


def refused(desk: Desk, revision: int) -> tuple[str, Any, str]:
    before = desk.fingerprint()
    answer = undo(desk, revision)
    assert answer.status_code == 422, answer.text
    assert desk.fingerprint() == before
    (error,) = answer.get_json()["errors"]
    return error["field"], error["value"], error["reason"]


def test_what_the_file_says_holds_again_and_the_history_knows(desk: Desk) -> None:
    before = desk.get(VN)
    desk.patch(VN, {"receive_limit_bps": 20 * M, "weight": 3})
    assert undo(desk, 2).get_json() == {"revision": 3, "changed": 2}
    assert desk.get(VN) == {**before, "revision": 3}
    assert desk.get("/v1/overrides")["overrides"] == []
    done = desk.get("/v1/history/3")
    assert (done["action"], done["changed"]) == ("undo", 2)
    assert undo(desk, 3).status_code == 200  # an undo is a change as any other
    assert (desk.get(VN)["receive_limit_bps"], desk.get(VN)["overridden"]) == (20 * M, ["receive_limit_bps", "weight"])


def test_an_earlier_override_is_back_and_later_changes_of_other_values_stay(desk: Desk) -> None:
    desk.patch(VN, {"receive_limit_bps": 20 * M})
    desk.patch(VN, {"receive_limit_bps": 30 * M})
    desk.patch(VN, {"send_limit_bps": 5 * M})
    assert undo(desk, 3).status_code == 200
    vn = desk.get(VN)
    assert (vn["receive_limit_bps"], vn["send_limit_bps"]) == (20 * M, 5 * M)


def test_many_vns_a_vlan_and_a_reset_are_undone(desk: Desk) -> None:
    fresh = desk.get("/v1/export")
    places = [{"vlan_vid": 10, "switch": "s1", "port_no": port_no} for port_no in (1, 2)]
    desk.client.post("/v1/limits", json={"limits": [{**one, "send_limit_bps": 7 * M} for one in places]})
    desk.patch(VLAN, {"algorithm": "fs", "send_limit_bps": 11 * M, "name": "blue"})
    was = desk.get("/v1/export")
    desk.client.delete("/v1/overrides", headers={"If-Match": "*"})
    assert desk.get(VLAN)["algorithm"] == "fp"
    assert undo(desk, 4).status_code == 200
    assert desk.get("/v1/export") == was
    assert [undo(desk, revision).status_code for revision in (3, 2)] == [200, 200]
    assert desk.get("/v1/export") == fresh
    assert (desk.get(VLAN)["algorithm"], desk.get(VLAN)["parameters"]["d"]) == ("fp", 3)


def test_parameters_go_with_their_algorithm(desk: Desk) -> None:
    desk.patch(VLAN, {"parameters": {"d": 5}})
    desk.patch(VLAN, {"algorithm": "fs"})
    assert undo(desk, 3).status_code == 200
    assert (desk.get(VLAN)["algorithm"], desk.get(VLAN)["parameters"]["d"]) == ("fp", 5)


def test_what_was_changed_since_is_refused_by_name(desk: Desk) -> None:
    desk.patch(VN, {"receive_limit_bps": 20 * M, "send_limit_bps": 10 * M})
    desk.patch(VN, {"receive_limit_bps": 30 * M})
    field, value, reason = refused(desk, 2)
    assert (field, value) == ("vns.10/s1/1.receive_limit_bps", 40 * M)
    assert reason.startswith("cannot be set: it is 30000000, not 20000000 as revision 2 left it")


def test_what_does_not_fit_any_more_is_refused_by_name(desk: Desk) -> None:
    desk.patch(VN, {"receive_limit_bps": 20 * M})
    desk.patch("/v1/vns/20/s1/1", {"receive_limit_bps": 80 * M})
    field, value, reason = refused(desk, 2)
    assert (field, value) == ("vns.10/s1/1.receive_limit_bps", 40 * M)
    assert "port s1:1 (receiving) would need to carry 120M of 100M; at most 20000000" in reason


def test_a_weight_that_nothing_uses_any_more_is_refused_by_name(desk: Desk) -> None:
    desk.patch(VN, {"weight": 3})
    desk.patch(VLAN, {"algorithm": "fe"})
    field, _, reason = refused(desk, 2)
    assert field == "vns.10/s1/1.weight"
    assert "only fs" in reason


def test_changes_of_the_file_and_unknown_ones_are_not_undone(desk: Desk) -> None:
    assert refused(desk, 1)[0] == "revision"
    for unknown in ("2", "0", "-1", "x", "9" * 30):
        assert undo(desk, unknown).status_code == 404  # type: ignore[arg-type]


def test_a_dry_run_and_another_revision_change_nothing(desk: Desk) -> None:
    desk.patch(VN, {"receive_limit_bps": 20 * M})
    before = desk.fingerprint()
    assert undo(desk, 2, query_string={"dry_run": "true"}).get_json() == {"revision": 2, "changed": 1}
    assert undo(desk, 2, headers={"If-Match": '"1"'}).status_code == 412
    assert desk.fingerprint() == before
