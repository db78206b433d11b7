"""Switches whose counters and meters are not to be trusted: what the running application does about each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.wire import WireRun

from controller.openflow.constants import MessageType, MultipartType

LINK = [((1, 11), (2, 11))]
LIMIT_BPS = 400e6
SENDERS = (1, 2, 3)
RECEIVER, RECEIVER_MAC = 4, 0xB1


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """A switch with three senders that together offer twice what their receiver may get, and another switch."""
    with WireRun(tmp_path, {1: [*SENDERS, RECEIVER], 2: [1, 2]}, LINK) as made:
        made.introduce(1, RECEIVER, RECEIVER_MAC)
        for port in SENDERS:
            made.introduce(1, port, 0xA0 + port)
            made.offer((1, port), 0xA0 + port, RECEIVER_MAC, 270e6)
        yield made


def grants(run: WireRun) -> list[int]:
    entries = [run.app.entry(port, RECEIVER, 10) for port in SENDERS]
    return [entry["granted_bps"] or 0 for entry in entries if entry is not None]


def held(run: WireRun) -> bool:
    """Whether the three limits sum to the receiver's, and its account lets the meters pass no more than it promises."""
    views = [run.app.entry(port, RECEIVER, 10) for port in SENDERS]
    meters = run.meters(1)
    known = [view for view in views if view is not None and view["meter_id"] in meters]
    if len(known) < len(SENDERS):
        return False
    limits_bps = sum(view["limit_bps"] for view in known)
    rates_bps = sum(meters[view["meter_id"]][0] * 1000 for view in known)
    return 0.9 * LIMIT_BPS < limits_bps <= LIMIT_BPS * 1.0001 and rates_bps <= 1.1 * LIMIT_BPS


def wait_held(run: WireRun, what: str) -> None:
    run.app.wait_for(lambda: held(run), what, 20)


def the_rest_works(run: WireRun) -> bool:
    """Whether the other switch is still controlled: a host there is learned."""
    run.introduce(2, 1, 0xC1)
    return run.fabric.connections(2) == 1


def jump(run: WireRun, meter_id: int) -> None:
    run.switch(1).meters.shift(meter_id, "byte_in_count", 10**15)


def fall_back(run: WireRun, meter_id: int) -> None:
    run.switch(1).meters.shift(meter_id, "byte_in_count", -(2**40))


def reset(run: WireRun, meter_id: int) -> None:
    run.switch(1).meters.reset_counters()


@pytest.mark.parametrize("fault", [jump, fall_back, reset])
def test_counters_that_move_as_no_traffic_can_change_no_grant(
    run: WireRun, fault: Callable[[WireRun, int], None]
) -> None:
    wait_held(run, "limited")
    before = grants(run)
    view = run.app.entry(1, RECEIVER, 10)
    assert view is not None
    with run.fabric.locked():
        fault(run, view["meter_id"])
    if fault is not reset:
        run.app.wait_for(lambda: run.app.events("counters-implausible"), "told")
        said = run.app.events("counters-implausible")[0]["text"]
        assert said == "VLAN 10 at s1:1 to VLAN 10 at s1:4: its counters jumped or went back"
    asked = run.handled(1, MessageType.MULTIPART_REQUEST)
    run.wait(lambda: run.handled(1, MessageType.MULTIPART_REQUEST) > asked + 30, "read again")
    assert held(run)
    assert grants(run) == pytest.approx(before, rel=0.02)
    assert the_rest_works(run)
    assert run.app.get("/v1/health")["status"] == "ready"


def test_counters_that_never_come_leave_the_limits_in_force_and_show_in_the_health(run: WireRun) -> None:
    wait_held(run, "limited")
    meters, before = run.meters(1), run.app.get("/v1/loop")["poll_timeouts"]
    with run.fabric.locked():
        run.switch(1).faults.lose_replies = {int(MultipartType.METER)}
    run.app.wait_for(lambda: run.app.get("/v1/health")["status"] == "degraded", "noticed")
    assert "has not sent its counters" in run.app.get("/v1/health")["faults"]["s1"][0]
    assert run.app.get("/v1/loop")["poll_timeouts"] > before
    assert held(run)
    assert run.meters(1).keys() == meters.keys()
    assert the_rest_works(run)
    with run.fabric.locked():
        run.switch(1).faults.lose_replies = set()
    run.app.wait_ready(10)
    assert "faults" not in run.app.get("/v1/health")
    wait_held(run, "limited again")


def test_slow_confirmations_are_waited_for(run: WireRun) -> None:
    with run.fabric.locked():
        run.switch(1).faults.barrier_delay_s = 1.0
    wait_held(run, "limited")
    assert the_rest_works(run)
    assert run.fabric.connections(1) == 1
    assert run.app.events("switch-error") == []
    assert run.app.get("/v1/health")["status"] == "ready"


def test_a_switch_that_lags_is_measured_rightly(run: WireRun) -> None:
    """Meters that are modified all the time count from when the lagging switch did it, not from when it was told."""
    with run.fabric.locked():
        run.switch(1).faults.lag_s = 0.030
    wait_held(run, "limited")
    offered_bps, limits = [], (200_000_000, 390_000_000)
    before = run.handled(1, MessageType.METER_MOD)
    for number in range(40):
        run.app.patch(f"/v1/vns/10/s1/{RECEIVER}", receive_limit_bps=limits[number % 2])
        time.sleep(0.05)
        views = [run.app.entry(port, RECEIVER, 10) for port in SENDERS]
        offered_bps += [view["offered_bps"] for view in views if view is not None]
    assert run.handled(1, MessageType.METER_MOD) - before > 40, "the meters were modified all the time"
    assert statistics.median(offered_bps) == pytest.approx(270e6, rel=0.15)
    assert the_rest_works(run)


def test_a_switch_that_refuses_every_meter_is_not_called_well(run: WireRun) -> None:
    wait_held(run, "limited")
    with run.fabric.locked():
        run.switch(1).abilities.refuse = True
    run.app.patch("/v1/vns/10/s1/4", receive_limit_bps=200_000_000)
    run.app.wait_for(lambda: run.app.get("/v1/health")["status"] == "degraded", "noticed")
    assert run.app.get("/v1/health")["faults"] == {"s1": ["refuses meters"]}
    said = [event["text"] for event in run.app.events("switch-error")]
    assert len(said) <= 2  # not once for each of the refusals, of which there are some each interval
    assert all("METER_MOD_FAILED" in text for text in said)
    assert the_rest_works(run)
    with run.fabric.locked():
        run.switch(1).abilities.refuse = False

    def as_wanted() -> bool:
        views = [run.app.entry(port, RECEIVER, 10) for port in SENDERS]
        return sum(run.meters(1)[view["meter_id"]][0] for view in views if view is not None) <= 200_000

    run.wait(as_wanted, "as wanted", 30)
    run.app.wait_for(lambda: run.app.get("/v1/health")["status"] == "ready", "well again", 40)


def test_a_switch_that_only_pretends_to_have_meters_is_found_out(run: WireRun) -> None:
    wait_held(run, "limited")
    with run.fabric.locked():
        run.switch(1).abilities.limit = run.switch(1).abilities.count = False
        run.switch(1).meters.reset_counters()
    run.app.patch("/v1/vns/10/s1/4", receive_limit_bps=200_000_000)  # modifies zero what stood in the counters
    run.app.wait_for(lambda: run.app.get("/v1/health")["status"] == "degraded", "found out", 20)
    said = "senders are not limited: meters count nothing while its ports receive"
    assert run.app.get("/v1/health")["faults"] == {"s1": [said]}
    run.app.wait_for(lambda: any(said in event["text"] for event in run.app.events("enforceability-changed")), "told")
    assert the_rest_works(run)
    with run.fabric.locked():
        run.switch(1).abilities.limit = run.switch(1).abilities.count = True
    run.app.wait_ready(20)


def test_counters_from_before_a_change_are_not_taken_for_those_after_it(run: WireRun) -> None:
    """A switch that was asked, then told to change a meter, and only then finds the time to answer."""
    wait_held(run, "limited")
    asked = run.app.last_event()
    for limit_bps in (200_000_000, 400_000_000) * 4:
        run.fabric.set_silent(1, True)
        time.sleep(0.12)  # more than an interval: a question is on its way
        run.app.patch("/v1/vns/10/s1/4", receive_limit_bps=limit_bps)
        time.sleep(0.12)
        run.fabric.set_silent(1, False)
        time.sleep(0.12)
    wait_held(run, "limited again")
    assert run.app.events("counters-implausible", asked) == []
