"""Switches that bound, round or refuse meters: nobody loses connectivity, and what is not limited is said."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest
from support.wire import WireRun, frame

from controller.forwarding.pipeline import Table
from controller.openflow.constants import MessageType
from experiments.switch.meter_table import MeterLimits
from experiments.switch.options import DatapathOptions

PORTS = (1, 2, 3)
# Of each VN: for its send limit, floods, discovery, newcomers and reports; two of them it cannot do without.
VN_METERS, NEEDED_METERS = 5 * 2 * len(PORTS), 2 * 2 * len(PORTS)


def bounded(folder: Path, limits: MeterLimits, well: bool = True, **switch: object) -> WireRun:
    """Return a run of one switch with these limits; ``switch`` are keys of its configuration."""
    return WireRun(folder, {1: PORTS}, options=DatapathOptions(meter_limits=limits), switch=switch, well=well)


def set_limits(run: WireRun, **limits: Any) -> None:
    with run.fabric.locked():
        run.switch(1).abilities.limits = dataclasses.replace(run.switch(1).abilities.limits, **limits)


def passes(run: WireRun, sender: int, receiver: int, vlan_vid: int = 10) -> bool:
    run.fabric.forget_received()
    run.fabric.inject(1, sender, frame(0xA0 + sender, 0xA0 + receiver, vlan_vid))
    return len(run.fabric.received(1, receiver)) == 1


def talk(run: WireRun) -> None:
    """Let three hosts talk; all reach each other, before there are pairs and after."""
    for port in PORTS:
        run.introduce(1, port, 0xA0 + port)
    pairs = [(one, other) for one in PORTS for other in PORTS if one != other]
    assert all(passes(run, *pair) for pair in pairs)
    run.app.wait_for(lambda: len(shown(run, "pairs")) + len(shown(run, "unmetered_pairs")) == len(pairs), "pairs")
    assert all(passes(run, *pair) for pair in pairs)


def shown(run: WireRun, what: str) -> list[dict[str, Any]]:
    return list(run.app.get("/v1/pairs")[what])


@pytest.mark.parametrize(
    "limits",
    [
        MeterLimits(max_burst_kbits=32_000),
        MeterLimits(min_rate_kbps=64),
        MeterLimits(min_rate_kbps=1_000, min_burst_kbits=64),
        MeterLimits(rate_step_kbps=65),
        MeterLimits(rate_step_kbps=64, min_rate_kbps=64, max_burst_kbits=25_000),
        MeterLimits(rate_step_kbps=65, rounds="up"),
        MeterLimits(rate_step_kbps=1_000, rounds="down"),
    ],
    ids=["burst", "least", "least of both", "step", "all", "up", "down"],
)
def test_bounds_are_found_out_and_kept(tmp_path: Path, limits: MeterLimits) -> None:
    with bounded(tmp_path, limits) as run:
        talk(run)
        assert (len(shown(run, "pairs")), shown(run, "unmetered_pairs")) == (6, [])
        assert all(run.app.events(kind) == [] for kind in ("switch-error", "tables-repaired", "out-of-meters"))
        settings = run.meters(1).values()
        assert max(burst for _, burst in settings) == min(150_000, limits.max_burst_kbits)
        assert all(rate % limits.rate_step_kbps == 0 and rate >= limits.min_rate_kbps for rate, _ in settings)
        # Of no VN the limit is passed.
        assert max(rate for rate, _ in settings) == 500_000 // limits.rate_step_kbps * limits.rate_step_kbps
        assert run.health()["status"] == "ready"


def test_bounds_are_found_though_errors_say_nothing(tmp_path: Path) -> None:
    run = bounded(tmp_path, MeterLimits(max_burst_kbits=32_000, min_rate_kbps=64))
    run.switch(1).faults.blank_errors = True
    with run:
        talk(run)
        assert shown(run, "unmetered_pairs") == []
        assert {max(burst for _, burst in run.meters(1).values())} == {32_000}


def test_bounds_that_are_configured_are_kept_and_not_tested(tmp_path: Path) -> None:
    """The profile vouches for the switch, which would refuse what is above."""
    limits = MeterLimits(max_burst_kbits=32_000, min_rate_kbps=1_000, rate_step_kbps=1_000)
    meters = {"max_burst": "32M", "min_rate": "1M", "rate_step": "1M"}
    with bounded(tmp_path, limits, profile="full", meters=meters) as run:
        talk(run)
        assert shown(run, "unmetered_pairs") == []
        assert run.app.events("switch-error") == []


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_bounds_that_nobody_knew_of_are_learned_from_refusals(tmp_path: Path, late: bool) -> None:
    run = bounded(tmp_path, MeterLimits(max_burst_kbits=32_000, min_rate_kbps=200), profile="full")
    run.switch(1).faults.error_delay_s = 0.5 if late else 0.0
    with run:
        talk(run)
        run.wait(lambda: len(run.meters(1)) == VN_METERS + 6, "all meters", 45)
        run.app.wait_for(lambda: shown(run, "unmetered_pairs") == [], "all metered")
        assert late or run.app.events("out-of-meters") == []


@pytest.mark.parametrize(
    "becomes", [{"limits": MeterLimits(max_burst_kbits=1_000, min_rate_kbps=64)}, {"max_meters": VN_METERS // 2}]
)
def test_a_switch_that_comes_back_with_other_meters_is_served_as_it_is_then(
    tmp_path: Path, becomes: dict[str, Any]
) -> None:
    """It says nothing of the change, its tables are empty: what it takes is learned again from what it refuses."""
    with bounded(tmp_path, MeterLimits()) as run:
        talk(run)
        assert max(burst for _, burst in run.meters(1).values()) > 1_000
        with run.fabric.locked():
            for name, value in becomes.items():
                setattr(run.switch(1).abilities, name, value)
        connections = run.fabric.connections(1)
        run.fabric.disconnect(1, keep_tables=False)
        run.wait(lambda: run.fabric.connections(1) > connections, "back")
        run.app.wait_for(lambda: run.health()["switches"] == {"s1": "ready"}, "up", 30)
        for port in PORTS:
            run.introduce(1, port, 0xA0 + port)
        pairs = [(one, other) for one in PORTS for other in PORTS if one != other]
        run.app.wait_for(lambda: all(passes(run, *pair) for pair in pairs), "connected", 5)
        if "limits" in becomes:
            run.wait(lambda: len(run.meters(1)) == VN_METERS + 6, "all meters", 30)
            assert max(burst for _, burst in run.meters(1).values()) <= 1_000
            assert min(rate for rate, _ in run.meters(1).values()) >= 64
        else:
            assert len(run.meters(1)) <= VN_METERS // 2
            run.app.wait_for(lambda: "without a meter" in str(run.health().get("faults")), "said")


@pytest.mark.parametrize("blank", [False, True], ids=["telling", "blank"])
def test_whatever_a_switch_refuses_nobody_is_cut_off(tmp_path: Path, blank: bool) -> None:
    """It knows no OFPMF_BURST from some time on: nothing can be learned from that but to go without."""
    with bounded(tmp_path, MeterLimits()) as run:
        with run.fabric.locked():
            run.switch(1).faults.blank_errors = blank
        set_limits(run, supports_burst_flag=False)
        run.fabric.disconnect(1, keep_tables=False)
        run.app.wait_for(lambda: run.fabric.connections(1) == 2, "connected again")
        run.wait(lambda: run.flows(1, Table.FORWARD), "brought up")
        talk(run)
        run.app.wait_for(lambda: len(shown(run, "unmetered_pairs")) == 6, "without", 30)
        assert all(passes(run, one, other) for one in PORTS for other in PORTS if one != other)


@pytest.mark.parametrize("blank", [False, True], ids=["telling", "blank"])
def test_meters_that_are_refused_later_leave_their_pairs_without(tmp_path: Path, blank: bool) -> None:
    with bounded(tmp_path, MeterLimits()) as run:
        for port in PORTS:
            run.introduce(1, port, 0xA0 + port)
        with run.fabric.locked():
            run.switch(1).faults.blank_errors = blank
        set_limits(run, supports_burst_flag=False)
        talk(run)
        run.app.wait_for(lambda: len(shown(run, "unmetered_pairs")) == 6, "without", 30)
        why = {pair["why"] for pair in shown(run, "unmetered_pairs")}
        said = "it is not installed" if blank else "METER_MOD_FAILED / BAD_FLAGS"
        assert len(why) == 1
        assert said in why.pop()
        run.app.wait_for(lambda: said in str(run.health().get("faults")), "told")
        assert all(passes(run, one, other) for one in PORTS for other in PORTS if one != other)
        set_limits(run, supports_burst_flag=True)
        run.app.wait_for(lambda: shown(run, "unmetered_pairs") == [], "metered again", 45)
        run.app.wait_for(lambda: run.health()["status"] == "ready", "well again", 45)


def test_where_meters_are_few_vns_leave_some_to_pairs(tmp_path: Path) -> None:
    """The switch says that it has many: that it has few shows when it refuses one."""
    with bounded(tmp_path, MeterLimits(count=VN_METERS + 2)) as run:
        talk(run)
        run.app.wait_for(lambda: shown(run, "unmetered_pairs") == [], "all with a meter")
        run.app.wait_for(lambda: run.health()["status"] == "ready", "no more refused", 30)
        assert all(passes(run, one, other) for one in PORTS for other in PORTS if one != other)


def test_the_largest_of_more_pairs_than_meters_have_one(tmp_path: Path) -> None:
    """The others share the meters of their VNs' send limits."""
    with bounded(tmp_path, MeterLimits(count=NEEDED_METERS + 2)) as run:
        talk(run)
        run.app.wait_for(lambda: len(shown(run, "unmetered_pairs")) == 4, "two of six with a meter")
        assert {pair["why"] for pair in shown(run, "unmetered_pairs")} == {"all meters of its switch are in use"}
        run.app.wait_for(lambda: "4 pairs without a meter" in str(run.health().get("faults")), "told")
        for sender, receiver in ((3, 1), (3, 2)):
            run.offer((1, sender), 0xA0 + sender, 0xA0 + receiver, 30e6)
        wanted = {(3, 1), (3, 2)}

        def metered() -> set[tuple[int, int]]:
            return {(one["sender"]["port_no"], one["receiver"]["port_no"]) for one in shown(run, "pairs")}

        run.app.wait_for(lambda: metered() == wanted, "passed on", 20)
        assert all(passes(run, one, other) for one in PORTS for other in PORTS if one != other)


def test_fewer_meters_than_vns_cut_nobody_off(tmp_path: Path) -> None:
    with bounded(tmp_path, MeterLimits(count=3), well=False) as run:
        talk(run)
        assert len(shown(run, "unmetered_pairs")) == 6
        run.app.wait_for(lambda: "send limit" in str(run.health().get("faults")), "told")


def test_a_vn_without_a_meter_is_cut_off_where_that_is_configured(tmp_path: Path) -> None:
    meters = {"fail": "closed", "max_rate": "450M"}
    with bounded(tmp_path, MeterLimits(max_rate_kbps=450_000), well=False, meters=meters) as run:
        for port in PORTS:
            run.introduce(1, port, 0xA0 + port)
        assert passes(run, 1, 2, 10)
        run.app.wait_for(lambda: "above 450M" in str(run.health().get("faults")), "told")
        with run.fabric.locked():
            goto = {flow.match.vlan_vid: flow.goto_table for flow in run.switch(1).tables.flows() if flow.table_id == 1}
        assert goto == {10: Table.LEARN, 20: None}


def test_a_limit_above_all_meters_is_said_and_cuts_nobody_off(tmp_path: Path) -> None:
    with bounded(tmp_path, MeterLimits(max_rate_kbps=450_000), well=False) as run:
        talk(run)
        for port in PORTS:
            run.introduce(1, port, 0xB0 + port, 20)
        run.fabric.inject(1, 1, frame(0xB1, 0xB2, 20))
        run.app.wait_for(lambda: len(shown(run, "unmetered_pairs")) == 1, "without a meter")
        assert "above 450M" in shown(run, "unmetered_pairs")[0]["why"]
        assert "above 450M" in str(run.health()["faults"])
        run.fabric.forget_received()
        run.fabric.inject(1, 1, frame(0xB1, 0xB2, 20))
        assert len(run.fabric.received(1, 2)) == 1
        run.app.patch("/v1/vns/20/s1/1", send_limit_bps=400_000_000)
        run.app.wait_for(lambda: shown(run, "unmetered_pairs") == [], "with a meter")


def test_a_meter_that_a_switch_has_already_is_set(tmp_path: Path) -> None:
    """METER_EXISTS: somebody has made a meter of an id that was free."""
    with bounded(tmp_path, MeterLimits()) as run:
        for port in PORTS:
            run.introduce(1, port, 0xA0 + port)
        with run.fabric.locked():
            meters = run.switch(1).meters
            meters._grow(VN_METERS + 1)
            row = meters._rows[VN_METERS + 1]
            row["exists"], row["flags"], row["rate_kbps"], row["burst_kbits"] = True, 13, 7, 7
        talk(run)
        run.wait(lambda: run.meters(1)[VN_METERS + 1][0] > 7, "set")
        assert shown(run, "unmetered_pairs") == []


@pytest.mark.rates
@pytest.mark.parametrize(
    ("frame_bytes", "limit_bps"), [(9_018, 2_000_000), (64_000, 1_500_000)], ids=["jumbo", "segments"]
)
def test_frames_larger_than_a_burst_pass_at_their_limit(tmp_path: Path, frame_bytes: int, limit_bps: int) -> None:
    """A sender that does not respond to drops, at three times its limit, once with jumbo frames and once with GSO's.

    It sends no others, so that the controller learns of the pair by these.
    """
    with WireRun(tmp_path, {1: PORTS}) as run:
        for port in (1, 2):
            run.introduce(1, port, 0xA0 + port)
        run.app.patch("/v1/vns/10/s1/2", receive_limit_bps=limit_bps)
        octets = frame(0xA1, 0xA2, 10).ljust(frame_bytes, b"\0")
        send_steadily(run, octets, 3 * limit_bps, seconds=3.0)
        run.fabric.forget_received()
        mods = run.handled(1, MessageType.METER_MOD)
        begun_s = time.monotonic()
        sent = send_steadily(run, octets, 3 * limit_bps, seconds=6.0)
        passed_bps = 8 * frame_bytes * len(run.fabric.received(1, 2)) / (time.monotonic() - begun_s)
        assert sent > 2 * len(run.fabric.received(1, 2))
        frame_bps = 8 * frame_bytes / 6.0
        assert 0.9 * limit_bps - frame_bps < passed_bps < 1.1 * limit_bps + 2 * frame_bps
        assert run.handled(1, MessageType.METER_MOD) - mods < 30


def send_steadily(run: WireRun, octets: bytes, rate_bps: float, seconds: float) -> int:
    """Send a frame from port 1 again and again, at a rate; return how often."""
    begun_s, sent = time.monotonic(), 0
    while (passed_s := time.monotonic() - begun_s) < seconds:
        while sent < passed_s * rate_bps / (8 * len(octets)):
            run.fabric.inject(1, 1, octets)
            sent += 1
        time.sleep(0.002)
    return sent
