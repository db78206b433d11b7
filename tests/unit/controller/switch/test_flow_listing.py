"""What a switch lists of its entries, and what has changed of that since the last time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import ProtocolError
from controller.forwarding.desired_flows import flow_key
from controller.forwarding.pipeline import OWN_COOKIE
from controller.openflow.actions import Output
from controller.openflow.constants import FlowModCommand
from controller.openflow.flows import Flow, encode_flow_mods, list_entries
from controller.openflow.match import Match
from controller.switch import flow_listing
from controller.switch.flow_listing import FlowListing, SharedEntries
from experiments.switch.datapath import Datapath


def flow(port: int, *, priority: int = 5, cookie: int = OWN_COOKIE, out: int = 9, idle_s: int = 0) -> Flow:
    return Flow(0, priority, Match(in_port=port), cookie, idle_s, actions=(Output(out),))


FLOWS = [flow(port) for port in (1, 2, 3)]


def stats(flows: list[Flow], *, age_s: float = 0.0, hits: int = 0) -> bytes:
    datapath = Datapath(1)
    datapath.receive(encode_flow_mods([(FlowModCommand.ADD, flow) for flow in flows], 1), 0.0)
    for entry in datapath.tables._entries[0].values():
        for _ in range(hits):
            datapath.tables.hit(entry, 100, 0.0)
    reported = datapath.tables.counters
    return b"".join(datapath.tables.stats(list(datapath.tables._entries[0].values()), reported, age_s))


def test_ages_and_counters_do_not_matter() -> None:
    listing = FlowListing(SharedEntries())
    assert stats(FLOWS) != stats(FLOWS, age_s=9.5, hits=3)
    assert listing.read(stats(FLOWS)) == {flow_key(one) for one in FLOWS}
    assert listing.read(stats(FLOWS, age_s=9.5, hits=3)) == set()
    assert list(listing.own.values()) == FLOWS


@pytest.mark.parametrize(
    "changed", [flow(3, out=8), flow(3, priority=6), flow(3, cookie=OWN_COOKIE | 1), flow(3, idle_s=60), None]
)
def test_anything_else_does(changed: Flow | None) -> None:
    listing = FlowListing(SharedEntries())
    listing.read(stats(FLOWS))
    other = [*FLOWS[:2], *([] if changed is None else [changed])]
    keys = {flow_key(FLOWS[2])} | ({flow_key(changed)} if changed else set())
    assert listing.read(stats(other)) == keys
    assert listing.own == {flow_key(one): one for one in other}


def test_entries_of_others_are_not_listed() -> None:
    listing = FlowListing(SharedEntries())
    assert listing.read(stats([flow(1, cookie=7)])) == set()
    assert listing.read(stats([])) == set()
    assert listing.own == {}


def test_an_entry_that_is_taken_over_by_somebody_else_is_gone() -> None:
    listing = FlowListing(SharedEntries())
    listing.read(stats(FLOWS))
    assert listing.read(stats([*FLOWS[:2], flow(3, cookie=7)])) == {flow_key(FLOWS[2])}
    assert flow_key(FLOWS[2]) not in listing.own


@given(st.lists(st.lists(st.builds(flow, st.integers(1, 4), out=st.integers(5, 6)), max_size=4), max_size=5))
def test_after_any_changes_the_listing_is_what_was_listed_last(rounds: list[list[Flow]]) -> None:
    listing = FlowListing(SharedEntries())
    before: dict[object, Flow] = {}
    for flows in rounds:
        now = {flow_key(one): one for one in flows}
        changed = listing.read(stats(flows))
        assert listing.own == now
        assert changed == {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
        before = dict(now)


def test_a_wrong_length_is_refused_and_nothing_taken() -> None:
    listing = FlowListing(SharedEntries())
    listing.read(stats(FLOWS))
    for body in (stats(FLOWS[:1])[:-1], b"\0"):
        with pytest.raises(ProtocolError):
            listing.read(body)
    assert list(listing.own.values()) == FLOWS
    assert list(list_entries(b"")) == []


def test_others_run_while_thousands_of_entries_are_read_and_nothing_is_taken_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow_listing, "_LISTED_AT_ONCE", 200)
    listing = FlowListing(SharedEntries())
    seen: list[int] = []
    many = [flow(number) for number in range(1, 601)]
    listing.read(stats(many), lambda: seen.append(len(listing.own)))
    assert len(seen) == 600 // 200 + 600 // 250
    assert set(seen) == {0}
    assert len(listing.own) == 600


def of_host(mac: int) -> Flow:
    return Flow(0, 10, Match(vlan_vid=10, eth_dst=mac), OWN_COOKIE, goto_table=4)


def test_what_switches_hold_alike_is_kept_once() -> None:
    alike, of_port = of_host(1), flow(1)
    shared = SharedEntries()
    first, second = FlowListing(shared), FlowListing(shared)
    for listing in (first, second):
        listing.read(stats([alike, of_port]))
        assert listing.own == {flow_key(one): one for one in (alike, of_port)}
    assert first.own[flow_key(alike)] is second.own[flow_key(alike)]
    assert first.own[flow_key(of_port)] is not second.own[flow_key(of_port)]


def test_entries_of_others_and_long_ones_are_not_kept_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedEntries()
    foreign = of_host(1)._replace(cookie=7)
    FlowListing(shared).read(stats([foreign, of_host(2)]))
    assert len(shared) == 1
    monkeypatch.setattr(flow_listing, "SHARED_BYTES", 0)
    FlowListing(shared).read(stats([of_host(3)]))
    assert len(shared) == 1


def test_what_is_kept_for_others_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_listing, "MOST_SHARED", 3)
    shared = SharedEntries()
    listing = FlowListing(shared)
    listing.read(stats([of_host(mac) for mac in range(20)]))
    assert len(shared) <= 3
    assert len(listing.own) == 20
