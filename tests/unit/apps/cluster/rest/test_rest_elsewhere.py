"""REST on a node of several: answers for the whole fabric, changes that go to the active node, one hop no further."""

from __future__ import annotations

import json
from functools import cache
from itertools import permutations
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rest_in_process import DPID, OTHER_DPID, VN, Desk

from apps.cluster.rest.cluster_state import merge_states
from apps.cluster.rest.node_client import FORWARDED_HEADER, NodeResponse, Nodes
from apps.cluster.rest.request_forwarding import RequestForwarder
from apps.rest.resources.pagination import make_cursor, read_cursor
from apps.settings.errors import StoreError
from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable
from controller.forwarding.pairs import Host
from controller.limits.overrides import VnName

OWNERS = {"s1": "n1", "s2": "n2"}
LAST = "/v1/vns/10/s2/7"


class Between:
    """What stands for HTTP between nodes in one process. Those in ``dead`` do not answer."""

    def __init__(self, **desks: Desk) -> None:
        self.desks, self.dead = desks, set[str]()
        self.asked: list[tuple[str, str, str]] = []
        self.clients: list[str] = []

    def ask(
        self, url: str, method: str, target: str, headers: Any, body: Any = None, limit_s: float = 1.0
    ) -> NodeResponse:
        if url in self.dead:
            raise OSError("nobody is there")
        self.asked.append((url, method, target))
        self.clients.append(headers["X-Forwarded-For"])
        kept = {name: headers[name] for name in ("If-Match", "Content-Type") if name in headers}
        answer = self.desks[url].client.open(target, method=method, data=body, headers={**kept, FORWARDED_HEADER: "n"})
        return NodeResponse(answer.status_code, list(answer.headers.items()), answer.data)

    def gather(self, urls: Any, target: str, headers: Any) -> dict[str, NodeResponse | None]:
        return {name: None if name in self.dead else self.ask(name, "GET", target, headers) for name in urls}


class Two:
    """Two nodes with the same configuration: n1 has s1 and is active, n2 has s2."""

    def __init__(self) -> None:
        self.n1, self.n2 = Desk(), Desk()
        self.between = Between(n1=self.n1, n2=self.n2)
        for name, desk in self.between.desks.items():
            urls = {other: other for other in self.between.desks if other != name}
            active = None if name == "n1" else ("n1", "n1")
            nodes = Nodes(name, urls, OWNERS, active, self.between)  # type: ignore[arg-type]
            desk.service.remote_nodes = RequestForwarder(lambda nodes=nodes: nodes)


@pytest.fixture
def two() -> Two:
    two = Two()
    two.n1.connect()
    two.n1.talk(1, 2)
    two.n1.talk(3, 2)
    two.n1.run([30e6, 20e6], [0.0, 0.0], 1)
    return two


def test_every_node_answers_for_the_whole_fabric(two: Two) -> None:
    assert two.n2.get("/v1/pairs") == two.n1.get("/v1/pairs")
    assert len(two.n2.get("/v1/pairs")["pairs"]) == 2
    for path in (VN, "/v1/ports/s1/1", "/v1/vns/10/s1/2/explanations"):
        assert two.n2.get(path) == two.n1.get(path), path
    assert two.n2.get("/v1/vns/10/s1/2")["measured_receive_bps"] == pytest.approx(50e6, rel=0.1)
    assert two.n2.get("/v1/vns/10/s1/2/explanations")["pair_count"] == 2
    of_pair = "/v1/pairs/10/s1/1/s1/2/explanation"
    assert two.n2.get(of_pair) == two.n1.get(of_pair)
    assert "unreachable_nodes" not in two.n2.get("/v1/vns")


def test_other_nodes_are_told_whose_request_it_is(two: Two) -> None:
    sent = {"headers": {"X-Forwarded-For": "1.2.3.4"}, "environ_base": {"REMOTE_ADDR": "198.51.100.7"}}
    assert two.n2.client.patch(VN, json={"send_limit_bps": 30_000_000}, **sent).status_code == 200
    assert two.n2.client.get("/v1/pairs", **sent).status_code == 200
    assert two.between.clients == ["198.51.100.7", "198.51.100.7"]


def test_every_node_says_of_each_host_what_its_own_node_knows() -> None:
    """Two nodes that do not agree where a host is: n2, whose switch it is behind now, knows it since later."""
    two, moved = Two(), Host(10, 0x02_00_00_00_00_0A)
    for at, desk in enumerate((two.n1, two.n2)):
        desk.service.epoch_s = 0.0
        desk.central.fabric.learn(moved, PortId(DPID, 1), 100.0 + at)
    two.n2.central.fabric.learn(moved, PortId(OTHER_DPID, 7), 120.0)
    two.n1.central.fabric.learn(Host(10, 2), PortId(DPID, 2), 101.0)
    two.n2.central.fabric.learn(Host(10, 2), PortId(DPID, 2), 130.0)
    two.n2.central.fabric.learn(Host(10, 4), PortId(OTHER_DPID, 7), 102.0)
    for desk in (two.n1, two.n2):
        answer = desk.get("/v1/hosts")
        assert [(one["mac"], one["vlan_vid"], f"{one['switch']}:{one['port_no']}") for one in answer["hosts"]] == [
            ("00:00:00:00:00:02", 10, "s1:2"),
            ("00:00:00:00:00:04", 10, "s2:7"),
            ("02:00:00:00:00:0a", 10, "s2:7"),
        ]
        times = [one["since"][11:19] for one in answer["hosts"]]
        assert times == ["00:01:41", "00:01:42", "00:02:00"]
        assert "unreachable_nodes" not in answer
        assert desk.get("/v1/hosts/02:00:00:00:00:0a")["hosts"] == answer["hosts"][2:]
        first = desk.get("/v1/hosts?limit=1")
        rest = desk.get(f"/v1/hosts?limit=9&cursor={first['next']}")
        assert first["hosts"] + rest["hosts"] == answer["hosts"]
    two.between.dead.add("n2")
    assert two.n1.get("/v1/hosts")["unreachable_nodes"] == ["n2"]
    assert two.n1.get("/v1/hosts/02:00:00:00:00:0a")["unreachable_nodes"] == ["n2"]


def test_messages_to_senders_add_up_whoever_decided_for_their_receiver(two: Two) -> None:
    """The owner of a VN's switch, and the node that decides for the whole network: which that is may change."""
    for desk, count in ((two.n1, 3.0), (two.n2, 1.0)):
        desk.central.fabric.notifications[desk.service.settings.file.row_of[VnName(10, "s2", 7)]] = count
    for desk in (two.n1, two.n2):
        assert desk.get(LAST)["notifications"] == 4
        assert [one["notifications"] for one in desk.get("/v1/vns")["vns"]].count(4) == 1


def test_a_page_of_one_goes_with_the_same_page_of_the_others(two: Two) -> None:
    first = two.n2.get("/v1/vns?limit=2")
    second = two.n2.get(f"/v1/vns?limit=9&cursor={first['next']}")
    listed = first["vns"] + second["vns"]
    assert second["next"] is None
    assert [(one["vlan_vid"], one["switch"], one["port_no"]) for one in listed] == [
        tuple(name) for name in two.n1.service.settings.file.names
    ]
    assert listed == two.n1.get("/v1/vns")["vns"]


def test_nodes_that_do_not_answer_are_named_and_what_is_known_is_shown(two: Two) -> None:
    two.between.dead.add("n1")
    for path in ("/v1/vns", "/v1/pairs", "/v1/ports", "/v1/switches", "/v1/links", VN, "/v1/ports/s1/1"):
        assert two.n2.get(path)["unreachable_nodes"] == ["n1"], path
    assert two.n2.get(VN)["send_limit_bps"] == 40_000_000
    assert two.n2.get(VN)["measured_send_bps"] is None
    assert two.n2.client.get("/v1/pairs/10/s1/1/s1/2/explanation").status_code == 504


def test_a_change_is_in_force_once_it_is_on_the_switches_of_all_nodes(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(revision: int, installed: int, unconfirmed: list[str], away: list[str]) -> dict[str, Any]:
        waited_for = {"unconfirmed_switches": unconfirmed, "disconnected_switches": away}
        return {"revision": revision, "installed_revision": installed, **waited_for}

    said = {"n1": status(9, 9, [], ["s2", "s3"]), "n2": status(8, 7, ["s2"], ["s1", "s3"])}
    for name, desk in two.between.desks.items():
        monkeypatch.setattr(desk.service, "revision_status", lambda revision, name=name: said[name])
    whole = status(9, 7, ["s2"], ["s3"])
    assert two.n1.get("/v1/revision") == whole
    assert two.n2.get("/v1/revision") == whole | {"revision": 8}
    two.between.dead.add("n2")  # which has s2
    assert two.n1.get("/v1/revision") == said["n1"] | {"disconnected_switches": ["s3"], "unreachable_nodes": ["n2"]}


def test_a_request_goes_one_hop_and_no_further(two: Two) -> None:
    for path in ("/v1/vns", "/v1/pairs/10/s1/1/s1/2/explanation"):
        two.n2.client.get(path, headers={FORWARDED_HEADER: "n1"})
    assert two.between.asked == []
    two.n2.get("/v1/vns?vlan=10")
    assert two.between.asked == [("n1", "GET", "/v1/vns?vlan=10")]


def test_what_has_gone_wrong_here_is_not_asked_elsewhere(two: Two) -> None:
    assert two.n2.client.get("/v1/vns/10/s9/1").status_code == 404
    assert two.n2.client.get("/v1/vns?limit=0").status_code == 422
    assert two.between.asked == []


def test_a_list_of_other_things_is_left_out(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"n1": NodeResponse(200, [], b'{"switches": ["s1"], "next": null}')}
    monkeypatch.setattr(two.between, "gather", lambda *_: found)
    assert two.n2.get("/v1/switches")["unreachable_nodes"] == ["n1"]


@pytest.mark.parametrize("said", [[], {}, {"vns": None}, {"vns": [{}], "next": None}, "nothing"])
def test_answers_of_another_version_are_left_out(two: Two, monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    found = {"n1": NodeResponse(200, [], json.dumps(said).encode())}
    monkeypatch.setattr(two.between, "gather", lambda *_: found)
    answer = two.n2.get("/v1/vns")
    assert answer["unreachable_nodes"] == ["n1"]
    assert len(answer["vns"]) == len(two.n2.central.vns)


def test_changes_on_any_node_are_made_by_the_active_one(two: Two) -> None:
    answer = two.n2.client.patch(LAST, json={"send_limit_bps": 20_000_000}, headers={"If-Match": '"1"'})
    assert (answer.status_code, answer.get_etag()) == (200, ("2", False)), answer.text
    assert two.n1.get("/v1/revision")["revision"] == 2
    assert two.n2.get("/v1/revision")["revision"] == 1  # until etcd says so
    refused = two.n2.client.patch(LAST, json={"send_limit_bps": 20_000_000}, headers={"If-Match": '"1"'})
    assert refused.status_code == 412
    assert two.n2.client.patch(LAST, json={"send_limit_bps": -1}).status_code == 422
    assert two.n2.client.patch(LAST, data=b"{").status_code == 415  # before it is passed on
    assert two.n2.client.delete("/v1/overrides", headers={"If-Match": "*"}).status_code == 200
    two.between.asked.clear()
    assert two.n2.client.post("/v1/reload").status_code == 422  # a file of its own
    assert two.between.asked == []


def test_a_change_without_an_answer_may_have_been_made(two: Two) -> None:
    two.between.dead.add("n1")
    refused = two.n2.client.patch(VN, json={"send_limit_bps": 20_000_000})
    assert (refused.status_code, refused.get_json()["type"]) == (504, "urn:dets:problem:no-answer")
    assert "may have been made" in refused.get_json()["detail"]


def test_a_change_that_nobody_got_is_answered_here(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NodeResponse:
        raise ConnectionRefusedError

    def fail(*_: Any, **__: Any) -> None:
        raise StoreError("make changes at n1")

    monkeypatch.setattr(two.between, "ask", refuse)
    monkeypatch.setattr(type(two.n2.service.settings), "change_vns", fail)
    refused = two.n2.client.patch(VN, json={"send_limit_bps": 20_000_000})
    assert (refused.status_code, "make changes at n1" in refused.get_json()["detail"]) == (503, True)


def test_the_live_state_is_of_the_whole_fabric(two: Two) -> None:
    for desk in (two.n1, two.n2):
        desk.service.observer.traffic.mean_bps[:, 2] = 8e3  # VLAN 10 at s1:2
    for query in ("", "&vlan=10"):
        path = f"/v1/stream?count=1{query}"
        states = [desk.client.get(path).get_data(as_text=True) for desk in (two.n1, two.n2)]
        whole = [json.loads(text.rpartition("\ndata: ")[2]) for text in states]
        assert "unreachable_nodes" not in whole[0]
        for state in whole:
            state.pop("at")
        assert whole[0] == whole[1]
    assert {row[1] for row in whole[1]["rows"]} == {16}
    two.between.dead.add("n1")
    two.n2.now_s += 1.0
    assert '"unreachable_nodes"' in two.n2.client.get(path).get_data(as_text=True)


@cache
def asked_for_pages() -> Desk:
    return Desk()


PAIRS = list(permutations([("s1", 1), ("s1", 2), ("s2", 7)], 2))


@settings(derandomize=True, max_examples=60, deadline=None)
@given(owner=st.lists(st.integers(0, 3), min_size=len(PAIRS), max_size=len(PAIRS)), limit=st.integers(1, 4))
def test_pages_of_any_size_list_every_pair_of_all_nodes_once(owner: list[int], limit: int) -> None:
    desk = asked_for_pages()
    row_of = desk.service.settings.file.row_of
    names = {(name.switch, name.port_no): row for name, row in row_of.items() if name.vlan_vid == 10}
    pairs = sorted(PAIRS, key=lambda pair: (names[pair[1]], names[pair[0]]))

    class Paging(Between):
        def gather(self, urls: Any, target: str, headers: Any) -> dict[str, NodeResponse | None]:
            cursor = parse_qs(urlsplit(target).query).get("cursor", [""])[0]
            key = read_cursor(cursor, int, str, int, str, int)
            behind = 0 if key is None else pairs.index(((key[1], key[2]), (key[3], key[4]))) + 1
            return {name: self.page(int(name), behind) for name in urls}

        def page(self, node: int, behind: int) -> NodeResponse:
            left = [pair for pair, own in zip(pairs[behind:], owner[behind:], strict=True) if own == node]
            entries = [
                {"vlan_vid": 10, **{end: {"switch": at[0], "port_no": at[1]} for end, at in ends}}
                for ends in (zip(("sender", "receiver"), pair, strict=True) for pair in left[:limit])
            ]
            more = make_cursor(10, *left[limit - 1][0], *left[limit - 1][1]) if len(left) > limit else None
            said = {"pairs": entries, "unmetered_pairs": [], "next": more}
            return NodeResponse(200, [], json.dumps(said).encode())

    nodes = Nodes("4", {str(one): "" for one in range(4)}, OWNERS, None, Paging())  # type: ignore[arg-type]
    desk.service.remote_nodes = RequestForwarder(lambda: nodes)
    listed = []
    for page in desk.pages("/v1/pairs", limit):
        assert len(page["pairs"]) <= limit
        listed += [
            tuple((one[end]["switch"], one[end]["port_no"]) for end in ("sender", "receiver")) for one in page["pairs"]
        ]
    assert listed == pairs


def test_states_that_do_not_go_together_are_not_added_up(two: Two) -> None:
    vns: VnTable = two.n1.central.vns
    state = {"status": "ready", "unconfirmed_switches": [], "disconnected_switches": [], "rows": [[1, None]]}
    state |= {"congested": [0], "violated": [0], "violated_vns": 1, "bottlenecks": [None, "link s1:2"]}
    whole = merge_states(
        [state, state | {"rows": [[None, None]], "congested": [1], "status": "degraded", "bottlenecks": ["here", None]}]
    )
    assert (whole["rows"], whole["congested"], whole["status"]) == ([[1, None]], [0, 1], "degraded")
    assert (whole["violated"], whole["violated_vns"]) == ([0], 2)
    assert whole["bottlenecks"] == ["here", "link s1:2"]
    with pytest.raises(ValueError, match="zip"):
        merge_states([state, state | {"rows": [[1, 2, len(vns)]]}])
