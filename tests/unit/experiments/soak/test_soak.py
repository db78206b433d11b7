"""The soak's pure parts: the schedule, the judgement of rates, events and logs, the verdict on leaks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from controller.errors import InvalidValueError
from experiments.measure.rate_series import Rates
from experiments.soak.ledger import (
    MENDS_AFTER_START_S,
    Ledger,
    LogTail,
    ProcessUse,
    ResourceHoldings,
    Sample,
    Transient,
    unexplained,
)
from experiments.soak.run import run, soak_fabric
from experiments.soak.schedule import LONG_S, RESTARTS_SHARE, Action, ActionKind, make_schedule
from experiments.soak.verdict import (
    FLOOR_SHARE,
    MIB,
    busy_windows,
    floor_share,
    growth_per_minute,
    judge_ceiling,
    judge_floor,
    limits_by_window,
    verdict,
    windows_of,
)

FABRIC = soak_fabric()
JUDGED = FABRIC.vn(1, 5)


@pytest.mark.parametrize("seed", range(5))
def test_two_minutes_hold_every_kind_in_order_and_spare_the_judged_link(seed: int) -> None:
    actions = make_schedule(FABRIC, 120, seed)
    assert actions == make_schedule(FABRIC, 120, seed) != make_schedule(FABRIC, 120, seed + 1)
    assert {action.kind for action in actions} == set(ActionKind)
    assert [action.at_s for action in actions] == sorted(action.at_s for action in actions)
    assert all(8 <= action.at_s < 114 for action in actions)
    links = {action.what for action in actions if action.kind == ActionKind.LINK}
    assert links
    assert links.isdisjoint({"p5-eth1", "s3-eth1"})
    assert {a.what for a in actions if a.kind == ActionKind.CONTROLLER} == {"SIGTERM", "SIGKILL"}


def test_the_last_third_of_a_long_run_has_no_restarts() -> None:
    actions = make_schedule(FABRIC, LONG_S, 1)
    restarts = [action.at_s for action in actions if action.kind == ActionKind.CONTROLLER]
    assert 0.5 * LONG_S < max(restarts) < RESTARTS_SHARE * LONG_S
    assert max(action.at_s for action in actions) > 0.95 * LONG_S


def test_no_flow_is_from_a_vn_to_itself_and_limits_always_fit_their_ports() -> None:
    actions = make_schedule(FABRIC, 3600, 3)
    assert all(a.sender != a.receiver for a in actions if a.kind == ActionKind.FLOW)
    most_bps = max(a.rate_bps or 0 for a in actions if a.kind == ActionKind.LIMIT)
    assert most_bps + 25_000_000 <= FABRIC.pns[0].link_rate_bps


@pytest.mark.parametrize(("field", "value"), [("minutes", 0.4), ("minutes", 2000), ("seed", -1)])
def test_what_cannot_be_run_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidValueError) as caught:
        run(**{field: value})
    assert caught.value.key == field


def rates(bps: list[float]) -> Rates:
    """One sample a second from 0 on, all of it goodput."""
    time_s = np.arange(len(bps) + 1.0)
    return Rates(time_s[:-1], time_s[1:], np.array(bps), np.array(bps))


def test_the_floor_is_missed_below_80_percent_of_the_goodput_allowed_and_nowhere_else() -> None:
    allowed_bps = 10e6 * 1448 / 1518
    received = [allowed_bps] * 2 + [0.79 * allowed_bps] * 2 + [0.81 * allowed_bps] * 2
    starts = windows_of(0, 6)
    judgement = judge_floor("v", rates(received), [(0, 10e6)], starts, [], np.zeros(3, bool))
    assert judgement.missed.tolist() == [False, True, False]
    excuse = Transient(3.5, 3.6)
    judgement = judge_floor("v", rates(received), [(0, 10e6)], starts, [excuse], np.zeros(3, bool))
    assert (judgement.missed.tolist(), judgement.judged) == ([False, False, False], 2)
    assert floor_share(judgement) == pytest.approx((1 + 0.81) / 2, rel=1e-3)
    judgement = judge_floor("v", rates(received), [(0, 10e6)], starts, [], np.array([0, 1, 0], bool))
    assert judgement.judged == 2


def test_a_ceiling_is_not_excused_by_what_excuses_a_floor() -> None:
    received = [9e6, 9e6, 11e6, 11e6]
    link, change = Transient(2, 3), Transient(2, 3, ceiling=True)
    changes = [(0, 10e6)]
    assert judge_ceiling("v", rates(received), changes, windows_of(0, 4), [link]).missed.tolist() == [False, True]
    assert not judge_ceiling("v", rates(received), changes, windows_of(0, 4), [change]).missed.any()


def test_a_window_has_the_largest_limit_that_was_in_force_in_it() -> None:
    changes = [(-5, 20e6), (3, 8e6), (6, 12e6)]
    assert limits_by_window(changes, windows_of(0, 8)).tolist() == [20e6, 20e6, 8e6, 12e6]


def test_a_busy_look_tells_of_all_windows_since_the_look_before() -> None:
    samples = [Sample(*values) for values in ((1.0, 0.5), (3.0, 0.5), (5.5, 0.01), (7.0, 0.5))]
    busy = busy_windows(samples, windows_of(0, 10))
    assert busy.tolist() == [False, True, True, False, False]


def test_only_mending_soon_after_a_start_is_explained() -> None:
    def event(kind: str, at_s: float) -> dict[str, object]:
        return {"kind": kind, "at_s": at_s, "text": "x"}

    soon, late = 100 + MENDS_AFTER_START_S - 1, 100 + MENDS_AFTER_START_S + 1

    def faults(*events: dict[str, object]) -> list[tuple[float, str]]:
        ledger = Ledger(FABRIC, JUDGED, starts_s=[0.0, 100.0])
        ledger.note_events(events)
        assert ledger.events.total() == len(events)
        return ledger.faults

    assert faults(event("tables-repaired", soon), event("link-up", late)) == []
    assert faults(event("tables-repaired", late)) == [(late, "tables-repaired: x")]
    assert len(faults(event("queue-write-failed", soon))) == 1


@pytest.mark.parametrize(
    ("line", "explained"),
    [
        ("2026-11-21T11:08:47Z|02028|rconn|WARN|s1<->tcp:127.0.0.1:6653: connection failed (Connection refused)", True),
        ("2026-11-21T11:08:47Z|02029|netdev_linux|WARN|error receiving Ethernet packet on p1: Network is down", True),
        ("2026-11-21T11:58:18.717Z|00005|jsonrpc|WARN|unix#2634: send error: Broken pipe", True),
        ("2026-11-21T11:58:18.720Z|00006|reconnect|WARN|unix#2634: connection dropped (Broken pipe)", True),
        ("2026-11-21T11:19:02.087Z|03678|dpif_netdev|ERR|Dropped 44 log messages in last 32 seconds", True),
        ("2026-11-21T11:08:47Z|1|bridge|INFO|fine", True),
        ("switch-up: s1 is up", True),
        ("2026-11-21T11:08:47Z|02030|ofproto_dpif|WARN|something else", False),
        ("2026-11-21T11:08:47Z|02031|ovs_rcu|ERR|blocked", False),
        ("Traceback (most recent call last):", False),
        ('{"level": "error", "event": "x"}', False),
        ("2026-11-21 11:08:47 [warning  ] something", False),
    ],
)
def test_lines_that_nobody_has_explained_are_found(line: str, explained: bool) -> None:
    assert unexplained([line]) == ([] if explained else [line])


def test_a_tail_is_what_was_written_since(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    tail = LogTail(path)
    with path.open("a") as file:
        file.write("after\n")
    assert tail.lines() == ["after"]
    assert LogTail(tmp_path / "none").lines() == []


def test_growth_is_a_slope_per_minute() -> None:
    assert growth_per_minute([10, 40, 70], [5.0, 6.0, 7.0]) == pytest.approx(2.0)
    assert growth_per_minute([1], [5.0]) == 0.0


HELD = ResourceHoldings(10, 80, Counter({"QoS": 3, "Queue": 9}))


def ledger(minutes: float = 12.0, mib_per_minute: float = 0.0) -> Ledger:
    """A run in which everything held, of a controller that never was restarted."""
    end_s = minutes * 60
    samples = []
    for at_s in range(0, int(end_s) + 1, 10):
        use = ProcessUse(int((100 + at_s / 60 * mib_per_minute) * MIB), 12)
        samples.append(Sample(float(at_s), 0.5, use, ProcessUse(20 * MIB, 100), HELD))
    return Ledger(
        FABRIC,
        JUDGED,
        end_s=end_s,
        limits={vn.name: [(0.0, 20e6)] for vn in FABRIC.vns()},
        starts_s=[0.0],
        done=[(float(n), Action(n, kind)) for n, kind in enumerate(ActionKind)],
        samples=samples,
        rates={vn.name: rates([19.5e6] * int(end_s)) for vn in FABRIC.vns()},
    )


def missed(written: Ledger) -> list[str]:
    return [row["name"] for row in verdict(written)["targets"] if not row["met"]]


def test_a_run_in_which_everything_held_misses_nothing() -> None:
    assert missed(ledger()) == []


def test_a_slow_leak_of_memory_is_found_once_a_life_is_long() -> None:
    assert missed(ledger(mib_per_minute=1.0)) == ["memory of controller, once settled"]
    assert missed(ledger(minutes=2, mib_per_minute=1.0)) == []


def test_what_is_left_over_is_told() -> None:
    leaking = ledger()
    more = ResourceHoldings(11, 82, Counter({"QoS": 4, "Queue": 9}))
    leaking.samples.append(Sample(730.0, 0.5, ProcessUse(100 * MIB, 20), ProcessUse(90 * MIB, 100), more))
    leaking.rows_before, leaking.rows_after = Counter({"Queue": 1}), Counter({"Queue": 2})
    assert missed(leaking) == [
        "meters left over",
        "flow entries left over",
        "rows in OVSDB left over",
        "rows in OVSDB after the fabric's end",
        "file handles of controller left open",
        "memory of ovs-vswitchd, end less begin",
    ]


def test_a_guarantee_that_was_missed_is_told_with_what_was_done_last() -> None:
    bad = ledger(minutes=2)
    bad.rates[JUDGED.name].tcp_goodput_bps[60:62] = 1e6
    bad.rates["v2_1"].wire_bps[80:82] = 30e6
    assert missed(bad) == ["floor violated", "ceilings violated"]
    floor, ceiling = verdict(bad)["misses"]
    assert (floor["vn"], floor["at_s"], ceiling["vn"], ceiling["at_s"]) == (JUDGED.name, 60.0, "v2_1", 80.0)
    assert len(floor["last_actions"]) == 3


def test_a_floor_that_is_short_all_the_time_is_told() -> None:
    """Though no window is as short as one in which TCP waited."""
    short = ledger(minutes=2)
    before = next(row["value"] for row in verdict(short)["targets"] if row["name"] == FLOOR_SHARE)
    short.rates[JUDGED.name].tcp_goodput_bps[:] *= 0.94 / before
    assert missed(short) == [FLOOR_SHARE]
    assert verdict(short)["misses"] == []


def test_a_machine_without_time_proves_nothing() -> None:
    busy = ledger(minutes=2)
    for sample in busy.samples:
        sample.idle_share = 0.01
    busy.rates[JUDGED.name].tcp_goodput_bps[60:62] = 1e6
    assert missed(busy) == ["windows in which the machine had time"]


def test_a_kind_of_churn_that_never_took_place_proves_nothing() -> None:
    idle = ledger()
    del idle.done[0]
    assert missed(idle) == ["kinds of churn that took place"]
