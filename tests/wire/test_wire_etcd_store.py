"""The store in a real etcd: whole changes or none, kept by the active node alone, and the same as SQLite's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster import Relay, needs_etcd

from apps.cluster.etcd_client import EtcdClient, EtcdError, created_at, delete, get, put
from apps.cluster.etcd_store import EtcdStore
from apps.cluster.etcd_tokens import EtcdTokens
from apps.settings.errors import StoreError
from apps.settings.store import Item, Store, StoredChange
from controller.errors import InvalidValueError
from controller.limits.overrides import Override, VnName
from experiments.machine.etcd_process import EtcdProcesses

pytestmark = [needs_etcd]
PREFIX = "/dets/test/"
OTHERS = "another node is active, or has changed the settings"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcesses]:
    with EtcdProcesses(tmp_path_factory.mktemp("etcd")) as process:
        yield process


@pytest.fixture
def etcd(process: EtcdProcesses) -> Iterator[EtcdClient]:
    with closing(EtcdClient(process.urls)) as etcd:
        clear(etcd)
        yield etcd


def clear(etcd: EtcdClient) -> None:
    etcd.transact([], [delete("/dets/", prefix=True)], [])
    etcd.transact([], [put(f"{PREFIX}active", b"{}")], [])


def token(etcd: EtcdClient) -> int:
    return etcd.read(get(f"{PREFIX}active"))[0][0].create_revision


def store_of(etcd: EtcdClient) -> EtcdStore:
    mine = token(etcd)
    store = EtcdStore(etcd, PREFIX, lambda: mine, lambda: "on standby")
    store.load()
    return store


def change(revision: int, items: list[Item] | None = None) -> StoredChange:
    return StoredChange(revision, "2026-01-01T00:00:00.000Z", "me", "::1", "vn", 1, items or [])


LIMIT = {VnName(10, "s1", 1): Override({"send_limit_bps": 5_000_000}, 1)}
rates = st.one_of(st.none(), st.integers(1, 10**12))
names = st.builds(VnName, st.integers(1, 3), st.sampled_from(["s1", "s2"]), st.integers(1, 3))
vns = st.dictionaries(names, st.dictionaries(st.sampled_from(["send_limit_bps"]), st.integers(1, 10**12)), max_size=4)
vlans = st.dictionaries(st.integers(1, 3), st.dictionaries(st.sampled_from(["weight", "algorithm"]), st.just(2.0)))


@settings(derandomize=True, max_examples=25, deadline=None)
@given(commits=st.lists(st.tuples(vlans, vns, st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3)))))
def test_it_holds_what_sqlite_holds(process: EtcdProcesses, commits: list[Any]) -> None:
    etcd = EtcdClient(process.urls)
    clear(etcd)
    stores: list[Any] = [store_of(etcd), Store(":memory:")]
    for revision, (of_vlans, of_vns, facts) in enumerate(commits, 1):
        for store in stores:
            store.commit(
                change(revision, [Item(10, "s1", 1, "send_limit_bps", None, revision)]),
                {vid: Override(values, revision, revision) for vid, values in of_vlans.items()},
                {name: Override(values, revision) for name, values in of_vns.items()},
                facts,
            )
    assert store_of(etcd).load() == stores[1].load() == stores[0].load()
    for before, limit in ((100, 100), (3, 1), (1, 5)):
        assert stores[0].history(before, limit) == stores[1].history(before, limit)
    for revision in range(len(commits) + 2):
        assert stores[0].change(revision) == stores[1].change(revision)
    for store in stores:
        store.close()


def test_of_two_that_change_the_same_revision_one_is_refused_and_nothing_of_it_is_kept(etcd: EtcdClient) -> None:
    one, other = store_of(etcd), store_of(etcd)
    one.commit(change(1), {}, LIMIT)
    with pytest.raises(StoreError, match=OTHERS):
        other.commit(change(1), {}, {VnName(10, "s1", 1): Override({"send_limit_bps": 7}, 1)})
    assert store_of(etcd).load().vns == LIMIT
    assert other.load().vns == LIMIT
    other.commit(change(2), {}, {})
    assert [one.revision for one in other.history(10, 10)] == [2, 1]


def test_a_node_that_was_replaced_keeps_nothing(etcd: EtcdClient) -> None:
    store = store_of(etcd)
    etcd.transact([], [delete(f"{PREFIX}active")], [])
    etcd.transact([], [put(f"{PREFIX}active", b"{}")], [])  # another node's: of a later revision
    with pytest.raises(StoreError, match=OTHERS):
        store.commit(change(1), {}, LIMIT)
    assert store_of(etcd).load().revision == 0


def test_on_standby_it_says_where_to_go(etcd: EtcdClient) -> None:
    store = EtcdStore(etcd, PREFIX, lambda: None, lambda: "node n2 is on standby: make changes at node n1")
    store.load()
    assert not store.writable
    with pytest.raises(StoreError, match="make changes at node n1"):
        store.commit(change(1), {}, LIMIT)


def test_twenty_thousand_overrides_are_kept_in_one_change_and_the_old_ones_are_removed(etcd: EtcdClient) -> None:
    store = store_of(etcd)
    many = {
        VnName(vid, f"s{n}", vid): Override({"send_limit_bps": n * vid * 7919}, 1)
        for vid in range(1, 21)
        for n in range(1000)
    }
    store.commit(
        change(1, [Item(vid, "s1", n, "send_limit_bps", n, vid * n) for vid in range(20) for n in range(1000)]),
        {},
        many,
    )
    assert store_of(etcd).load().vns == many
    assert len(store.change(1).items) == 20_000  # type: ignore[union-attr]
    store.commit(change(2), {}, LIMIT)
    chunks = etcd.read(get(f"{PREFIX}overrides/", prefix=True))[0]
    head = json.loads(etcd.read(get(f"{PREFIX}head"))[0][0].value)
    assert {one.key.rpartition("/")[0] for one in chunks} == {PREFIX + head["overrides"][0]}


def test_a_change_whose_answer_was_lost_counts_if_etcd_has_it(
    etcd: EtcdClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(etcd)
    transact = etcd.transact

    def deaf(compare: Any, success: Any, failure: Any) -> Any:
        done = transact(compare, success, failure)
        if compare:
            raise EtcdError("timed out")
        return done

    monkeypatch.setattr(etcd, "transact", deaf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(etcd, "read", lambda *ranges: transact([], list(ranges), [])[1])
        store.commit(change(1), {}, LIMIT)
        store.commit(change(2), {}, {})
    assert store.load().revision == 2


def test_the_next_member_is_asked_when_one_is_silent_or_gone(process: EtcdProcesses, etcd: EtcdClient) -> None:
    relay = Relay(process.members[0].port)
    relay.cut()
    urls = [f"http://127.0.0.1:{port}" for port in (1, relay.port, process.members[0].port)]
    with closing(EtcdClient(urls)) as several:
        assert several.read(get(f"{PREFIX}active")) == etcd.read(get(f"{PREFIX}active"))
    relay.close()
    with pytest.raises(EtcdError, match=r"127.0.0.1:1: .*refused"):
        EtcdClient(["http://127.0.0.1:1"]).grant(2)


def test_an_etcd_of_a_run_does_not_begin_with_what_an_earlier_run_has_left(tmp_path: Path) -> None:
    for _ in range(2):
        with EtcdProcesses(tmp_path) as process, closing(process.members[0].client()) as etcd:
            assert etcd.transact([created_at("/here", 0)], [put("/here", b"1")], [])[0]


def test_tokens_are_made_found_and_revoked(etcd: EtcdClient) -> None:
    tokens = EtcdTokens(etcd, PREFIX)
    token = tokens.create("ops", "write")
    assert tokens.find(token) is None  # not before the node has heard of it
    tokens.update(etcd.read(get(tokens.place, prefix=True))[0])
    assert tokens.find(token).scope == "write"  # type: ignore[union-attr]
    assert token.encode() not in etcd.read(get(tokens.place, prefix=True))[0][0].value
    with pytest.raises(InvalidValueError, match="already"):
        tokens.create("ops", "read")
    with pytest.raises(InvalidValueError, match="there are: ops"):
        tokens.revoke("nobody")
    tokens.revoke("ops")
    assert tokens.all() == []


def test_facts_without_a_revision_are_kept_by_the_active_node_alone(etcd: EtcdClient) -> None:
    store = store_of(etcd)
    store.commit(change(1), {}, {}, {"file": "x"})
    store.keep_facts({"port s1 1": "eth1"})
    store.commit(change(2), {}, {}, {"file": "y"})
    standing = store_of(etcd).load()
    assert (standing.revision, standing.metadata) == (2, {"file": "y", "port s1 1": "eth1"})
    standby = EtcdStore(etcd, PREFIX, lambda: None, lambda: "on standby")
    standby.load()
    with pytest.raises(StoreError, match="on standby"):
        standby.keep_facts({"port s1 1": "eth2"})
