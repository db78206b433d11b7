"""What is observed: traffic adds up, guarantees are judged by reason, series and links follow the configuration."""

from __future__ import annotations

import numpy as np
import pytest
from support.configs import fabric
from support.rest_in_process import CONFIG, INTERVAL_S, Desk

from controller.central.reconfiguration import reconfigure
from controller.config.loader import parse_config
from controller.fabric.topology import Link, PortId
from controller.fabric.vn_table import VnTable
from controller.monitoring.link_status import LinkCommitments, LinkUptime
from controller.monitoring.observer import Observer
from controller.monitoring.time_series import SECONDS, SERIES_COLUMNS, WATCHED_S, TimeSeries
from controller.monitoring.traffic_totals import COLUMNS, GuaranteeState

TREE = """\
vlans:
  10: {send_limit: 40M, receive_limit: 30M}
  20: {send_limit: 50M, receive_limit: 50M}
switches:
  s1: {dpid: 1, ports: {1: {capacity: 100M, trunk: [10, 20]}, 2: {capacity: 100M, access: 10}}}
  s2: {dpid: 2, ports: {1: {capacity: 100M, trunk: [10, 20]}}}
  c1: {dpid: 9, ports: {}}
links:
  - {between: ["s1:9", "c1:1"], capacity: 1G}
  - {between: ["s2:9", "c1:2"], capacity: 1G}
"""


class Watched:
    """Hosts at ports 1 and 3 of s1 send to port 2, which may receive 40 Mb/s in VLAN 10; looked at every interval."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.desk.connect()
        self.desk.talk(1, 2)
        self.desk.talk(3, 2)
        self.central = self.desk.central
        self.observer = Observer(self.central)
        self.row = self.central.vns.row_of(10, 0xA1, 2)

    def run(self, offered_bps: list[float], dropped_bps: list[float], intervals: int) -> None:
        for _ in range(intervals):
            self.desk.run(offered_bps, dropped_bps, 1)
            self.observer.on_round_end(self.desk.now_s)

    def moved(self, name: str) -> float:
        return float(self.observer.traffic.bytes[COLUMNS.index(name), self.row])

    def seconds(self, outcome: GuaranteeState) -> float:
        return float(self.observer.traffic.seconds[outcome, self.row])


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_bytes_are_what_the_meters_counted(watched: Watched) -> None:
    watched.run([30e6, 20e6], [5e6, 0.0], 40)
    took_s = 40 * INTERVAL_S
    assert watched.moved("offered") * 8 == pytest.approx(50e6 * took_s, rel=0.02)
    assert watched.moved("received") * 8 == pytest.approx(45e6 * took_s, rel=0.02)
    assert watched.moved("dropped") * 8 == pytest.approx(5e6 * took_s, rel=0.05)
    mean_bps = watched.observer.traffic.mean_bps[COLUMNS.index("offered"), watched.row]
    assert mean_bps == pytest.approx(50e6, rel=0.01)
    # A long round counts for as long as it took.
    before = watched.moved("offered")
    watched.desk.now_s += 0.5
    watched.run([30e6, 20e6], [0.0, 0.0], 1)
    assert (watched.moved("offered") - before) * 8 == pytest.approx(50e6 * (0.5 + INTERVAL_S), rel=0.01)


def starve(watched: Watched, intervals: int) -> None:
    """Let the receiver get a tenth of what it is owed."""
    vns = len(watched.central.vns)
    for _ in range(intervals):
        offered, received = np.zeros(vns), np.zeros(vns)
        offered[watched.row], received[watched.row] = 40e6, 4e6
        fabric = watched.central.fabric
        fabric.guarantees = fabric.guarantees.updated(
            offered, received, watched.central.vns.receive_limit_bps, INTERVAL_S
        )
        watched.desk.now_s += INTERVAL_S
        watched.observer.on_round_end(watched.desk.now_s)


def test_a_guarantee_is_idle_met_or_missed_for_a_reason(watched: Watched) -> None:
    for _ in range(19):  # a second is full
        watched.desk.now_s += INTERVAL_S
        watched.observer.on_round_end(watched.desk.now_s)
    assert watched.seconds(GuaranteeState.IDLE) == pytest.approx(19 * INTERVAL_S)
    starve(watched, 38)
    assert watched.seconds(GuaranteeState.VIOLATED_GRANTS) > 1.0
    assert watched.desk.now_s - watched.observer.traffic.missing_since_s[watched.row] < 38 * INTERVAL_S
    watched.central.fabric.floods.received_bps = np.full(len(watched.central.vns), 10e6)
    starve(watched, 19)
    assert watched.seconds(GuaranteeState.VIOLATED_FLOODS) == pytest.approx(19 * INTERVAL_S)
    watched.desk.now_s += 1.0
    starve(watched, 1)
    assert watched.seconds(GuaranteeState.VIOLATED_CONTROLLER) == pytest.approx(1.0 + INTERVAL_S)
    watched.central.switch_disconnected(0xA1, watched.desk.now_s)
    starve(watched, 19)
    assert watched.seconds(GuaranteeState.VIOLATED_SWITCH) == pytest.approx(19 * INTERVAL_S)
    violated_s = sum(watched.seconds(one) for one in GuaranteeState if one >= GuaranteeState.VIOLATED_SWITCH)
    assert watched.observer.traffic.violated_s[watched.row] == pytest.approx(violated_s)
    assert watched.observer.traffic.violated_last_hour_s[watched.row] == pytest.approx(violated_s)


def test_the_hour_forgets_and_the_sum_does_not(watched: Watched) -> None:
    starve(watched, 30)
    violated_s = watched.observer.traffic.violated_s[watched.row]
    watched.central.fabric.guarantees = type(watched.central.fabric.guarantees).initial(len(watched.central.vns))
    for _ in range(61):
        watched.desk.now_s += 60.0
        watched.observer.on_round_end(watched.desk.now_s)
    assert watched.observer.traffic.violated_last_hour_s[watched.row] == 0.0
    assert watched.observer.traffic.violated_s[watched.row] == violated_s


def test_series_are_seconds_and_vns_are_watched_when_asked(watched: Watched) -> None:
    series = watched.observer.series
    assert len(series.vn_series(watched.central.vns, watched.row, watched.desk.now_s).at_s) == 0
    watched.run([30e6, 20e6], [0.0, 0.0], 200)
    for rows in (series.vlan_series(10), series.vn_series(watched.central.vns, watched.row, watched.desk.now_s)):
        assert len(rows.at_s) == int(200 * INTERVAL_S / (19 * INTERVAL_S))  # 19 intervals fill a second
        assert np.diff(rows.at_s) == pytest.approx(19 * INTERVAL_S)
        offered = SERIES_COLUMNS.index("offered")
        assert rows.mean_bps[-1, offered] == pytest.approx(50e6, rel=0.01)
        assert rows.max_bps[-1, offered] >= rows.mean_bps[-1, offered]
    watched.desk.now_s += WATCHED_S + 2
    watched.run([30e6, 20e6], [0.0, 0.0], 1)
    assert len(series.vn_series(watched.central.vns, watched.row, watched.desk.now_s).at_s) == 0  # it begins again


def test_series_are_bounded(watched: Watched) -> None:
    vns = watched.central.vns
    series = TimeSeries(vns)
    rates_bps = np.zeros((len(COLUMNS), len(vns)))
    for second in range(SECONDS + 50):
        series.add(watched.central, rates_bps)
        series.close(vns, rates_bps, float(second))
    assert len(series.vlan_series(10).at_s) == SECONDS
    assert series.vlan_series(10).at_s[[0, -1]].tolist() == [50.0, SECONDS + 49.0]


def test_the_vn_that_nobody_asked_for_the_longest_is_watched_no_more(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.monitoring.time_series.MAX_WATCHED", 2)
    vns = watched.central.vns
    series = TimeSeries(vns)
    for second, row in enumerate((0, 1, 0, 2)):
        series.vn_series(vns, row, float(second))
        series.close(vns, np.zeros((len(COLUMNS), len(vns))), float(second))
    assert [len(series.vn_series(vns, row, 4.0).at_s) for row in (0, 2, 1)] == [4, 1, 0]


def test_another_configuration_keeps_the_sums_of_the_vns_that_stay(watched: Watched) -> None:
    watched.run([30e6, 20e6], [0.0, 0.0], 40)
    before = watched.moved("offered")
    watched.central.drain_updates()
    config = parse_config(CONFIG.replace("      3: {capacity: 1G, access: 10}\n", ""))
    reconfigure(watched.central, config, watched.desk.now_s).finish(watched.central)
    watched.observer.sync_vns()
    row = watched.central.vns.row_of(10, 0xA1, 2)
    assert watched.observer.traffic.bytes.shape == (len(COLUMNS), len(watched.central.vns))
    assert watched.observer.traffic.bytes[COLUMNS.index("offered"), row] == before
    assert len(watched.observer.series.vlan_series(10).at_s) == 2
    watched.observer.on_round_end(watched.desk.now_s + INTERVAL_S)


def test_another_configuration_keeps_the_rates_of_the_vlans_that_stay() -> None:
    before, after = (VnTable.from_config(fabric({1: {1: vids}})) for vids in ([10, 20], [20]))
    series = TimeSeries(before)
    series.close(before, np.tile([5e6, 7e6], (len(COLUMNS), 1)), 1.0)
    kept = TimeSeries(after).with_history(series, after).vlan_series(20)
    assert kept.at_s.tolist() == [1.0]
    assert (kept.mean_bps == 7e6).all()


def test_links_are_promised_what_limits_let_through() -> None:
    config = parse_config(TREE)
    promises, vns = LinkCommitments(config), VnTable.from_config(config)
    # VLAN 10: 2 x 40 M may come from s1, 30 M may be received at s2; VLAN 20: 50 M either way.
    assert promises.committed_bps(PortId(1, 9), vns) == 30e6 + 50e6
    assert promises.committed_bps(PortId(9, 2), vns) == 30e6 + 50e6
    # The other way: 40 M come from s2, 2 x 30 M may be received at s1.
    assert promises.committed_bps(PortId(2, 9), vns) == 40e6 + 50e6
    assert promises.committed_bps(PortId(9, 7), vns) == 0.0


def test_links_have_been_up_since_they_came() -> None:
    config, times = parse_config(TREE), LinkUptime()
    known, found = Link(PortId(1, 9), PortId(9, 1)), Link(PortId(1, 8), PortId(2, 8))
    times.note(frozenset({known}), 5.0)
    times.note(frozenset({known, found}), 7.0)
    shown = {one.link: (one.capacity_bps, one.up, one.up_since_s) for one in times.list_links(config)}
    assert shown[known] == (10**9, True, 5.0)
    assert shown[found] == (None, True, 7.0)
    assert shown[Link(PortId(2, 9), PortId(9, 2))][:2] == (10**9, False)
    times.note(frozenset({found}), 9.0)
    times.note(frozenset({known, found}), 11.0)
    assert {one.link: one.up_since_s for one in times.list_links(config)}[known] == 11.0
