"""Overrides: what wins over what, what does not fit, what is kept, and what a restart makes of it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import apps.settings.settings as settings_module
from apps.settings.errors import StoreError
from apps.settings.settings import Caller, Settings
from apps.settings.store import Store, read_state
from apps.settings.store_file import MEMORY
from controller.central.controller import CentralController
from controller.config.loader import parse_config
from controller.events import EventKind
from controller.limits.effective_settings import UnfitError, resolve
from controller.limits.overrides import FileValues, Override, Overrides, VnName
from controller.openflow.meters import METER_CONFIG

CONFIG = """\
vlans:
  10: {send_limit: 40M, receive_limit: 40M}
  20: {send_limit: 50M, receive_limit: 50M, weight: 2}
switches:
  s1:
    dpid: "00000000000000a1"
    ports:
      1: {capacity: 100M, trunk: [10, 20]}
      2: {capacity: 100M, trunk: [10, 20], vns: {10: {send_limit: 30M}}}
      3: {capacity: 100M, access: 10}
"""
LINKED = (
    CONFIG
    + """\
  s2: {dpid: 2, ports: {1: {capacity: 100M, access: 10}, 2: {capacity: 100M, access: 10}}}
links: [{between: ["s1:9", "s2:9"], capacity: 90M}]
"""
)
ONE, TWO, THREE = VnName(10, "s1", 1), VnName(10, "s1", 2), VnName(10, "s1", 3)
ME = Caller("me", "::1")


def anything() -> None:
    """No expectation."""


def full(*arguments: Any) -> None:
    """Fail as a store does whose disk is full."""
    raise StoreError("the disk is full")


OPENED: list[Store] = []


@pytest.fixture(autouse=True)
def _stores() -> Iterator[None]:
    """Close every store that a test has opened."""
    yield
    while OPENED:
        OPENED.pop().close()


class Place:
    """Settings on a store, which another controller may open once this one has closed it."""

    def __init__(self, path: Path | str = MEMORY, text: str = CONFIG) -> None:
        self.central = CentralController(parse_config(text))
        self.store = Store(str(path))
        OPENED.append(self.store)
        self.settings = Settings(self.central, self.store, lambda: 5.0)

    def again(self, text: str = CONFIG) -> Place:
        """Return what a restart makes of the store."""
        OPENED.remove(self.store)
        self.store.close()
        return Place(self.store.path, text)

    def vns(self, changes: dict[VnName, dict[str, float | None]]) -> Any:
        return self.settings.change_vns(changes, ME, expect=anything, dry_run=False)

    def vlan(self, vid: int, **values: Any) -> Any:
        return self.settings.change_vlan(vid, values, ME, expect=anything, dry_run=False)

    def reset(self, *names: VnName, vids: tuple[int, ...] = ()) -> Any:
        return self.settings.reset(vids, names, ME, expect=anything, dry_run=False)

    def effective(self, column: str, *names: VnName) -> list[float]:
        """Return the values of VNs in a column of the table of VNs."""
        return [float(getattr(self.central.vns, column)[self.settings.file.row_of[name]]) for name in names]

    def send_bps(self, name: VnName) -> float:
        return self.effective("send_limit_bps", name)[0]

    def again_after(self, statement: str, *values: object) -> Place:
        """Return what a restart makes of the store that a statement of SQL has changed."""
        self.store.close()
        with contextlib.closing(sqlite3.connect(self.store.path)) as db, db:
            db.execute(statement, values)
        return self.again()

    def inactive(self) -> list[str]:
        return [one.text for one in self.central.events.newer_than(0) if one.kind == EventKind.OVERRIDE_INACTIVE]


@pytest.mark.parametrize(("column", "unit"), [("send_limit_bps", 10_000_000), ("weight", 1.0)])
def test_the_vn_wins_over_its_own_in_the_file_over_the_vlan_over_the_vlans_in_the_file(
    column: str, unit: float
) -> None:
    place = Place(
        text=CONFIG.replace("receive_limit: 40M}", "receive_limit: 40M, weight: 4}").replace("30M", "30M, weight: 3")
    )

    def units() -> list[float]:
        return [value / unit for value in place.effective(column, ONE, TWO, THREE)]

    assert units() == [4.0, 3.0, 4.0]
    place.vlan(10, **{column: 4.5 * unit})
    assert units() == [4.5, 3.0, 4.5]
    place.vns({THREE: {column: 2.0 * unit}, TWO: {column: 2.5 * unit}})
    assert units() == [4.5, 2.5, 2.0]
    place.reset(TWO, THREE)
    assert units() == [4.5, 3.0, 4.5]
    place.reset(vids=(10,))
    assert units() == [4.0, 3.0, 4.0]


def test_revisions_are_those_of_what_was_changed() -> None:
    place = Place()
    settings = place.settings
    rows = [settings.file.row_of[name] for name in (ONE, TWO)]
    assert [settings.vn_revision(row) for row in rows] == [1, 1]  # 1: the file was read for the first time
    place.vns({ONE: {"send_limit_bps": 1_000_000}})
    assert [settings.vn_revision(row) for row in rows] == [2, 1]
    place.vlan(10, weight=3.0)
    assert (settings.vlan_revision(10), settings.vlan_revision(20)) == (3, 1)
    assert [settings.vn_revision(row) for row in rows] == [3, 3]  # they have the weight of their VLAN
    place.vlan(20, name="two")
    place.vlan(10, receive_limit_bps=30_000_000)
    assert [settings.vn_revision(row) for row in rows] == [5, 5]
    place.reset(ONE)
    assert [settings.vn_revision(row) for row in rows] == [6, 5]  # not 1 again: it is not what it was
    place.reset(vids=(10,))
    assert [settings.vn_revision(row) for row in rows] == [7, 7]


def test_many_limits_may_trade_places_though_one_after_the_other_would_not_fit() -> None:
    place = Place()
    trade: dict[VnName, dict[str, int | None]] = {
        VnName(20, "s1", 1): {"send_limit_bps": 80_000_000},
        ONE: {"send_limit_bps": 20_000_000},
    }
    with pytest.raises(UnfitError):
        place.vns(dict([next(iter(trade.items()))]))
    assert place.vns(trade).changed == 2
    assert (place.send_bps(ONE), place.send_bps(VnName(20, "s1", 1))) == (20_000_000, 80_000_000)


def test_only_what_a_vn_may_send_reaches_its_switch() -> None:
    place = Place()
    place.central.switch_connected(0xA1, (), np.empty(0, METER_CONFIG), 1.0)
    place.central.drain_updates()
    place.vns({ONE: {"send_limit_bps": 12_000_000}, TWO: {"receive_limit_bps": 9_000_000}})
    update = place.central.drain_updates()[0xA1]
    flood_kbps = 225  # a tenth of the smallest receive limit, shared by four other VNs
    newcomer_kbps = 3_000  # what both others may begin with together: 40 ms of that limit in 60 ms
    expected = [12_000, *[flood_kbps] * 6, *[newcomer_kbps] * 3]
    assert sorted(update.meter_mods()[2].tolist()) == sorted(expected)
    place.vlan(10, weight=4.0)
    assert place.central.drain_updates() == {}
    assert place.effective("weight", ONE) == [4.0]


def test_all_is_there_after_a_restart(tmp_path: Path) -> None:
    place = Place(tmp_path / "x.db")
    place.vns({ONE: {"send_limit_bps": 1_000_000, "send_ceiling_bps": 90_000_000}})
    place.vns({ONE: {"send_ceiling_bps": None, "weight": 2.5}})
    place.vlan(20, algorithm="sp", parameters={"inflation": 0.2}, name="b")
    again = place.again()
    assert (again.send_bps(ONE), again.effective("weight", ONE)) == (1_000_000, [2.5])
    kept = {"send_limit_bps": 1_000_000, "send_ceiling_bps": None, "weight": 2.5}
    assert again.settings.overrides.vn_override(again.settings.file.row_of[ONE]).values == kept
    assert (again.central.fabric.control.policies[20].algorithm, again.central.config.vlans[20].name) == ("sp", "b")
    assert again.settings.revision == 4
    change = again.settings.change_of(2)
    assert change is not None
    assert (change.who, change.address, change.action) == ("me", "::1", "vn")
    assert [(item.field, item.before, item.after) for item in change.items] == [
        ("send_limit_bps", 40_000_000, 1_000_000),
        ("send_ceiling_bps", None, 90_000_000),
    ]


def test_another_file_has_a_revision_of_its_own(tmp_path: Path) -> None:
    same = Place(tmp_path / "x.db").again()
    assert same.settings.revision == 1
    other = same.again(CONFIG.replace("40M", "41M"))
    assert (other.settings.revision, other.settings.vn_revision(0)) == (2, 2)


def test_overrides_that_no_longer_fit_are_kept_and_named(tmp_path: Path) -> None:
    place = Place(tmp_path / "x.db")
    place.vns({VnName(20, "s1", 2): {"send_limit_bps": 60_000_000}})
    place.vns({ONE: {"send_limit_bps": 10_000_000}})
    place.vns({TWO: {"send_limit_bps": 40_000_000}})
    place.vlan(20, weight=5.0)
    smaller = CONFIG.replace("2: {capacity: 100M", "2: {capacity: 90M").replace(
        "trunk: [10, 20]}\n", "access: 10}\n", 1
    )
    again = place.again(smaller)
    # Of the two at port 2 that raise, 60 + 40 of 90, the later one is off; the lower limit at port 1 never is.
    assert again.inactive() == ["override of VLAN 10 at s1:2 is not in force: port s1:2 (sending) would need to carry "
                                "100M of 90M"]  # fmt: skip
    assert (again.send_bps(VnName(20, "s1", 2)), again.send_bps(TWO), again.send_bps(ONE)) == (
        60_000_000,
        30_000_000,
        10_000_000,
    )
    gone = again.again(smaller.replace("  20: {send_limit: 50M, receive_limit: 50M, weight: 2}\n", "")
                 .replace("trunk: [10, 20]", "access: 10"))  # fmt: skip
    assert {*gone.settings.values.inactive_vns} == {VnName(20, "s1", 2)}
    assert {*gone.settings.values.inactive_vlans} == {20}
    assert gone.send_bps(TWO) == 40_000_000  # there is room again
    back = gone.again()
    assert back.settings.values.inactive_vns == {}
    assert (back.send_bps(TWO), back.central.config.vlans[20].weight) == (40_000_000, 5.0)


def test_overrides_fit_a_port_for_the_shortest_frames(tmp_path: Path) -> None:
    """Limits at port 2 may take 150 Mb/s * 60/84, 107 Mb/s; those at port 1 150."""
    text = CONFIG.replace("100M", "150M")
    overhead = text.replace("2: {capacity: 150M", "2: {capacity: 150M, frame_overhead_bytes: 24")
    place, wide = Place(tmp_path / "x.db", overhead), VnName(20, "s1", 2)
    with pytest.raises(
        UnfitError, match=r"of 107\.1M, which remains .* 24 bytes .*; at most 77142000 \(77\.14M\) fits"
    ):
        place.vns({wide: {"send_limit_bps": 78_000_000}})
    place.vns({wide: {"send_limit_bps": 77_000_000}})
    place.vns({VnName(20, "s1", 1): {"send_limit_bps": 110_000_000}})
    again = place.again(overhead.replace("bytes: 24", "bytes: 25"))
    assert {*again.settings.values.inactive_vns} == {wide}
    assert {*again.again(text).settings.values.inactive_vns} == set()


def test_a_core_link_turns_off_the_newest_that_raise(tmp_path: Path) -> None:
    place = Place(tmp_path / "x.db", LINKED)
    place.vns({VnName(10, "s2", 1): {"send_limit_bps": 45_000_000}})
    with pytest.raises(UnfitError, match=r"link s2:9-s1:9.*at most 45000000 \(45M\) fits"):
        place.vns({VnName(10, "s2", 2): {"send_limit_bps": 46_000_000}})
    place.vns({VnName(10, "s2", 2): {"send_limit_bps": 45_000_000}})
    again = place.again(LINKED.replace("capacity: 90M}]", "capacity: 86M}]"))
    assert {*again.settings.values.inactive_vns} == {VnName(10, "s2", 2)}
    assert again.send_bps(VnName(10, "s2", 1)) == 45_000_000


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    limits=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["send", "receive"]), st.integers(1, 150)), max_size=8
    ),
    vlan=st.none() | st.tuples(st.sampled_from([10, 20]), st.integers(1, 150)),
)
def test_whatever_is_kept_what_is_in_force_fits(
    limits: list[tuple[int, str, int]], vlan: tuple[int, int] | None
) -> None:
    central = CentralController(parse_config(CONFIG))
    file = FileValues(central.config)
    vns: dict[VnName, Override] = {}
    for revision, (row, way, rate) in enumerate(limits, 2):
        before = vns.get(file.names[row], Override({}, 0)).values
        vns[file.names[row]] = Override({**before, f"{way}_limit_bps": rate * 1_000_000}, revision)
    vlans = {vlan[0]: Override({"send_limit_bps": vlan[1] * 1_000_000}, 20, 20)} if vlan else {}
    values = resolve(Overrides.build(file, vlans, vns), central.fabric.admitted.core_overload)
    for column in (values.vns.send_limit_bps, values.vns.receive_limit_bps):
        assert (file.port_sums_bps(column) <= file.admissible_bps).all()
    for name, override in vns.items():  # what is in force is what was set, and what only lowers always is
        row = file.row_of[name]
        if name not in values.inactive_vns:
            assert all(getattr(values.vns, field)[row] == value for field, value in override.values.items())
        assert name not in values.inactive_vns or any(
            value > getattr(file.vns, field)[row] for field, value in override.values.items()
        )


def test_what_replaces_all_is_there_after_a_restart_and_nothing_else(tmp_path: Path) -> None:
    place = Place(tmp_path / "x.db")
    place.vns({ONE: {"send_limit_bps": 1_000_000}})
    place.vlan(20, weight=7.0)
    new = {TWO: {"receive_limit_bps": 2_000_000}, VnName(10, "s9", 1): {"send_limit_bps": 1_000}}
    place.settings.replace_all("import", {10: {"weight": 3.0}}, new, ME, expect=anything, dry_run=False)
    for one in (place, place.again()):
        assert {*one.settings.values.inactive_vns} == {VnName(10, "s9", 1)}
        assert dict(one.settings.overrides.vn_overrides()).keys() == new.keys()
        assert [vid for vid, _ in one.settings.overrides.vlan_overrides()] == [10]
        assert (one.send_bps(ONE), one.central.config.vlans[20].weight) == (40_000_000, 2.0)


def test_what_cannot_be_kept_is_not_in_force_and_an_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    with monkeypatch.context() as patch:
        patch.setattr(place.store, "commit", full)
        for _ in range(3):
            with pytest.raises(StoreError):
                place.vns({ONE: {"send_limit_bps": 1_000_000}})
    assert (place.send_bps(ONE), place.settings.revision) == (40_000_000, 1)
    assert place.vns({ONE: {"send_limit_bps": 1_000_000}}).revision == 2
    monkeypatch.setattr(place.store, "commit", full)
    with pytest.raises(StoreError):
        place.vns({ONE: {"send_limit_bps": 2_000_000}})
    told = [one.text for one in place.central.events.newer_than(0) if one.kind == EventKind.STORE_WRITE_FAILED]
    assert told == ["a change is refused: the disk is full"] * 2


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("send_limit_bps", -5, "its send limit of -5 bit/s is outside 1k to 4.295T"),
        ("send_limit_bps", 0, "its send limit of 0 bit/s is outside 1k to 4.295T"),
        ("receive_limit_bps", 2**62, "its receive limit of 4611686018427387904 bit/s is outside 1k to 4.295T"),
        ("weight", 2e6, "its weight of 2e+06 is outside 0.000001 to 1000000"),
        ("send_ceiling_bps", 7, "its send ceiling of 7 bit/s is outside 1k to 4.295T"),
        ("receive_ceiling_bps", 200_000_000, "its receive ceiling is above the port's capacity of 100M"),
    ],
)
def test_a_value_of_a_vn_in_the_store_that_is_out_of_range_is_not_in_force(
    tmp_path: Path, column: str, value: int, reason: str
) -> None:
    place = Place(tmp_path / "x.db")
    place.vns({ONE: {"send_limit_bps": 1_000_000}, TWO: {"send_limit_bps": 2_000_000}})
    again = place.again_after(f"UPDATE vn_overrides SET {column} = ? WHERE port_no = 1", value)
    assert again.settings.values.inactive_vns == {ONE: reason}
    assert again.inactive() == [f"override of VLAN 10 at s1:1 is not in force: {reason}"]
    assert (again.send_bps(ONE), again.send_bps(TWO)) == (40_000_000, 2_000_000)
    again.reset(ONE)
    assert again.settings.values.inactive_vns == {}


@pytest.mark.parametrize(
    ("vid", "values", "words"),
    [
        (10, '{"weight": NaN}', "must be a number, 0.000001 to 1000000"),
        (10, '{"weight": true}', "must be a number, 0.000001 to 1000000"),
        (10, '{"send_limit_bps": -1}', "is outside 1k"),
        (10, '{"send_limit_bps": 1.5}', "must be a whole number"),
        (10, '{"name": "a b"}', "letters, digits"),
        (10, '{"dpid": 3}', "is not a value of a VLAN"),
        (10, '{"algorithm": 5}', "must be the name of an algorithm"),
        (10, '{"algorithm": "nope"}', "nope"),
        (10, '{"parameters": {"d": 0.5}}', "0.5"),
        (10, '{"parameters": [1]}', "must be an object"),
        (10, '{"shadow": "sp", "shadow_parameters": {"headroom": 99}}', "99"),
        (9999, '{"weight": 2}', "the configuration has no such VLAN"),
        (-1, '{"weight": 2}', "the configuration has no such VLAN"),
    ],
)
def test_a_value_of_a_vlan_in_the_store_that_is_out_of_range_is_not_in_force(
    tmp_path: Path, vid: int, values: str, words: str
) -> None:
    place = Place(tmp_path / "x.db")
    place.vlan(20, weight=7.0)
    again = place.again_after("INSERT INTO vlan_overrides VALUES (?, ?, 2, 2)", vid, values)
    ((inactive, reason),) = again.settings.values.inactive_vlans.items()
    assert inactive == vid
    assert words in reason
    assert again.inactive() == [f"override of VLAN {vid} is not in force: {reason}"]
    assert (again.central.config.vlans[10], again.central.config.vlans[20].weight) == (
        place.settings.file.config.vlans[10],
        7.0,
    )
    again.reset(vids=(vid,))
    assert again.again().settings.values.inactive_vlans == {}


def test_a_plan_that_is_undone_leaves_settings_and_store_as_they_were(tmp_path: Path) -> None:
    place = Place(tmp_path / "x.db")
    place.vns({ONE: {"send_limit_bps": 1_000_000}})
    before = place.settings.history(99, 9), place.settings.values, place.settings.file
    facts = read_state(place.store.path).metadata
    plan = place.settings.prepare(parse_config(CONFIG.replace("40M", "41M")))
    assert place.settings.values is before[1]  # kept, and not in force
    assert len(place.settings.history(99, 9)) == 3
    plan.undo()
    assert (place.settings.history(99, 9), place.settings.values, place.settings.file) == before
    assert (place.settings.revision, read_state(place.store.path).metadata) == (2, facts)
    assert place.vns({ONE: {"send_limit_bps": 2_000_000}}).revision == 3


def test_a_revision_that_cannot_be_taken_back_is_not_given_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path / "x.db")
    plan = place.settings.prepare(parse_config(CONFIG.replace("40M", "41M")))

    monkeypatch.setattr(place.store, "undo_last", full)
    with pytest.raises(StoreError):
        plan.undo()
    assert place.vns({ONE: {"send_limit_bps": 2_000_000}}).revision == 3


def test_a_plan_keeps_other_changes_waiting_until_it_is_decided(tmp_path: Path) -> None:
    place = Place(tmp_path / "x.db")
    plan = place.settings.prepare(parse_config(CONFIG))
    waiting = threading.Thread(target=lambda: place.vns({ONE: {"send_limit_bps": 2_000_000}}))
    waiting.start()
    assert place.settings.revision == 1
    plan.commit()
    waiting.join()
    assert (place.settings.revision, place.send_bps(ONE)) == (2, 2_000_000)


FLOODS = CONFIG.replace("10: {send", "10: {flood_limit: 10M, send", 1)


def test_a_receive_limit_under_which_the_flood_limit_does_not_fit_is_refused() -> None:
    """Two others flood 10 Mb/s each; whoever sets the limit: the VN, its VLAN, or a reset."""
    place = Place(text=FLOODS)
    place.vns({ONE: {"receive_limit_bps": 20_000_000}})
    with pytest.raises(UnfitError, match=r"2 VNs may flood 10M each.*at least 20000000 \(20M\) fits") as refusal:
        place.vns({TWO: {"send_limit_bps": 1_000_000}, ONE: {"receive_limit_bps": 19_999_000}})
    assert refusal.value.row == place.settings.file.row_of[ONE]
    assert (refusal.value.key, refusal.value.value) == ("receive_limit_bps", 19_999_000)
    place.vns({name: {"receive_limit_bps": 30_000_000} for name in (ONE, TWO, THREE)})
    place.vlan(10, receive_limit_bps=5_000_000)  # which no VN has
    with pytest.raises(UnfitError, match="at least 20000000"):
        place.reset(TWO)
    with pytest.raises(UnfitError, match="at least 20000000"):
        Place(text=FLOODS).vlan(10, receive_limit_bps=5_000_000)
    assert place.effective("receive_limit_bps", TWO) == [30_000_000]
    assert set(place.central.fabric.flood_limit_bps[place.central.vns.vlan_vid == 10]) == {10e6}


def test_overrides_under_which_the_files_flood_limit_does_not_fit_are_inactive(tmp_path: Path) -> None:
    """With another file, or after an import: by name, and the flood limit is the file's."""
    place = Place(tmp_path / "x.db")
    place.vns({ONE: {"receive_limit_bps": 19_000_000}, TWO: {"receive_limit_bps": 21_000_000}})
    place.vlan(10, receive_limit_bps=5_000_000)
    again = place.again(FLOODS)
    assert again.effective("receive_limit_bps", ONE, TWO, THREE) == [40_000_000, 21_000_000, 40_000_000]
    assert set(again.settings.values.inactive_vns) == {ONE}
    assert set(again.settings.values.inactive_vlans) == {10}
    assert all("2 VNs may flood 10M each" in text for text in again.inactive())
    again.settings.replace_all(
        "import", {}, {THREE: {"receive_limit_bps": 1_000_000}}, ME, expect=anything, dry_run=False
    )
    assert again.effective("receive_limit_bps", THREE) == [40_000_000]


def test_limits_lowered_by_an_override_that_goes_are_looked_at_again(tmp_path: Path) -> None:
    """A VN's override overloads its port; under it, its VLAN's override is too low for the flood limit."""
    place = Place(tmp_path / "x.db")
    place.vns({name: {"receive_limit_bps": 50_000_000} for name in (ONE, TWO, THREE)})
    place.vlan(10, receive_limit_bps=5_000_000)
    again = place.again(
        FLOODS.replace("20: {send_limit: 50M, receive_limit: 50M", "20: {send_limit: 50M, receive_limit: 60M")
    )
    assert again.effective("receive_limit_bps", ONE, TWO, THREE) == [40_000_000, 40_000_000, 50_000_000]
    assert set(again.settings.values.inactive_vns) == {ONE, TWO}
    assert set(again.settings.values.inactive_vlans) == {10}


def test_names_of_ports_outlive_restarts_other_files_and_plans_that_are_undone(tmp_path: Path) -> None:
    place = Place(tmp_path / "x.db")
    revision = place.settings.revision
    place.settings.keep_port_names({("s1", 1): "eth1", ("s1", 2): "eth 2"})
    place.settings.keep_port_names({("s1", 2): "tap é"})
    assert place.settings.revision == revision
    known = {("s1", 1): "eth1", ("s1", 2): "tap é"}
    place.settings.prepare(parse_config(CONFIG.replace("40M", "41M"))).undo()
    place.settings.prepare(parse_config(CONFIG.replace("40M", "42M"))).commit()
    assert place.settings.port_names() == known
    assert place.again().settings.port_names() == known


# -- stopping


USES = {
    "a change": lambda place: place.vns({ONE: {"send_limit_bps": 5e6}}),
    "names of ports": lambda place: place.settings.keep_port_names({("s1", 1): "eth1"}),
    "the history": lambda place: place.settings.history(10, 10),
    "one change": lambda place: place.settings.change_of(1),
    "whom a change concerns": lambda place: place.settings.change_concerns(1, (10, None, None)),
}


@pytest.mark.parametrize("use", USES)
def test_a_store_in_use_is_closed_after_that(use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, began, may_end = Place(tmp_path / "x.db"), threading.Event(), threading.Event()

    def run(function: Any, *arguments: object) -> Any:
        began.set()
        assert may_end.wait(5.0)
        return function(*arguments)

    monkeypatch.setattr(place.settings, "_run", run)
    errors: list[BaseException] = []

    def use_it() -> None:
        try:
            USES[use](place)
        except StoreError as error:
            errors.append(error)

    user, closer = threading.Thread(target=use_it), threading.Thread(target=place.settings.close)
    user.start()
    assert began.wait(5.0)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    may_end.set()
    user.join(5.0)
    closer.join(5.0)
    assert (closer.is_alive(), errors) == (False, [])
    with pytest.raises(StoreError):
        USES[use](place)


def test_a_store_that_cannot_be_closed_lets_changes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    with monkeypatch.context() as patch:
        patch.setattr(place.store, "close", lambda: os.close(-1))
        with pytest.raises(OSError, match="Bad file descriptor"):
            place.settings.close()
    assert not place.settings._lock.locked()
    assert not place.settings._reading.locked()


def test_a_store_whose_disk_hangs_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path / "x.db")
    monkeypatch.setattr(settings_module, "CLOSE_TIMEOUT_S", 0.01)
    with place.settings._reading:
        place.settings.close()
    assert place.vns({ONE: {"send_limit_bps": 5e6}}).changed == 1
