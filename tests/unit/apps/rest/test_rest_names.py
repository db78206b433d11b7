"""VLANs and edge ports in paths and queries, by id or by name."""

from __future__ import annotations

import pytest
from support.rest_in_process import CONFIG, VN, Desk, problem_of


@pytest.mark.parametrize(
    ("by_name", "by_id"),
    [
        ("/v1/vlans/tenant-a", "/v1/vlans/10"),
        ("/v1/vns/tenant-a/s1/s1-1", "/v1/vns/10/s1/1"),
        ("/v1/vns/tenant-a/s1/1", "/v1/vns/10/s1/1"),
        ("/v1/vns?vlan=tenant-a", "/v1/vns?vlan=10"),
        ("/v1/ports/s2/s2-7", "/v1/ports/s2/7"),
        ("/v1/vns/tenant-a/s1/s1-1/explanations", "/v1/vns/10/s1/1/explanations"),
        ("/v1/series?vlan=tenant-a", "/v1/series?vlan=10"),
        ("/v1/series?vn=tenant-a/s1/s1-1", "/v1/series?vn=10/s1/1"),
    ],
)
def test_a_name_leads_to_what_the_id_leads_to(desk: Desk, by_name: str, by_id: str) -> None:
    assert desk.get(by_name) == desk.get(by_id)


def test_changes_by_name(desk: Desk) -> None:
    assert desk.patch("/v1/vns/tenant-a/s1/s1-1", {"send_limit_bps": 30_000_000}).status_code == 200
    assert desk.patch("/v1/vlans/tenant-a", {"weight": 3}).status_code == 200
    assert desk.get(VN)["send_limit_bps"] == 30_000_000
    assert desk.client.delete("/v1/vns/tenant-a/s1/s1-1/overrides").status_code == 200
    assert desk.client.delete("/v1/vlans/tenant-a/overrides").status_code == 200
    assert desk.get("/v1/overrides")["overrides"] == []


def test_bodies_take_names_too(desk: Desk) -> None:
    limits = [
        {"vlan_vid": "tenant-a", "switch": "s1", "port_no": "s1-1", "send_limit_bps": 30_000_000},
        {"vlan_vid": 10, "switch": "s1", "port_no": "s1-2", "send_limit_bps": 20_000_000},
    ]
    answer = desk.client.post("/v1/limits", json={"limits": limits})
    assert (answer.status_code, answer.get_json()["changed"]) == (200, 2)
    assert [desk.get(f"/v1/vns/10/s1/{port}")["send_limit_bps"] for port in (1, 2)] == [30_000_000, 20_000_000]
    document = {
        "format": "dets-overrides-1",
        "vlans": [{"vlan_vid": "tenant-a", "values": {"weight": 5}}],
        "vns": limits,
    }
    assert desk.client.post("/v1/import", json=document, headers={"If-Match": "*"}).status_code == 200
    assert desk.get("/v1/vlans/10")["weight"] == 5
    exported = desk.get("/v1/export")
    assert [(one["vlan_vid"], one["port_no"]) for one in exported["vns"]] == [(10, 1), (10, 2)]


@pytest.mark.parametrize(
    ("vlan_vid", "switch", "port_no", "field", "reason"),
    [
        ("nosuch", "s1", 1, "vlan_vid", "is not a VLAN here; the VLANs are 10, 20"),
        (
            10,
            "s1",
            "s1-9",
            "port_no",
            "is not an edge port of switch s1 (did you mean s1-3?); its edge ports are 1, 2, 3",
        ),
        (10, "s9", "s1-1", "port_no", "is not a switch here; the switches are s1, s2"),
        ("10", "s1", 1, "vlan_vid", "must be a whole number, 1 to 4094, or a name"),
        (10, "s1", "1", "port_no", "must be a whole number, 1 to 4294967040, or a name"),
        (10, "s1", True, "port_no", "must be a whole number, 1 to 4294967040, or a name"),
    ],
)
def test_names_in_bodies_that_there_are_not(
    desk: Desk, vlan_vid: object, switch: str, port_no: object, field: str, reason: str
) -> None:
    before = desk.fingerprint()
    place = {"vlan_vid": vlan_vid, "switch": switch, "port_no": port_no}
    answer = desk.client.post("/v1/limits", json={"limits": [place | {"send_limit_bps": 10**6}]})
    (error,) = problem_of(answer, 422)["errors"]
    assert (error["field"], error["reason"]) == (f"limits.0.{field}", reason)
    assert desk.fingerprint() == before


def test_one_vn_by_id_and_by_name_is_there_twice(desk: Desk) -> None:
    places = [{"vlan_vid": vlan, "switch": "s1", "port_no": port} for vlan, port in ((10, 1), ("tenant-a", "s1-1"))]
    answer = desk.client.post("/v1/limits", json={"limits": [place | {"send_limit_bps": 10**6} for place in places]})
    assert "stands there twice" in problem_of(answer, 422)["detail"]


def test_a_stream_stays_with_the_vlan_that_the_name_named(desk: Desk) -> None:
    with desk.client.get("/v1/stream?vlan=tenant-a&count=1") as answer:
        desk.patch("/v1/vlans/tenant-a", {"name": "other"})
        assert b'"vns":[[10,"s1",1]' in b"".join(answer.response)


def test_ports_of_a_name(desk: Desk) -> None:
    (port,) = desk.get("/v1/ports?name=s2-7")["ports"]
    assert (port["switch"], port["port_no"]) == ("s2", 7)
    assert desk.get("/v1/ports?name=nosuch")["ports"] == []
    assert desk.get("/v1/ports?name=s2-7&switch=s1")["ports"] == []
    for name in ("", "a b", "x" * 64):
        problem_of(desk.client.get("/v1/ports", query_string={"name": name}), 422)


def test_a_port_that_is_configured_by_name_is_shown_and_found_by_it() -> None:
    desk = Desk(CONFIG.replace("3: {capacity", "eth7: {name: web, capacity"))
    number = desk.get("/v1/vns/10/s1/eth7")["port_no"]
    for text in ("eth7", "web", str(number)):
        assert (desk.get(f"/v1/vns/10/s1/{text}")["port"], desk.get(f"/v1/ports/s1/{text}")["port"]) == ("eth7", "eth7")
    for name in ("eth7", "web"):
        assert [port["port_no"] for port in desk.get(f"/v1/ports?name={name}")["ports"]] == [number]
    assert desk.patch("/v1/vns/10/s1/eth7", {"send_limit_bps": 30_000_000}).status_code == 200
    assert [one["port"] for one in (*desk.get("/v1/history/2")["items"], *desk.get("/v1/overrides")["overrides"])] == [
        "eth7",
        "eth7",
    ]
    answer = desk.patch("/v1/vns/10/s1/eth7", {"send_limit_bps": 2_000_000_000})
    assert "does not fit: port s1:eth7 (sending) would need to carry 2G of 1G" in problem_of(answer, 422)["detail"]
    assert "its edge ports are 1, 2, eth7" in problem_of(desk.client.get("/v1/ports/s1/eth8"), 404)["detail"]


def test_digits_are_an_id(desk: Desk) -> None:
    desk.patch("/v1/vlans/20", {"name": "10"})
    assert desk.get("/v1/vlans/10")["vlan_vid"] == 10


def test_a_name_of_another_vlan_is_refused(desk: Desk) -> None:
    before = desk.fingerprint()
    (error,) = problem_of(desk.patch("/v1/vlans/20", {"name": "tenant-a"}), 422)["errors"]
    assert error == {"field": "name", "value": "tenant-a", "reason": "is already the name of VLAN 10"}
    assert desk.fingerprint() == before
    assert desk.patch("/v1/vlans/10", {"name": "tenant-a"}).status_code == 200  # its own
    assert desk.patch("/v1/vlans/10", {"name": "other"}).status_code == 200
    assert desk.patch("/v1/vlans/20", {"name": "tenant-a"}).status_code == 200
    (error,) = problem_of(desk.client.delete("/v1/vlans/10/overrides"), 422)["errors"]
    assert (error["value"], error["reason"]) == ("tenant-a", "is already the name of VLAN 20")


def test_of_one_name_that_is_imported_twice_one_is_in_force(desk: Desk) -> None:
    vlans = [{"vlan_vid": vid, "values": {"name": "same"}} for vid in (10, 20)]
    document = {"format": "dets-overrides-1", "vlans": vlans, "vns": []}
    answer = desk.client.post("/v1/import", json=document, headers={"If-Match": "*"})
    (inactive,) = answer.get_json()["inactive"]
    assert (inactive["vlan_vid"], inactive["reason"]) == (20, "name: 'same' is already the name of VLAN 10")
    assert [one["name"] for one in desk.get("/v1/vlans")["vlans"]] == ["same", "vlan20"]


def test_a_name_that_is_nearly_one_and_one_that_was_one(desk: Desk) -> None:
    problem = problem_of(desk.client.get("/v1/vlans/tenant-b"), 404)
    assert "is not a VLAN here (did you mean tenant-a?); the VLANs are 10, 20" in problem["detail"]
    desk.patch("/v1/vlans/10", {"name": "blue"})
    problem = problem_of(desk.client.get("/v1/vlans/tenant-a"), 404)
    assert problem["detail"].endswith("is not a VLAN here any more: VLAN 10 was renamed blue")


def test_what_is_not_there_comes_before_what_is_wrong_with_its_values(desk: Desk) -> None:
    bad = {"send_limit_bps": 1}
    assert problem_of(desk.patch("/v1/vns/10/s1/9", bad), 404)["errors"][0]["field"] == "port_no"
    assert problem_of(desk.patch("/v1/vns/20/s1/3", bad), 404)["errors"][0]["field"] == "vlan_vid"
    assert problem_of(desk.patch("/v1/vlans/30", {"weight": -1}), 404)["errors"][0]["field"] == "vlan_vid"
    assert problem_of(desk.patch(VN, bad), 422)["errors"][0]["field"] == "send_limit_bps"


def test_an_unknown_key_is_told_once_with_the_near_one(desk: Desk) -> None:
    near = "is not known here (did you mean receive_limit_bps?); there are: "
    for key in ("recieve_limit_bps", "receive_limit"):
        answer = problem_of(desk.patch(VN, {key: 1}), 422)
        assert answer["detail"].startswith(f"{key}: 1 {near}send_limit_bps, receive_limit_bps, ")
    limits = [{"vlan_vid": 10, "switch": "s1", "port_no": port, "recieve_limit_bps": 1} for port in (1, 2, 3)]
    answer = problem_of(desk.client.post("/v1/limits", json={"limits": limits}), 422)
    assert answer["detail"].startswith(f"limits.0.recieve_limit_bps: 1 {near}vlan_vid, switch, port_no, ")
    assert answer["detail"].endswith("weight (and 2 more like this)")
    assert answer["detail"].count("there are") == 1
    assert [one["field"] for one in answer["errors"]] == [f"limits.{at}.recieve_limit_bps" for at in range(3)]
