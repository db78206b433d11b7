"""What a switch lists of its entries, and what has changed of that since the last time."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import ProtocolError
from controller.forwarding import pipeline
from controller.forwarding.flow_table import FlowKey, FlowTable, flow_key, pack_key
from controller.forwarding.pipeline import OWN_COOKIE
from controller.openflow import flow_stats_native
from controller.openflow.actions import Output
from controller.openflow.constants import VLAN_NONE, FlowModCommand
from controller.openflow.flows import Flow, decode_entry, encode_flow_mods, encode_instructions
from controller.openflow.match import Match, encode_match
from controller.switch import flow_stats_reader
from controller.switch.adoption import split_own_flows
from controller.switch.flow_stats_reader import InstalledFlows
from experiments.switch.datapath import Datapath


def flow(port: int, *, priority: int = 5, cookie: int = OWN_COOKIE, out: int = 9, idle_s: int = 0) -> Flow:
    return Flow(0, priority, Match(in_port=port), cookie, idle_s, actions=(Output(out),))


FLOWS = [flow(port) for port in (1, 2, 3)]


def entry(flow: Flow) -> bytes:
    """Return the ofp_flow_stats of an entry (OpenFlow 1.3.5, section 7.3.5.2)."""
    rest = encode_match(flow.match) + encode_instructions(flow)
    fixed = (flow.table_id, 0, 3, 4, flow.priority, flow.idle_timeout_s, 0, int(flow.send_flow_removed))
    return pack("!HBBIIHHHH4xQQQ", 48 + len(rest), *fixed, flow.cookie, 5, 6) + rest


def stats(flows: Iterable[Flow]) -> bytes:
    return b"".join(map(entry, flows))


def test_every_byte_but_ages_and_counters_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    body, listing = stats(FLOWS), InstalledFlows()
    listing.read(body)
    monkeypatch.setattr(flow_stats_reader, "_Reader", None)
    size = len(body) // len(FLOWS)
    free = {*range(4, 12), *range(32, 48)}  # of an entry (OpenFlow 1.3.5, section 7.3.5.2)
    for at in range(2, size):  # the first two bytes are its length
        other = bytearray(body)
        other[size + at] ^= 1
        with nullcontext() if at in free else pytest.raises(TypeError):
            assert listing.read(other) == set()


ANY = st.builds(
    flow,
    st.integers(1, 3),
    priority=st.integers(5, 6),
    cookie=st.sampled_from([OWN_COOKIE, OWN_COOKIE | 1, 7]),  # the last is another application's
    out=st.integers(8, 9),
    idle_s=st.sampled_from([0, 60]),
)


@given(st.lists(st.lists(ANY, max_size=4, unique_by=flow_key), max_size=5))
def test_after_any_changes_the_listing_is_what_was_listed_last(rounds: list[list[Flow]]) -> None:
    listing = InstalledFlows()
    before: dict[FlowKey, Flow] = {}
    for flows in rounds:
        now = {flow_key(one): one for one in flows}
        now = {key: one for key, one in now.items() if one.cookie != 7}
        changed = listing.read(stats(flows))
        assert listing.own == now
        assert changed == {pack_key(key) for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
        before = dict(now)


def test_a_wrong_length_is_refused_and_nothing_taken() -> None:
    listing = InstalledFlows()
    listing.read(stats(FLOWS))
    for body in (stats(FLOWS[:1])[:-1], b"\0"):
        with pytest.raises(ProtocolError):
            listing.read(body)
    assert list(listing.own.values()) == FLOWS


def test_others_run_while_thousands_of_entries_are_read_and_nothing_is_taken_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow_stats_reader, "_READ_BATCH", 200)
    listing = InstalledFlows()
    seen: list[int] = []
    many = [flow(number) for number in range(1, 601)]
    switch = Datapath(1)
    switch.receive(encode_flow_mods([(FlowModCommand.ADD, one) for one in many], 1), 0.0)
    installed = list(switch.tables._entries[0].values())
    body = b"".join(switch.tables.stats(installed, switch.tables.counters, 0.0))
    listing.read(body, lambda: seen.append(len(listing.own)))
    assert len(seen) > 600 // 200 + 1
    assert set(seen) == {0}
    assert len(listing.own) == 600


PIPELINE = (
    st.builds(pipeline.known_source, st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**48 - 1), st.just(300)),
    st.builds(
        pipeline.rate_control,
        st.sampled_from([1, 2, 0xFFFF_FF00]),
        st.sampled_from([1, 256, 4094]),
        st.sampled_from([0, 0x100, 2**48 - 1]),
        st.sampled_from([None, 1, 256, 0xFFFF_0000]),
        st.just(300),
    ),
    st.builds(pipeline.report_new_pair, st.integers(1, 3), st.integers(0, 9)),
    st.builds(pipeline.forward_to_switch, st.integers(1, 3), st.integers(1, 3), st.integers(0, 9)),
    st.builds(pipeline.count_marks, st.integers(1, 3), st.integers(1, 3), st.integers(0, 9), st.integers(1, 9)),
    st.builds(pipeline.report, st.integers(1, 3), st.integers(1, 3), st.integers(1, 9)),
    st.builds(flow, st.integers(1, 9), cookie=st.sampled_from([OWN_COOKIE, 7]), out=st.integers(1, 3)),
    st.just(Flow(0, 1, Match(in_port=1, vlan_vid=VLAN_NONE), OWN_COOKIE)),
    st.just(Flow(3, 9, Match(1, 2, 1 << 40, 1 << 40, 0x800, 1 << 40, 1 << 40, 1, 1, 1), OWN_COOKIE)),
)


@given(
    st.lists(st.one_of(PIPELINE), max_size=60),
    st.lists(st.tuples(st.integers(0, 59), st.integers(2, 127), st.integers(0, 255)), max_size=6),
    st.integers(1, 40),
)
def test_entries_read_in_columns_are_what_each_is_decoded_to(
    flows: list[Flow], strange: list[tuple[int, int, int]], at_once: int
) -> None:
    """Some bytes are others: whatever a switch lists, columns and single entries say the same, or both refuse it."""
    entries = [bytearray(entry(one)) for one in flows * 3]
    for number, position, value in strange:
        if number < len(entries) and position < len(entries[number]):
            entries[number][position] = value
    listing = InstalledFlows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_stats_reader, "_READ_BATCH", at_once)
        patch.setattr(flow_stats_reader, "_WORTH_KEEPING", 2)
        patch.setattr(flow_stats_reader, "_MAX_TRIED", 3)
        try:
            decoded = [decode_entry(bytes(one)) for one in entries]
        except ProtocolError:
            with pytest.raises(ProtocolError):
                listing.read(b"".join(entries))
            assert listing.own == {}
            return
        listing.read(b"".join(entries))
    own, foreign = split_own_flows(decoded)
    assert listing.own == own
    assert listing.foreign == foreign
    assert listing.own.differing(own) == set()


def test_what_is_listed_again_is_read_by_the_templates_of_the_last_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = InstalledFlows()
    body = stats(map(flow, range(1, 40)))
    listing.read(body)
    decoded: list[bytes] = []
    monkeypatch.setattr(flow_stats_reader, "decode_entry", lambda raw: decoded.append(raw) or decode_entry(raw))
    other = entry(pipeline.known_source(1, 2, 3, 300))
    assert listing.read(body + other) == {pack_key(pipeline.known_source(1, 2, 3, 300))}
    assert decoded == [other]


def test_templates_of_no_more_use_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_stats_reader, "_READ_BATCH", 16)
    listing = InstalledFlows()
    many = [entry(flow(port, out=1 + kind)) for kind in range(100) for port in range(16 * kind + 1, 16 * kind + 17)]
    longer = [entry(pipeline.known_source(port, 2, 3, 300)) for port in range(1, 40)]
    listing.read(b"".join(longer + many))
    assert sum(map(len, listing._templates.values())) == flow_stats_reader._MAX_KEPT
    listing.read(b"".join(longer))
    assert sum(map(len, listing._templates.values())) == 1


def test_entries_of_lengths_that_no_switch_has_are_read_one_by_one() -> None:
    """One is four bytes too long, and is refused; the shortest there can be is read."""
    odd = entry(Flow(0, 1, Match(), OWN_COOKIE))
    body = stats(FLOWS * 4)
    with pytest.raises(ProtocolError):
        InstalledFlows().read(body + odd[:1] + bytes([len(odd) + 4]) + odd[2:] + bytes(4))
    listing = InstalledFlows()
    listing.read(body + odd)
    assert len(listing.own) == len(FLOWS) + 1


@pytest.mark.skipif(flow_stats_native.library is None, reason="the kernel was not built")
def test_compiled_and_plain_tell_listings_apart_by_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole ones in pieces of any size, and those that end within an entry or have a length of none are refused."""
    body = stats(FLOWS * 400)
    for whole in (b"", body, body[: len(entry(FLOWS[0]))]):
        assert flow_stats_reader._digest(whole, lambda: None) == flow_stats_reader._digest_of_runs(whole, lambda: None)
    for torn in (body[:-1], body + b"\0\1", body + bytes(56), body + b"\0\x37" + bytes(53)):
        with pytest.raises(ProtocolError):
            flow_stats_reader._digest(torn, lambda: None)
    monkeypatch.setattr(flow_stats_reader, "_READ_BATCH", 7)
    turns: list[int] = []
    assert flow_stats_reader._digest(body, lambda: turns.append(1)) == flow_stats_reader._digest_of_runs(
        body, lambda: None
    )
    assert len(turns) == -(-len(FLOWS) * 400 // 7) - 1


def test_many_entries_that_have_nothing_in_common_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a hostile switch lists: it takes as long as reading them one by one, not each against all."""
    calls: list[int] = []
    matches = flow_stats_reader._Template.matches
    monkeypatch.setattr(
        flow_stats_reader._Template, "matches", lambda self, words: calls.append(len(words)) or matches(self, words)
    )
    many = [flow(1, priority=number, out=number) for number in range(1, 1_501)]
    listing = InstalledFlows()
    listing.read(stats(many))
    assert sum(calls) <= flow_stats_reader._MAX_TRIED * len(many)
    assert listing.own == FlowTable(many)
