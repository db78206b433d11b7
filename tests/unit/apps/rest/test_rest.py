"""REST: what is shown, what is changed, and that nothing is changed by a request that is refused."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import datetime
from typing import Any

import jsonschema
import numpy as np
import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import validate
from support.paths import ROOT
from werkzeug.test import TestResponse

from apps.rest import create_app
from apps.rest.http.body import MAX_BODY_BYTES
from apps.rest.resources.representation import json_rates
from controller.central.controller import CentralController
from controller.config.load import parse_config
from controller.errors import InvalidValueError
from controller.events import EventKind
from controller.forwarding.pipeline import Table
from controller.openflow.frames import FrameHeader, build_frame
from controller.openflow.messages import PacketIn
from controller.openflow.meters import METER_CONFIG, METER_STATS

CONFIG = """\
vlans:
  10: {name: tenant-a, algorithm: fp, parameters: {d: 3}, send_limit: 40M, receive_limit: 40M, weight: 2}
  20: {algorithm: fs, send_limit: 50M}
switches:
  s1:
    dpid: "00000000000000a1"
    ports:
      1: {capacity: 100M, trunk: [10, 20], vns: {20: {receive_limit: 50M}}}
      2: {capacity: 100M, trunk: [10, 20], vns: {20: {receive_limit: 55M}}}
      3: {capacity: 1G, access: 10}
  s2:
    dpid: 0xa2
    ports:
      7: {capacity: 100M, access: 10}
"""
DPID, OTHER_DPID = 0xA1, 0xA2
INTERVAL_S = 0.055
VN, VLAN = "/v1/vns/10/s1/1", "/v1/vlans/10"
NO_FLOWS: tuple[()] = ()


class Desk:
    """A controller, a client of its REST interface, and the calls of ``after_change``."""

    def __init__(self) -> None:
        self.central = CentralController(parse_config(CONFIG))
        self.now_s = 100.0
        self.changes = 0
        self.app = create_app(
            self.central, lambda: self.now_s, lambda: {"status": "ready", "switches": {"s1": "ready"}}, self._changed
        )
        self.client: FlaskClient = self.app.test_client()

    def _changed(self) -> None:
        self.changes += 1

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.get_json()

    def patch(self, path: str, body: object) -> TestResponse:
        return self.client.patch(path, json=body)

    def send(self, path: str, body: bytes, content_type: str | None = "application/json") -> TestResponse:
        return self.client.patch(path, data=body, content_type=content_type)

    def fingerprint(self) -> str:
        """All that a request could change."""
        vns, events = self.central.vns, self.central.events.after(0)
        limits = vns.send_limit_bps.tolist(), vns.receive_limit_bps.tolist()
        due = [(len(record.update), record.update.rate_kbps) for record in self.central.switches.values()]
        control = self.central.fabric.control
        return repr((limits, control.policies, control.groups, events, due, self.changes))

    # -- the network

    def connect(self, dpid: int = DPID) -> None:
        self.central.switch_connected(dpid, NO_FLOWS, np.empty(0, METER_CONFIG), self.now_s)

    def talk(self, sender_port: int, receiver_port: int, vlan_vid: int = 10) -> None:
        """The host with MAC address = port number at one port of s1 sends to the one at another."""
        for port, to in ((receiver_port, sender_port), (sender_port, receiver_port)):
            frame = build_frame(FrameHeader(to, port, vlan_vid, 0x0800), b"")
            self.central.frame_reported(DPID, PacketIn(0, Table.LEARN, 0, port, frame), self.now_s)
        self.central.frame_reported(DPID, PacketIn(0, Table.RATE_CONTROL, 0, sender_port, frame), self.now_s)

    def run(self, offered_bps: list[float], dropped_bps: list[float], intervals: int) -> None:
        """Run intervals in which the entries of s1, in the order of the table, see these loads."""
        self.central.take_updates()
        meter_id = self.central.state.entries.meter_id
        for _ in range(intervals):
            self.now_s += INTERVAL_S
            stats = np.zeros(len(meter_id), METER_STATS)
            stats["meter_id"] = meter_id
            stats["duration_s"] = self.now_s - 100.0
            for name, rate_bps in (("byte_in_count", offered_bps), ("band_byte_count", dropped_bps)):
                stats[name] = np.array(rate_bps) / 8 * (self.now_s - 100.0)
            self.central.interval({DPID: stats}, {DPID: self.now_s}, self.now_s)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def busy() -> Desk:
    """Hosts at ports 1 and 3 send 30 and 20 Mb/s to the one at port 2, whose limit in VLAN 10 is 40 Mb/s."""
    desk = Desk()
    desk.connect()
    desk.talk(1, 2)
    desk.talk(3, 2)
    desk.run([30e6, 20e6], [0.0, 0.0], 1)
    return desk


def problem_of(answer: TestResponse, status: int) -> dict[str, Any]:
    """Check that an answer is a problem document of that status, and return it."""
    assert (answer.status_code, answer.mimetype) == (status, "application/problem+json"), answer.text
    problem: dict[str, Any] = json.loads(answer.text)
    assert problem["status"] == status
    assert problem["type"].startswith("urn:dets:problem:")
    assert problem["title"]
    assert problem["detail"]
    assert "Traceback" not in answer.text
    return problem


# -- what is shown


def test_health_is_what_the_shell_says(desk: Desk) -> None:
    assert desk.get("/v1/health") == {"status": "ready", "switches": {"s1": "ready"}}


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
    second = {
        "vlan_vid": 20,
        "name": "vlan20",
        "algorithm": "fs",
        "parameters": {},
        "weight": 1.0,
        "send_limit_bps": 50_000_000,
        "receive_limit_bps": None,
        "vns": 2,
        "shadow": None,
        "shadow_parameters": {},
        "overridden": [],
        "revision": 1,
    }
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
    assert began_s == pytest.approx(busy.app.extensions["dets"].epoch_s + busy.now_s, abs=0.001)
    assert shown == {
        "vlan_vid": 10,
        "switch": "s1",
        "dpid": "00000000000000a1",
        "port_no": 2,
        "send_limit_bps": 40_000_000,
        "receive_limit_bps": 40_000_000,
        "send_ceiling_bps": None,
        "receive_ceiling_bps": None,
        "measured_receive_bps": 50_000_000,
        "measured_send_bps": 0,
        "demand_receive_bps": 50_000_000,
        "demand_send_bps": 0,
        "dropped_receive_bps": 0,
        "dropped_send_bps": 0,
        "dropped_send_limit_bps": None,
        "delivered_bps": None,
        "granted_bps": round(float(granted_bps.sum())),
        "congested": True,
        "hosts": ["00:00:00:00:00:02"],
        "enforceable": "partly",
        "enforceable_why": [
            "that meters limit senders has not been tested",
            "receivers have no queue: the switch has no ovsdb address to set queues with",
        ],
        "overridden": [],
        "revision": 1,
    }
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
    first, second = busy.get("/v1/entries")["entries"]
    assert first["sender"] == {"switch": "s1", "dpid": "00000000000000a1", "port_no": 1}
    assert first["receiver"] == {"switch": "s1", "dpid": "00000000000000a1", "port_no": 2}
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
    assert busy.get("/v1/entries?vlan=10&switch=s1")["entries"] == [first, second]
    assert busy.get("/v1/entries?vlan=20")["entries"] == []
    assert busy.get("/v1/entries?switch=s2")["entries"] == []


def test_an_entry_that_nobody_controls_has_no_grant(desk: Desk) -> None:
    desk.connect()
    desk.talk(1, 2)
    desk.run([1e6], [0.0], 2)
    (entry,) = desk.get("/v1/entries")["entries"]
    assert (entry["control"], entry["granted_bps"], entry["limit_bps"]) == ("idle", None, 40_000_000)


def test_what_a_lost_switch_counts_is_unknown_and_not_zero(busy: Desk) -> None:
    assert busy.get("/v1/vns/10/s2/7")["measured_receive_bps"] is None
    busy.central.switch_disconnected(DPID, busy.now_s)
    vn = busy.get("/v1/vns/10/s1/2")
    assert (vn["measured_receive_bps"], vn["measured_send_bps"]) == (None, None)
    assert vn["receive_limit_bps"] == 40_000_000
    entry = busy.get("/v1/entries")["entries"][0]
    assert (entry["measured_bps"], entry["offered_bps"], entry["dropped_bps"]) == (None, None, None)


def test_a_receiver_of_a_lost_switchs_senders_receives_it_is_not_known_what(busy: Desk) -> None:
    busy.connect(OTHER_DPID)
    frame = build_frame(FrameHeader(2, 7, 10, 0x0800), b"")
    busy.central.frame_reported(OTHER_DPID, PacketIn(0, Table.LEARN, 0, 7, frame), busy.now_s)
    busy.central.frame_reported(OTHER_DPID, PacketIn(0, Table.RATE_CONTROL, 0, 7, frame), busy.now_s)
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
    assert answer["events"] == [
        {"number": 2, "at_s": 20.0, "kind": "link-up", "text": "link 2"},
        {"number": 3, "at_s": 30.0, "kind": "link-up", "text": "link 3"},
    ]
    assert desk.get("/v1/events?after=0") == desk.get("/v1/events")
    # Numbers begin anew with the controller: a reader sees by ``last`` that its own is of another life.
    assert desk.get("/v1/events?after=99") == {"events": [], "last": 3}


# -- the description


def test_the_description_is_valid_and_complete(desk: Desk) -> None:
    document = desk.get("/v1/openapi.json")
    assert document["openapi"].startswith("3.1")
    validate(document)
    described = {(path, method.upper()) for path, item in document["paths"].items() for method in item}
    served = {
        (rule.rule.replace("<", "{").replace(">", "}"), method)
        for rule in desk.app.url_map.iter_rules()
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


def schema_of(document: dict[str, Any], schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]})


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/v1/health", None),
        ("/v1/vlans", None),
        ("/v1/vlans/20", "/v1/vlans/{vlan_vid}"),
        ("/v1/vns", None),
        ("/v1/vns/10/s1/2", "/v1/vns/{vlan_vid}/{switch}/{port_no}"),
        ("/v1/entries", None),
        ("/v1/events", None),
        ("/v1/vlans/99", "/v1/vlans/{vlan_vid}"),
    ],
)
def test_answers_are_as_described(busy: Desk, path: str, template: str | None) -> None:
    document = busy.get("/v1/openapi.json")
    answer = busy.client.get(path)
    described = document["paths"][template or path]["get"]["responses"][str(answer.status_code)]["content"]
    assert list(described) == [answer.mimetype]
    value = json.loads(answer.text)
    schema_of(document, described[answer.mimetype]["schema"]).validate(value)
    # The schema is not one that accepts anything: without its first member the answer is not as described.
    del value[next(iter(value))]
    with pytest.raises(jsonschema.ValidationError):
        schema_of(document, described[answer.mimetype]["schema"]).validate(value)


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
    schema = schema_of(document, {"$ref": f"#/components/schemas/{name}"})
    path = VN if name == "VnPatch" else VLAN
    assert schema.is_valid(good)
    assert desk.patch(path, good).status_code == 200
    for body in bad:
        assert not schema.is_valid(body), body
        assert desk.patch(path, body).status_code == 422, body


def test_the_greatest_event_number_is_the_described_one(desk: Desk) -> None:
    after, _ = desk.get("/v1/openapi.json")["paths"]["/v1/events"]["get"]["parameters"]
    assert desk.get(f"/v1/events?after={after['schema']['maximum']}")["events"] == []
    problem_of(desk.client.get(f"/v1/events?after={after['schema']['maximum'] + 1}"), 422)


# -- what is changed


def test_a_limit_is_changed_and_the_rest_stays(desk: Desk) -> None:
    before = desk.get("/v1/vns")["vns"]
    desk.now_s = 123.0
    answer = desk.patch(VN, {"receive_limit_bps": 35_000_000})
    assert answer.status_code == 200
    told = {"receive_limit_bps": 35_000_000, "overridden": ["receive_limit_bps"], "revision": 2}
    assert answer.get_json() == {**before[0], **told}
    assert desk.get("/v1/vns")["vns"] == [answer.get_json(), *before[1:]]
    assert desk.changes == 1
    (event,) = desk.get("/v1/events")["events"]
    assert (event["kind"], event["at_s"]) == ("limit-changed", 123.0)


def test_a_send_limit_reaches_the_switch_by_a_meter(desk: Desk) -> None:
    desk.connect()
    desk.central.take_updates()
    assert desk.patch(VN, {"send_limit_bps": 12_345_000, "receive_limit_bps": 20_000_000}).status_code == 200
    update = desk.central.take_updates()[DPID]
    row = desk.central.vns.row_of(10, DPID, 1)
    assert row is not None
    meter_id = desk.central.switches[DPID].send_meter[row]
    assert (update.meter_id, update.rate_kbps, update.flow_adds) == ([meter_id], [12_345], [])


def test_a_lower_receive_limit_is_kept_from_the_next_interval_on(desk: Desk) -> None:
    desk.connect()
    desk.talk(1, 2)
    desk.run([30e6], [0.0], 2)
    assert not desk.get("/v1/vns/10/s1/2")["congested"]
    assert desk.patch("/v1/vns/10/s1/2", {"receive_limit_bps": 20_000_000}).status_code == 200
    desk.run([30e6], [0.0], 1)
    assert desk.get("/v1/vns/10/s1/2")["congested"]
    assert desk.get("/v1/entries")["entries"][0]["limit_bps"] <= 20_000_000


@pytest.mark.parametrize("way", ["send", "receive"])
def test_a_limit_may_fill_the_port_and_no_more(desk: Desk, way: str) -> None:
    free_bps = 50_000_000  # of 100 Mb/s, beside the 50 Mb/s of VLAN 20
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
    assert "the VLAN's algorithm is fp, and only max-min uses ceilings" in problem["errors"][0]["reason"]
    place = {"vlan_vid": 10, "switch": "s1", "port_no": 2}
    many = {"limits": [{**place, "receive_limit_bps": 1_000_000, "receive_ceiling_bps": 90_000_000}]}
    problem = problem_of(desk.client.post("/v1/limits", json=many), 422)
    assert [e["field"] for e in problem["errors"]] == ["limits.0.receive_ceiling_bps"]
    assert desk.fingerprint() == before


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


@pytest.mark.parametrize("bad", ["send_limit_bps", "receive_limit_bps"])
def test_two_limits_are_set_together_or_not_at_all(desk: Desk, bad: str) -> None:
    before = desk.fingerprint()
    body = {"send_limit_bps": 1_000_000, "receive_limit_bps": 1_000_000, bad: 60_000_000}
    assert problem_of(desk.patch(VN, body), 422)["errors"][0]["field"] == bad
    assert desk.fingerprint() == before


def test_an_algorithm_is_changed(desk: Desk) -> None:
    answer = desk.patch(VLAN, {"algorithm": "fe"})
    assert answer.status_code == 200
    assert answer.get_json()["algorithm"] == "fe"
    assert "d" not in answer.get_json()["parameters"]
    assert desk.get(VLAN) == answer.get_json()
    assert desk.get("/v1/vlans/20")["algorithm"] == "fs"
    assert desk.changes == 1
    assert [event["kind"] for event in desk.get("/v1/events")["events"]] == ["algorithm-changed"]


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
    ("-1", -1, "outside 1k to 4.295T"),
    ("0", 0, "outside 1k to 4.295T"),
    ("999", 999, "outside 1k to 4.295T"),
    ("4294967296000", 4_294_967_296_000, "outside 1k to 4.295T"),
    ("1" + "0" * 30, "1" + "0" * 30, "outside 1k to 4.295T"),
    ("1.5", 1.5, "whole number"),
    ("40000000.0", 40e6, "whole number"),
    ("4e7", 40e6, "whole number"),
    ('"40M"', "40M", "whole number"),
    ('"40000000"', "40000000", "whole number"),
    ("true", True, "whole number"),
    ("null", None, "whole number"),
    ("NaN", "NaN", "whole number"),
    ("Infinity", "Infinity", "whole number"),
    ("-Infinity", "-Infinity", "whole number"),
    ("1e999", "Infinity", "whole number"),
    ("[40000000]", "[40000000]", "whole number"),
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
        ({"rate": 5}, ["rate"]),
        ({"send_limit_bps": 1_000_000, "Receive_limit_bps": 1_000_000}, ["Receive_limit_bps"]),
        ({"send_limit_bps": 1.5, "receive_limit_bps": "x"}, ["send_limit_bps", "receive_limit_bps"]),
        ([], ["body"]),
        ([{"send_limit_bps": 1_000_000}], ["body"]),
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


def test_an_unknown_field_is_told_the_known_ones(desk: Desk) -> None:
    problem = problem_of(desk.patch(VN, {"rate": 5}), 422)
    assert "send_limit_bps, receive_limit_bps" in problem["errors"][0]["reason"]


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ('{"algorithm": "xx"}', "algorithm", "fs, sp, fp, fe"),
        ('{"algorithm": null}', "algorithm", "fs, sp, fp, fe"),
        ('{"algorithm": 5}', "algorithm", "fs, sp, fp, fe"),
        ('{"algorithm": ["fp"]}', "algorithm", "fs, sp, fp, fe"),
        ('{"algorithm": NaN}', "algorithm", "fs, sp, fp, fe"),
        ('{"parameters": {"x": 1}}', "parameters.x", "d, inflation, floor"),
        ('{"algorithm": "fs", "parameters": {"d": 2}}', "parameters.d", "takes: none"),
        ('{"parameters": {"d": 1}}', "parameters.d", "above 1"),
        ('{"parameters": {"d": 1e6}}', "parameters.d", "at most 1000"),
        ('{"parameters": {"d": "2"}}', "parameters.d", "number"),
        ('{"parameters": {"d": true}}', "parameters.d", "number"),
        ('{"parameters": {"d": null}}', "parameters.d", "number"),
        ('{"parameters": {"d": NaN}}', "parameters.d", "number"),
        ('{"parameters": {"d": %s}}' % ("9" * 400), "parameters.d", "larger"),
        ('{"parameters": null}', "parameters", "object"),
        ('{"parameters": [2]}', "parameters", "object"),
        ('{"weight": 0}', "weight", "above 0"),
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
        (b'{"send_limit_bps": %s}' % (b"9" * 5000), "5000 digits"),
    ],
)
@pytest.mark.parametrize("path", [VN, VLAN])
def test_broken_json_is_refused(desk: Desk, path: str, body: bytes, detail: str) -> None:
    before = desk.fingerprint()
    assert detail in problem_of(desk.send(path, body), 400)["detail"]
    assert desk.fingerprint() == before


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/merge-patch+json"]
)
def test_another_content_type_is_refused(desk: Desk, content_type: str | None) -> None:
    before = desk.fingerprint()
    problem = problem_of(desk.send(VN, b'{"send_limit_bps": 1000000}', content_type), 415)
    assert "application/json" in problem["detail"]
    assert desk.fingerprint() == before


def test_a_charset_is_no_other_content_type(desk: Desk) -> None:
    answer = desk.send(VN, b'{"send_limit_bps": 1000000}', "application/json; charset=utf-8")
    assert answer.status_code == 200


def test_the_longest_body_and_one_byte_more(desk: Desk) -> None:
    body = b'{"send_limit_bps": 1000000}'
    before = desk.fingerprint()
    problem = problem_of(desk.send(VN, body.rjust(MAX_BODY_BYTES + 1)), 413)
    assert "64 KiB" in problem["detail"]
    assert problem_of(desk.send(VN, body.rjust(10 * MAX_BODY_BYTES)), 413)
    assert desk.fingerprint() == before
    assert desk.send(VN, body.rjust(MAX_BODY_BYTES)).status_code == 200


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
        ("/v1/entries?switch=s9", 404, "switch"),
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
    assert "/v1/openapi.json" in problem_of(desk.client.get(path), 404)["detail"]


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
    problem_of(answer, 405)
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
    def fail() -> None:
        raise error

    monkeypatch.setattr(desk, "_changed", fail)
    desk.app = create_app(desk.central, lambda: 0.0, lambda: fail() or {}, fail)
    client = desk.app.test_client()
    for answer in (client.get("/v1/health"), client.patch(VN, json={"send_limit_bps": 1_000_000})):
        with caplog.at_level(logging.ERROR):
            problem = problem_of(answer, 500)
        assert "secret" not in answer.text
        assert "log" in problem["detail"]
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert logged == [error, error]


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


# -- over a socket

SERVED = """\
import eventlet
eventlet.monkey_patch()
import socket, sys
from eventlet import tpool
from apps.rest import create_app, serve
from controller.central.controller import CentralController
from controller.config.load import parse_config
central = CentralController(parse_config(sys.argv[1]))
app = create_app(central, lambda: 0.0, lambda: {"status": "ready", "switches": {}}, lambda: None)
server = serve(app, sys.argv[2], 0)
print(server.port, flush=True)
tpool.execute(sys.stdin.readline)
server.stop()
eventlet.sleep(0)
try:
    socket.create_connection((sys.argv[2], server.port))
except ConnectionRefusedError:
    print("refused", flush=True)
"""


def start(host: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-c", SERVED, CONFIG, host]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate("stop\n", timeout=30)
    finally:
        process.kill()


def exchange(port: int, request: bytes) -> tuple[int, str, bytes]:
    """Send the bytes of one request; return status, content type and body of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.headers.get_content_type(), answer.read()


def chunked(body: bytes) -> bytes:
    fields = "Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
    head = f"PATCH {VN} HTTP/1.1\r\n{fields}\r\n\r\n"
    return head.encode() + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def test_served_over_a_socket() -> None:
    process = start("127.0.0.1")
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        url = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{url}/v1/vlans/20", timeout=20) as answer:
            assert answer.headers["Content-Type"] == "application/json"
            assert json.load(answer)["name"] == "vlan20"
        headers = {"Content-Type": "application/json"}
        good = urllib.request.Request(url + VN, b'{"send_limit_bps": 2000000}', headers, method="PATCH")
        with urllib.request.urlopen(good, timeout=20) as answer:
            assert json.load(answer)["send_limit_bps"] == 2_000_000
        bad = urllib.request.Request(url + VN, b'{"send_limit_bps": 2.5}', headers, method="PATCH")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(bad, timeout=20)
        with caught.value as error:
            assert (error.code, error.headers["Content-Type"]) == (422, "application/problem+json")
            assert json.load(error)["errors"][0]["value"] == 2.5

        body = b'{"send_limit_bps": 3000000}'
        assert exchange(port, chunked(body.rjust(MAX_BODY_BYTES)))[0] == 200
        problem = "application/problem+json"
        # Cut off after the limit this body would be good JSON: it must not be taken for it.
        tail = b'{"send_limit_bps": 4000000}'.ljust(MAX_BODY_BYTES + 1) + b"x"
        assert exchange(port, chunked(tail))[:2] == (413, problem)
        assert exchange(port, chunked(body).replace(b"1b\r\n", b"zz\r\n"))[:2] == (400, problem)
        status, kind, text = exchange(port, b"rubbish\r\n\r\n")
        assert (status, kind, json.loads(text)["status"]) == (400, problem, 400)
        with urllib.request.urlopen(url + VN, timeout=20) as answer:
            assert json.load(answer)["send_limit_bps"] == 3_000_000
    finally:
        out, err = stop(process)
    assert (out.strip(), err, process.returncode) == ("refused", "", 0)


def test_ports_show_what_they_carry_and_what_is_promised(desk: Desk) -> None:
    ports = desk.get("/v1/ports")["ports"]
    configured = list(desk.central.config.ports())
    assert [(port["switch"], port["port_no"]) for port in ports] == [(s.name, port.port_no) for s, port in configured]
    for port, (_, described) in zip(ports, configured, strict=True):
        assert port["receive_limits_bps"] == sum(vn.receive_limit_bps for vn in described.vns)
        assert port["send_limits_bps"] == sum(vn.send_limit_bps for vn in described.vns)
        assert port["capacity_bps"] == described.capacity_bps
        assert port["sent_bps"] is None  # nothing was read yet
