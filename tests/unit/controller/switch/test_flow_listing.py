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
from controller.switch.flow_listing import FlowListing
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
    listing = FlowListing()
    assert stats(FLOWS) != stats(FLOWS, age_s=9.5, hits=3)
    assert listing.read(stats(FLOWS)) == {flow_key(one) for one in FLOWS}
    assert listing.read(stats(FLOWS, age_s=9.5, hits=3)) == set()
    assert list(listing.own.values()) == FLOWS


@pytest.mark.parametrize(
    "changed", [flow(3, out=8), flow(3, priority=6), flow(3, cookie=OWN_COOKIE | 1), flow(3, idle_s=60), None]
)
def test_anything_else_does(changed: Flow | None) -> None:
    listing = FlowListing()
    listing.read(stats(FLOWS))
    other = [*FLOWS[:2], *([] if changed is None else [changed])]
    keys = {flow_key(FLOWS[2])} | ({flow_key(changed)} if changed else set())
    assert listing.read(stats(other)) == keys
    assert listing.own == {flow_key(one): one for one in other}


def test_entries_of_others_are_not_listed() -> None:
    listing = FlowListing()
    assert listing.read(stats([flow(1, cookie=7)])) == set()
    assert listing.read(stats([])) == set()
    assert listing.own == {}


def test_an_entry_that_is_taken_over_by_somebody_else_is_gone() -> None:
    listing = FlowListing()
    listing.read(stats(FLOWS))
    assert listing.read(stats([*FLOWS[:2], flow(3, cookie=7)])) == {flow_key(FLOWS[2])}
    assert flow_key(FLOWS[2]) not in listing.own


@given(st.lists(st.lists(st.builds(flow, st.integers(1, 4), out=st.integers(5, 6)), max_size=4), max_size=5))
def test_after_any_changes_the_listing_is_what_was_listed_last(rounds: list[list[Flow]]) -> None:
    listing = FlowListing()
    before: dict[object, Flow] = {}
    for flows in rounds:
        now = {flow_key(one): one for one in flows}
        changed = listing.read(stats(flows))
        assert listing.own == now
        assert changed == {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
        before = dict(now)


def test_a_wrong_length_is_refused_and_nothing_taken() -> None:
    listing = FlowListing()
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
    listing = FlowListing()
    seen: list[int] = []
    many = [flow(number) for number in range(1, 601)]
    listing.read(stats(many), lambda: seen.append(len(listing.own)))
    assert len(seen) == 600 // 200 + 600 // 250
    assert set(seen) == {0}
    assert len(listing.own) == 600
