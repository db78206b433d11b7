"""REST: switches, links, series, the session, filters, and the stream as columns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.rest_in_process import INTERVAL_S, VN, Desk, problem_of

from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.monitoring.time_series import SERIES_COLUMNS


@pytest.fixture
def watched(busy: Desk) -> Desk:
    """Hosts at ports 1 and 3 have sent 30 and 20 Mb/s to the one at port 2 for three seconds."""
    desk = busy
    desk.service.observer.series.vn_series(desk.central.vns, int(desk.central.vns.row_of(10, 0xA1, 2) or 0), desk.now_s)
    for _ in range(60):
        desk.run([30e6, 20e6], [0.0, 0.0], 1)
        desk.service.observer.on_round_end(desk.now_s)
    return desk


def frames(desk: Desk, query: str) -> list[tuple[str, Any]]:
    text = desk.client.get(f"/v1/stream?count=1{query}").text
    found = []
    for frame in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.splitlines())
        found.append((fields["event"], json.loads(fields["data"])))
    return found


def test_switches_with_their_role_and_state(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    health = {"status": "degraded", "switches": {"s1": "ready"}, "faults": {"s1": ["refuses meters"]}}
    monkeypatch.setattr(desk.service, "health", lambda: health)
    first, second = desk.get("/v1/switches")["switches"]
    assert (first["switch"], first["dpid"], first["role"]) == ("s1", "00000000000000a1", "edge")
    assert (first["state"], first["faults"], first["edge_ports"], first["vns"]) == ("ready", ["refuses meters"], 3, 5)
    assert first["capacity_bps"] == 1_200_000_000
    assert second["state"] == "disconnected"
    pages = [[one["switch"] for one in page["switches"]] for page in desk.pages("/v1/switches", 1)]
    assert pages == [["s1"], ["s2"]]


def test_links_that_were_found_have_no_capacity_and_no_promise(desk: Desk) -> None:
    assert desk.get("/v1/links")["links"] == []
    desk.connect()
    desk.connect(0xA2)
    for ends in ((PortId(0xA1, 9), PortId(0xA2, 8)), (PortId(0xA2, 8), PortId(0xA1, 9))):
        desk.central.on_discovery_frame(*ends, desk.now_s)
    desk.service.observer.on_round_end(desk.now_s)
    (link,) = desk.get("/v1/links")["links"]
    assert (link["a"]["switch"], link["a"]["port_no"], link["b"]["switch"], link["b"]["port_no"]) == ("s1", 9, "s2", 8)
    assert (link["up"], link["capacity_bps"], link["admissible_bps"]) == (True, None, None)
    assert link["up_since"] is not None
    assert link["a_to_b"] == link["b_to_a"] == {"committed_bps": None, "load_bps": None}


def test_series_of_a_vlan_and_of_a_vn(watched: Desk) -> None:
    for query in ("vlan=10", "vn=10/s1/2"):
        series = watched.get(f"/v1/series?{query}")
        assert len(series["at"]) == 3
        assert set(series["mean"]) == set(series["max"]) == set(SERIES_COLUMNS)
        assert series["mean"]["offered"][-1] == pytest.approx(50e6, rel=0.01)
        assert series["at"][-1] - series["at"][0] == pytest.approx(2 * 19 * INTERVAL_S, abs=0.01)
    assert watched.get("/v1/series?vn=10/s1/2")["receive_limit_bps"] == [40_000_000] * 3


def test_marks_losses_and_bottlenecks_of_vns_are_those_of_what_is_sent_to_them(watched: Desk) -> None:
    silent = {"marked_share": None, "lost_share": None, "bottleneck": None}
    assert watched.get("/v1/vns/10/s1/2").items() >= silent.items()  # its policy reports nothing of the kind
    assert watched.patch("/v1/vlans/10", {"algorithm": "seawall"}).status_code == 200
    for vn in ("10/s1/1", "10/s1/2", "10/s1/3"):
        assert (
            watched.patch(f"/v1/vns/{vn}", {"send_ceiling_bps": 10**8, "receive_ceiling_bps": 10**8}).status_code == 200
        )
    watched.run([60e6, 50e6], [0.0, 0.0], 20)  # so long do rates take to rise
    entries = {one["sender"]["port_no"]: one for one in watched.get("/v1/pairs?vlan=10")["pairs"]}
    assert {one["bottleneck"] for one in entries.values()} == {"link s1:2 (receiving)"}
    passed, marked = ([entries[port][name] for port in (1, 3)] for name in ("offered_bps", "marked_share"))
    share = sum(bps * part for bps, part in zip(passed, marked, strict=True)) / sum(passed)
    assert share > 0.05
    vn = watched.get("/v1/vns/10/s1/2")
    assert vn["marked_share"] == pytest.approx(share, abs=1e-3)
    assert (vn["lost_share"], vn["bottleneck"]) == (None, "link s1:2 (receiving)")
    assert watched.get("/v1/vns/10/s1/1").items() >= silent.items()  # nobody sends to it
    watched.service.observer.on_round_end(watched.now_s)
    (_, keys), (_, state) = frames(watched, "&vlan=10")
    shown = [dict(zip(keys["columns"], row, strict=True)) for row in zip(*state["rows"], strict=True)]
    assert shown[1]["marked"] / shown[1]["received"] == pytest.approx(share, abs=0.03)
    assert (shown[1]["lost"], shown[0]["marked"]) == (None, None)
    assert state["bottlenecks"] == [None, "link s1:2 (receiving)", None, None]
    (_, keys), (_, state) = frames(watched, "")
    marked, lost = (state["rows"][keys["columns"].index(name)] for name in ("marked", "lost"))
    assert (marked, lost) == ([shown[1]["marked"], None], [None, None])


@pytest.mark.parametrize(
    ("query", "status"),
    [("", 422), ("?vlan=10&vn=10/s1/2", 422), ("?vlan=99", 404), ("?vn=10/s9/2", 404), ("?vn=somewhere", 404)],
)
def test_series_of_nothing(desk: Desk, query: str, status: int) -> None:
    problem_of(desk.client.get(f"/v1/series{query}"), status)


def test_the_session_without_tokens(desk: Desk) -> None:
    session = desk.get("/v1/session")
    assert (session["who"], session["scope"], session["authentication"]) == ("anonymous", "write", "none")
    assert session["interval_ms"] == 55


def test_events_by_kind_vlan_and_switch(watched: Desk) -> None:
    watched.central.note(EventKind.SWITCH_UP, "s2 is up", watched.now_s, dpid=0xA2)
    kinds = {event["kind"] for event in watched.get("/v1/events")["events"]}
    assert {"congestion-began", "switch-up"} <= kinds
    (began,) = watched.get("/v1/events?kind=congestion-began&vlan=10&switch=s1")["events"]
    assert (began["vlan_vid"], began["switch"], began["port_no"]) == (10, "s1", 2)
    (up,) = watched.get("/v1/events?switch=s2")["events"]
    assert (up["kind"], up["vlan_vid"], up["severity"]) == ("switch-up", None, "info")
    assert watched.get("/v1/events?vlan=20")["events"] == []
    for query, status in (("kind=nothing", 422), ("vlan=blue", 404), ("vlan=", 404), ("switch=", 422)):
        problem_of(watched.client.get(f"/v1/events?{query}"), status)
    assert watched.get("/v1/events?vlan=tenant-a") == watched.get("/v1/events?vlan=10")
    assert watched.get("/v1/events?vlan=4000")["events"] == []  # it may have been configured before


def test_changes_of_a_vlan_and_of_a_vn(desk: Desk) -> None:
    desk.patch(VN, {"send_limit_bps": 30_000_000})
    desk.patch("/v1/vns/10/s1/2", {"send_limit_bps": 30_000_000})
    desk.patch("/v1/vlans/20", {"weight": 3})

    def revisions(query: str) -> list[int]:
        return [change["revision"] for change in desk.get(f"/v1/history{query}")["changes"]]

    assert revisions("") == [4, 3, 2, 1]
    assert revisions("?vlan=10") == [3, 2]
    assert revisions("?vlan=20") == [4]
    assert revisions("?vlan=10&switch=s1&port=1") == [2]
    assert revisions("?vlan=tenant-a&switch=s1&port=s1-1") == [2]
    problem_of(desk.client.get("/v1/history?vlan=10&switch=s1&port=nosuch"), 404)
    assert revisions("?vlan=10&switch=s2") == []
    problem_of(desk.client.get("/v1/history?switch=s1"), 422)
    short = desk.get("/v1/history?vlan=10&limit=1")
    assert short["changes"] == []  # the newest is of another VLAN: the next page goes on
    assert short["next"] is not None


def test_only_vns_that_miss_their_guarantee(watched: Desk) -> None:
    assert watched.get("/v1/vns?violated=true")["vns"] == []
    row = int(watched.central.vns.row_of(10, 0xA1, 2) or 0)
    watched.central.fabric.guarantees.violated[row] = True
    assert [vn["port_no"] for vn in watched.get("/v1/vns?violated=true")["vns"]] == [2]
    for picked, violated in (("", [1, 0]), ("&vlan=10", [1]), ("&vlan=20", [])):
        state = frames(watched, picked)[1][1]
        assert (state["violated"], state["violated_vns"]) == (violated, 1)


def test_columns_of_all_vlans(watched: Desk) -> None:
    (first, keys), (second, state) = frames(watched, "")
    assert (first, second) == ("keys", "state")
    assert keys["columns"][: len(SERIES_COLUMNS)] == list(SERIES_COLUMNS)
    assert keys["vlans"] == [[10, "tenant-a"], [20, "vlan20"]]
    assert state["rows"][SERIES_COLUMNS.index("offered")] == [50_000, 0]
    assert (state["congested"], state["violated"], state["violated_vns"]) == ([1, 0], [0, 0], 0)
    assert (state["revision"], state["installed_revision"]) == (1, 1)
    assert len(state["ports"][0]) == len(keys["ports"]) == 4


def test_columns_of_a_vlan_and_the_pairs_of_a_receiver(watched: Desk) -> None:
    (_, keys), (_, state) = frames(watched, "&vlan=10&pairs_of=10/s1/2")
    assert keys["vns"] == [[10, "s1", 1], [10, "s1", 2], [10, "s1", 3], [10, "s2", 7]]
    offered = state["rows"][SERIES_COLUMNS.index("offered")]
    assert offered == [0, 50_000, 0, None]  # s2 is not connected
    assert state["congested"] == [1]
    assert [pair["sender"]["port_no"] for pair in state["pairs"]] == [1, 3]


@pytest.mark.parametrize("query", ["form=columns", "receiver=10/s1/2"])
def test_streams_that_are_none(desk: Desk, query: str) -> None:
    problem_of(desk.client.get(f"/v1/stream?{query}"), 422)
