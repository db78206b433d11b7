"""REST: what is shown, and that the description says so."""

from __future__ import annotations

from datetime import datetime

import jsonschema
import numpy as np
import pytest
from openapi_spec_validator import validate
from support.rest_in_process import DPID, OTHER_DPID, VLAN, VN, Desk, problem_of
from support.switches import reported

from apps.rest.resources.views import json_rates
from controller.events import EventKind
from controller.forwarding.pipeline import MetadataFlag
from controller.openflow.ethernet import FrameHeader, build_frame


def test_vlans(desk: Desk) -> None:
    first = {
        "vlan_vid": 10,
        "name": "tenant-a",
        "algorithm": "fp",
        "parameters": {"d": 3.0, "inflation": 0.1, "floor": 0.01, "headroom": 0.0},
        "weight": 2.0,
        "send_limit_bps": 40_000_000,
        "receive_limit_bps": 40_000_000,
        "vns": 4,
        "shadow": None,
        "shadow_parameters": {},
        "overridden": [],
        "revision": 1,
    }
    second = first | {"vlan_vid": 20, "name": "vlan20", "algorithm": "fs", "parameters": {}, "weight": 1.0}
    second |= {"send_limit_bps": 50_000_000, "receive_limit_bps": None, "vns": 2}
    assert desk.get("/v1/vlans") == {"next": None, "vlans": [first, second], "revision": 1}
    assert desk.get("/v1/vlans/20") == second


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["10/s1/1", "20/s1/1", "10/s1/2", "20/s1/2", "10/s1/3", "10/s2/7"]),
        ("?vlan=20", ["20/s1/1", "20/s1/2"]),
        ("?switch=s2", ["10/s2/7"]),
        ("?vlan=10&switch=s1", ["10/s1/1", "10/s1/2", "10/s1/3"]),
        ("?vlan=20&switch=s2", []),
    ],
)
def test_vns_are_listed_and_filtered(desk: Desk, query: str, expected: list[str]) -> None:
    vns = desk.get(f"/v1/vns{query}")["vns"]
    assert [f"{vn['vlan_vid']}/{vn['switch']}/{vn['port_no']}" for vn in vns] == expected
    assert [desk.get(f"/v1/vns/{name}") for name in expected] == vns


def test_a_vn_that_is_congested_and_one_that_sends_to_it(busy: Desk) -> None:
    granted_bps = busy.central.state.machines.limit_bps
    assert np.isfinite(granted_bps).all()
    shown = busy.get("/v1/vns/10/s1/2")
    began_s = datetime.fromisoformat(shown.pop("congested_since")).timestamp()
    assert began_s == pytest.approx(busy.service.epoch_s + busy.now_s, abs=0.001)
    assert shown == {
        "vlan_vid": 10,
        "switch": "s1",
        "dpid": "00000000000000a1",
        "port_no": 2,
        "port": "2",
        "send_limit_bps": 40_000_000,
        "receive_limit_bps": 40_000_000,
        "weight": 2.0,
        **dict.fromkeys(("measured_receive_bps", "offered_receive_bps"), 50_000_000),
        **dict.fromkeys(("measured_send_bps", "offered_send_bps", "dropped_receive_bps", "dropped_send_bps"), 0),
        **dict.fromkeys(("send_ceiling_bps", "receive_ceiling_bps", "send_limit_dropped_bps", "delivered_bps")),
        **dict.fromkeys(("marked_share", "lost_share", "bottleneck")),
        **dict.fromkeys(("flooded_bps", "flood_dropped_bps", "queue_dropped_bps")),
        "granted_bps": round(float(granted_bps.sum())),
        "flood_limit_bps": 1_333_000,
        "flood_received_bps": 0,
        "congested": True,
        "notifications": 0,
        "guarantee": shown["guarantee"],
        "hosts": ["00:00:00:00:00:02"],
        "hosts_full": False,
        "enforceable": "partly",
        "enforceable_reasons": [
            "that meters limit senders has not been tested",
            "receivers have no queue: the switch has no ovsdb address to set queues with",
        ],
        "overridden": [],
        "revision": 1,
    }
    kept = shown["guarantee"]
    unviolated = {"violated": False, "violated_since": None, "violated_s": 0, "violated_last_hour_s": 0}
    assert kept.items() >= unviolated.items()
    assert kept["entitled_bps"] == round(40e6 * 0.055 / 3.0)  # a mean over 3 s, after one interval at the limit
    sender = busy.get("/v1/vns/10/s1/1")
    assert (sender["measured_send_bps"], sender["measured_receive_bps"]) == (30_000_000, 0)
    assert (sender["congested"], sender["granted_bps"]) == (False, None)
    assert busy.get("/v1/vns/20/s1/2")["hosts"] == []


def test_grants_of_senders_that_fell_silent_do_not_count(busy: Desk) -> None:
    busy.run([60e6, 0.0], [20e6, 0.0], 15)
    state = busy.central.state
    assert state.allocators.congested.any()
    assert state.measured.active.tolist() == [True, False]
    shown_bps = busy.get("/v1/vns/10/s1/2")["granted_bps"]
    assert shown_bps == round(float(state.machines.limit_bps[0]))
    assert shown_bps < state.machines.limit_bps.sum()


def test_entries(busy: Desk) -> None:
    busy.run([30e6, 20e6], [6e6, 0.0], 4)
    first, second = busy.get("/v1/pairs")["pairs"]
    assert first["sender"] == {"switch": "s1", "dpid": "00000000000000a1", "port_no": 1, "port": "1"}
    assert first["receiver"] == {"switch": "s1", "dpid": "00000000000000a1", "port_no": 2, "port": "2"}
    assert second["sender"]["port_no"] == 3
    state = busy.central.state
    assert (first["vlan_vid"], first["meter_id"]) == (10, int(state.entries.meter_id[0]))
    measured = state.measured
    assert (first["offered_bps"], first["dropped_bps"]) == tuple(
        round(float(rates[0])) for rates in (measured.offered_bps, measured.dropped_bps)
    )
    assert first["dropped_bps"] > 0
    assert first["measured_bps"] == round(float(measured.measured_bps[0]))
    assert first["granted_bps"] == round(float(state.machines.limit_bps[0]))
    assert first["limit_bps"] == min(first["granted_bps"], 40_000_000)
    assert first["meter_rate_bps"] == int(state.enforcement.rate_bps[0])
    assert (first["control"], first["unresponsive"]) == ("limited", False)
    assert busy.get("/v1/pairs?vlan=10&switch=s1")["pairs"] == [first, second]
    assert busy.get("/v1/pairs?vlan=20")["pairs"] == []
    assert busy.get("/v1/pairs?switch=s2")["pairs"] == []


def test_an_entry_that_nobody_controls_has_no_grant(desk: Desk) -> None:
    desk.connect()
    desk.talk(1, 2)
    desk.run([1e6], [0.0], 2)
    (entry,) = desk.get("/v1/pairs")["pairs"]
    assert (entry["control"], entry["granted_bps"], entry["limit_bps"]) == ("idle", None, 40_000_000)


def test_what_a_lost_switch_counts_is_unknown_and_not_zero(busy: Desk) -> None:
    assert busy.get("/v1/vns/10/s2/7")["measured_receive_bps"] is None
    busy.central.switch_disconnected(DPID, busy.now_s)
    vn = busy.get("/v1/vns/10/s1/2")
    assert (vn["measured_receive_bps"], vn["measured_send_bps"]) == (None, None)
    assert vn["receive_limit_bps"] == 40_000_000
    entry = busy.get("/v1/pairs")["pairs"][0]
    assert (entry["measured_bps"], entry["offered_bps"], entry["dropped_bps"]) == (None, None, None)


def test_a_receiver_of_a_lost_switchs_senders_receives_it_is_not_known_what(busy: Desk) -> None:
    busy.connect(OTHER_DPID)
    frame = build_frame(FrameHeader(2, 7, 10, 0x0800), b"")
    busy.central.on_packet_in(OTHER_DPID, reported(7, 10, frame, MetadataFlag.UNKNOWN_SOURCE), busy.now_s)
    busy.central.on_packet_in(OTHER_DPID, reported(7, 10, frame, MetadataFlag.NEW_PAIR), busy.now_s)
    busy.run([30e6, 20e6, 0.0], [0.0, 0.0, 0.0], 1)
    assert busy.get("/v1/vns/10/s1/2")["measured_receive_bps"] is not None
    busy.central.switch_disconnected(OTHER_DPID, busy.now_s)
    assert busy.get("/v1/vns/10/s1/2")["measured_receive_bps"] is None
    assert busy.get("/v1/vns/10/s1/1")["measured_receive_bps"] == 0


def test_rates_are_whole_and_unknown_ones_null() -> None:
    assert json_rates(np.array([1.4, 2.6e12, 0.0])) == [1, 2_600_000_000_000, 0]
    assert json_rates(np.array([np.nan, 5.0, np.inf, -np.inf])) == [None, 5, None, None]
    assert json_rates(np.empty(0)) == []


def test_events(desk: Desk) -> None:
    assert desk.get("/v1/events") == {"events": [], "last": 0}
    for number in (1, 2, 3):
        desk.central.note(EventKind.LINK_UP, f"link {number}", 10.0 * number)
    answer = desk.get("/v1/events?after=1")
    assert answer["last"] == 3
    times = [datetime.fromisoformat(event.pop("at")).timestamp() for event in answer["events"]]
    assert times[1] - times[0] == pytest.approx(10.0, abs=0.002)
    nowhere = {"severity": "info", "vlan_vid": None, "switch": None, "port_no": None}
    assert answer["events"] == [
        {"number": 2, "at_s": 20.0, "kind": "link-up", **nowhere, "text": "link 2"},
        {"number": 3, "at_s": 30.0, "kind": "link-up", **nowhere, "text": "link 3"},
    ]
    assert desk.get("/v1/events?after=0") == desk.get("/v1/events")
    # Numbers restart with the controller: ``last`` shows a reader that its own is of an earlier run.
    assert desk.get("/v1/events?after=99") == {"events": [], "last": 3}


def test_ports_show_what_they_carry_and_what_is_promised(desk: Desk) -> None:
    ports = desk.get("/v1/ports")["ports"]
    configured = list(desk.central.config.ports())
    assert [(port["switch"], port["port_no"]) for port in ports] == [(s.name, port.port_no) for s, port in configured]
    for port, (_, described) in zip(ports, configured, strict=True):
        assert port["receive_limits_bps"] == sum(vn.receive_limit_bps for vn in described.vns)
        assert port["send_limits_bps"] == sum(vn.send_limit_bps for vn in described.vns)
        assert (port["capacity_bps"], port["admissible_bps"]) == (described.capacity_bps, described.admissible_bps)
        assert port["sent_bps"] is None  # nothing was read yet


# -- the description


def test_the_description_is_valid_and_complete(desk: Desk) -> None:
    document = desk.get("/v1/openapi.json")
    assert document["openapi"].startswith("3.1")
    validate(document)
    described = {(path, method.upper()) for path, item in document["paths"].items() for method in item}
    served = {
        (rule.rule.replace("<", "{").replace(">", "}"), method)
        for rule in desk.app.url_map.iter_rules()
        if not rule.rule.startswith("/ui/")  # files that the page loads
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert described == served
    for path, item in document["paths"].items():
        for method, operation in item.items():
            needed = {"200", "422", "500"} | ({"400", "413", "415"} if method == "patch" else set())
            needed |= {"404"} if "{" in path else set()
            assert needed <= set(operation["responses"]), (path, method)
            assert {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"} == {
                part[1:-1] for part in path.split("/") if part.startswith("{")
            }


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("VnPatch", {"send_limit_bps": 1000}, [{}, {"send_limit_bps": 999}, {"send_limit_bps": None}, {"rate": 5000}]),
        (
            "VlanPatch",
            {"algorithm": "fp", "parameters": {"d": 2}},
            [{}, {"algorithm": "xx"}, {"parameters": {"x": 1}}, {"parameters": {"d": 0}}, {"parameters": None}],
        ),
    ],
)
def test_bodies_are_described_as_strictly_as_they_are_read(
    desk: Desk, name: str, good: object, bad: list[object]
) -> None:
    document = desk.get("/v1/openapi.json")
    described = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    schema = jsonschema.Draft202012Validator(described)
    path = VN if name == "VnPatch" else VLAN
    assert schema.is_valid(good)
    assert desk.patch(path, good).status_code == 200
    for body in bad:
        assert not schema.is_valid(body), body
        assert desk.patch(path, body).status_code == 422, body


def test_the_greatest_event_number_is_the_described_one(desk: Desk) -> None:
    parameters = desk.get("/v1/openapi.json")["paths"]["/v1/events"]["get"]["parameters"]
    after = next(one for one in parameters if one["name"] == "after")
    assert desk.get(f"/v1/events?after={after['schema']['maximum']}")["events"] == []
    problem_of(desk.client.get(f"/v1/events?after={after['schema']['maximum'] + 1}"), 422)
