"""Switches that bound, round or refuse meters: nobody loses connectivity, and what is not limited is said."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.wire import OneSwitch, WireRun, frame

from controller.forwarding.pipeline import Table
from controller.openflow.constants import MessageType
from experiments.switch.meter_table import MeterLimits
from experiments.switch.options import DatapathOptions

pytestmark = pytest.mark.long
PORTS = OneSwitch.ports
# Of each VN: for its send limit, floods, discovery, newcomers and reports; two of them it cannot do without.
VN_METERS, NEEDED_METERS = 5 * 2 * len(PORTS), 2 * 2 * len(PORTS)
BOUNDS = {
    "burst": MeterLimits(max_burst_kbits=32_000),
    "least": MeterLimits(min_rate_kbps=64),
    "least of both": MeterLimits(min_rate_kbps=1_000, min_burst_kbits=64),
    "step": MeterLimits(rate_step_kbps=65),
    "all": MeterLimits(rate_step_kbps=64, min_rate_kbps=64, max_burst_kbits=25_000),
    "up": MeterLimits(rate_step_kbps=65, rounds="up"),
    "down": MeterLimits(rate_step_kbps=1_000, rounds="down"),
    "errors that say nothing": MeterLimits(max_burst_kbits=32_000, min_rate_kbps=64),
    "configured": MeterLimits(max_burst_kbits=32_000, min_rate_kbps=1_000, rate_step_kbps=1_000),
}
NEW = ("flag", "blank flag", "later", "blank later", "refusing later", "exists", "announced few")
LIMITS = {
    **BOUNDS,
    **dict.fromkeys(NEW, MeterLimits()),
    "unknown": MeterLimits(max_burst_kbits=32_000, min_rate_kbps=200),
    "unknown, late": MeterLimits(max_burst_kbits=32_000, min_rate_kbps=200),
    "few": MeterLimits(count=VN_METERS + 2),
    "fewer than pairs": MeterLimits(count=NEEDED_METERS + 2),
    "fewer than VNs": MeterLimits(count=3),
    "closed": MeterLimits(max_rate_kbps=450_000),
    "open": MeterLimits(max_rate_kbps=450_000),
}
DPIDS = {name: dpid for dpid, name in enumerate(LIMITS, 1)}
Switches = Callable[[str], OneSwitch]
KEYS = {
    "configured": {"profile": "full", "meters": {"max_burst": "32M", "min_rate": "1M", "rate_step": "1M"}},
    "unknown": {"profile": "full"},
    "unknown, late": {"profile": "full"},
    "closed": {"meters": {"fail": "closed", "max_rate": "450M"}},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireRun]:
    """A switch for each of LIMITS, with which no other test has to do."""
    options = {DPIDS[name]: DatapathOptions(meter_limits=limits) for name, limits in LIMITS.items()}
    options[DPIDS["announced few"]] = DatapathOptions(max_meters=NEEDED_METERS + 2)
    each = {DPIDS[name]: keys for name, keys in KEYS.items()}
    edges = dict.fromkeys(DPIDS.values(), PORTS)
    run = WireRun(tmp_path_factory.mktemp("bounds"), edges, options=options, each=each, well=False)
    run.switch(DPIDS["errors that say nothing"]).faults.blank_errors = True
    run.switch(DPIDS["unknown, late"]).faults.error_delay_s = 0.5
    with run:
        yield run


@pytest.fixture
def switch(run: WireRun) -> Switches:
    return lambda name: OneSwitch(run, DPIDS[name])


def talk(switch: OneSwitch) -> None:
    """Let three hosts talk; all reach each other, before there are pairs and after."""
    switch.introduce()
    assert switch.all_pass()
    count = len(switch.pairs)
    switch.wait(lambda: len(switch.listed("pairs")) + len(switch.listed("unmetered_pairs")) == count, "pairs")
    assert switch.all_pass()


def all_metered(switch: OneSwitch) -> bool:
    return switch.listed("unmetered_pairs") == []


def reasons_without_meter(switch: OneSwitch, pairs: int, timeout_s: float = 15.0) -> set[str]:
    """Wait until so many pairs have no meter; return why. A moment later the controller may try again."""

    def without() -> list[str] | None:
        whys = [pair["why"] for pair in switch.listed("unmetered_pairs")]
        return whys if len(whys) == pairs else None

    return set(switch.wait(without, f"{pairs} pairs without a meter", timeout_s))


def reset(switch: OneSwitch) -> None:
    """Let a switch connect again, with empty tables."""
    connections = switch.run.fabric.connections(switch.dpid)
    switch.run.fabric.disconnect(switch.dpid, keep_tables=False)
    switch.wait(lambda: switch.run.fabric.connections(switch.dpid) > connections, "connected again")


def set_blank(switch: OneSwitch, blank: bool) -> None:
    with switch.run.fabric.locked():
        switch.datapath.faults.blank_errors = blank


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_are_found_out_and_kept(switch: Switches, name: str) -> None:
    """Those that are configured are not tested: the profile vouches for a switch that would refuse what is above."""
    found, limits = switch(name), BOUNDS[name]
    talk(found)
    assert (len(found.listed("pairs")), found.listed("unmetered_pairs")) == (6, [])
    assert found.faults() == []
    settings = found.meters().values()
    assert max(burst for _, burst in settings) == min(150_000, limits.max_burst_kbits)
    assert all(rate % limits.rate_step_kbps == 0 and rate >= limits.min_rate_kbps for rate, _ in settings)
    # Of no VN the limit is passed.
    assert max(rate for rate, _ in settings) == 500_000 // limits.rate_step_kbps * limits.rate_step_kbps
    assert all(found.events(kind) == [] for kind in ("switch-error", "tables-repaired", "out-of-meters"))


@pytest.mark.parametrize("name", ["unknown", "unknown, late"])
def test_bounds_that_nobody_knew_of_are_learned_from_refusals(switch: Switches, name: str) -> None:
    unknown = switch(name)
    talk(unknown)
    unknown.wait(lambda: len(unknown.meters()) == VN_METERS + 6, "all meters", 45)
    unknown.wait(lambda: all_metered(unknown), "all metered")
    assert name == "unknown, late" or unknown.events("out-of-meters") == []


def test_a_switch_that_comes_back_with_other_meters_is_served_as_it_is_then(tmp_path: Path) -> None:
    """They say nothing of the change, their tables are empty: what they take is learned again from what they refuse."""
    with WireRun(tmp_path, {1: PORTS, 2: PORTS}) as run:
        bounded, few = OneSwitch(run, 1), OneSwitch(run, 2)
        changed = {"limits": MeterLimits(max_burst_kbits=1_000, min_rate_kbps=64)}, {"max_meters": VN_METERS // 2}
        for switch, abilities in zip((bounded, few), changed, strict=True):
            talk(switch)
            assert max(burst for _, burst in switch.meters().values()) > 1_000
            switch.set_abilities(**abilities)
            reset(switch)
            switch.wait(lambda switch=switch: run.health()["switches"][switch.name] == "ready", "up", 30)
            switch.introduce()
            switch.wait(switch.all_pass, "connected", 5)
        bounded.wait(lambda: len(bounded.meters()) == VN_METERS + 6, "all meters", 30)
        assert max(burst for _, burst in bounded.meters().values()) <= 1_000
        assert min(rate for rate, _ in bounded.meters().values()) >= 64
        assert len(few.meters()) <= VN_METERS // 2
        few.wait(lambda: "without a meter" in str(few.faults()), "said")


@pytest.mark.parametrize("name", ["flag", "blank flag"])
def test_whatever_a_switch_refuses_nobody_is_cut_off(switch: Switches, name: str) -> None:
    """It knows no OFPMF_BURST from some time on: nothing can be learned from that but to go without."""
    refusing = switch(name)
    set_blank(refusing, name == "blank flag")
    refusing.set_abilities(limits=MeterLimits(supports_burst_flag=False))
    reset(refusing)
    refusing.wait(lambda: refusing.flows(Table.FORWARD), "brought up")
    talk(refusing)
    refusing.wait(lambda: len(refusing.listed("unmetered_pairs")) == 6, "without", 30)
    assert refusing.all_pass()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("later", "METER_MOD_FAILED / BAD_FLAGS"),
        ("blank later", "it is not installed|the switch rejects flow entries that name it"),
        ("refusing later", "all meters of its switch are in use"),
    ],
)
def test_meters_that_are_refused_later_leave_their_pairs_without(switch: Switches, name: str, said: str) -> None:
    refusing = switch(name)
    refusing.introduce()
    set_blank(refusing, name == "blank later")
    if name == "refusing later":
        refusing.set_abilities(refuse=True)
    else:
        refusing.set_abilities(limits=MeterLimits(supports_burst_flag=False))
    talk(refusing)
    (why,) = reasons_without_meter(refusing, 6, 30)
    assert re.search(said, why)
    refusing.wait(lambda: re.search(said, str(refusing.faults())), "told")
    assert refusing.all_pass()
    errors = str(refusing.events("switch-error"))
    assert "METER_MOD" in errors
    assert name == "blank later" or "FLOW_MOD" in errors  # the entry that was to use the meter
    refusing.set_abilities(limits=MeterLimits(), refuse=False)
    refusing.wait(lambda: all_metered(refusing), "metered again", 45)
    refusing.wait(lambda: refusing.faults() == [], "well again", 45)


def test_where_meters_are_few_vns_leave_some_to_pairs(switch: Switches) -> None:
    """The switch says that it has many: that it has few shows when it refuses one."""
    few = switch("few")
    talk(few)
    few.wait(lambda: all_metered(few), "all with a meter")
    few.wait(lambda: few.faults() == [], "no more refused", 30)
    assert few.all_pass()


@pytest.mark.parametrize("name", ["fewer than pairs", "announced few"])
def test_the_largest_of_more_pairs_than_meters_have_one(switch: Switches, name: str) -> None:
    """The others share the meters of their VNs' send limits."""
    few = switch(name)
    talk(few)
    few.wait(lambda: few.events("out-of-meters"), "told")
    assert name != "announced few" or few.events("switch-error") == []
    assert reasons_without_meter(few, 4) == {"all meters of its switch are in use"}
    few.wait(lambda: "4 pairs without a meter" in str(few.faults()), "told")

    def metered() -> set[tuple[int, int]]:
        return {(one["sender"]["port_no"], one["receiver"]["port_no"]) for one in few.listed("pairs")}

    with few.offering(30e6, (3, 1), (3, 2)):
        few.wait(lambda: metered() == {(3, 1), (3, 2)}, "passed on", 20)
        assert few.all_pass()


def test_fewer_meters_than_vns_cut_nobody_off(switch: Switches) -> None:
    few = switch("fewer than VNs")
    talk(few)
    assert len(few.listed("unmetered_pairs")) == 6
    few.wait(lambda: "send limit" in str(few.faults()), "told")


def test_a_vn_without_a_meter_is_cut_off_where_that_is_configured(switch: Switches) -> None:
    closed = switch("closed")
    closed.introduce()
    assert closed.passes(1, 2)
    closed.wait(lambda: "above 450M" in str(closed.faults()), "told")
    goto = {flow.match.vlan_vid: flow.goto_table for flow in closed.flows(Table.SEND_LIMIT)}
    assert goto == {10: Table.LEARN, 20: None}


def test_a_limit_above_all_meters_is_said_and_cuts_nobody_off(switch: Switches) -> None:
    above = switch("open")
    talk(above)
    above.introduce(20)
    above.passes(1, 2, 20)
    above.wait(lambda: len(above.listed("unmetered_pairs")) == 1, "without a meter")
    assert "above 450M" in above.listed("unmetered_pairs")[0]["why"]
    assert "above 450M" in str(above.faults())
    assert above.passes(1, 2, 20)
    above.run.app.patch(f"/v1/vns/20/{above.name}/1", send_limit_bps=400_000_000)
    above.wait(lambda: all_metered(above), "with a meter")


def test_a_meter_that_a_switch_has_already_is_set(switch: Switches) -> None:
    """METER_EXISTS: somebody has made a meter of an id that was free."""
    other = switch("exists")
    other.introduce()
    with other.run.fabric.locked():
        meters = other.datapath.meters
        meters._grow(VN_METERS + 1)
        row = meters._rows[VN_METERS + 1]
        row["exists"], row["flags"], row["rate_kbps"], row["burst_kbits"] = True, 13, 7, 7
    talk(other)
    other.wait(lambda: other.meters()[VN_METERS + 1][0] > 7, "set")
    assert all_metered(other)


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
