"""Switches whose counters and meters are not to be trusted: what the running application does about each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from support.wire import WireRun

from controller.openflow.constants import MessageType, MultipartType

LINK = [((1, 11), (2, 11))]
LIMIT_BPS = 400e6
SENDERS = (1, 2, 3)
RECEIVER, RECEIVER_MAC = 4, 0xB1
NEW_HOST = count(0xC1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireRun]:
    """A switch with three senders that together offer twice what their receiver may get, and another switch."""
    with WireRun(tmp_path_factory.mktemp("counters"), {1: [*SENDERS, RECEIVER], 2: [1, 2]}, LINK) as made:
        made.introduce(1, RECEIVER, RECEIVER_MAC)
        for port in SENDERS:
            made.introduce(1, port, 0xA0 + port)
            made.offer((1, port), 0xA0 + port, RECEIVER_MAC, 270e6)
        yield made


@pytest.fixture
def last(run: WireRun) -> Iterator[int]:
    """The last event before a test, which begins and ends with a limit that holds."""
    wait_held(run, "limited")
    yield run.app.last_event()
    set_faults(run, barrier_delay_s=0.0, lag_s=0.0)
    set_limit(run, int(LIMIT_BPS))


def views(run: WireRun) -> list[dict[str, Any]]:
    """Return the three pairs, as far as they are there."""
    entries = [run.app.entry(port, RECEIVER, 10) for port in SENDERS]
    return [entry for entry in entries if entry is not None]


def held(run: WireRun, limit_bps: float = LIMIT_BPS) -> bool:
    """Whether the three limits sum to the receiver's, and its account lets the meters pass no more than it promises."""
    meters = run.meters(1)
    known = [view for view in views(run) if view["meter_id"] in meters]
    if len(known) < len(SENDERS):
        return False
    limits_bps = sum(view["limit_bps"] for view in known)
    rates_bps = sum(meters[view["meter_id"]][0] * 1000 for view in known)
    return 0.9 * limit_bps < limits_bps <= limit_bps * 1.0001 and rates_bps <= 1.1 * limit_bps


def wait_held(run: WireRun, what: str, limit_bps: float = LIMIT_BPS) -> None:
    run.app.wait_for(lambda: held(run, limit_bps), what, 20)


def set_faults(run: WireRun, **values: object) -> None:
    with run.fabric.locked():
        for name, value in values.items():
            setattr(run.switch(1).faults, name, value)


def set_abilities(run: WireRun, **values: bool) -> None:
    with run.fabric.locked():
        for name, value in values.items():
            setattr(run.switch(1).abilities, name, value)


def set_limit(run: WireRun, limit_bps: int) -> None:
    run.app.patch(f"/v1/vns/10/s1/{RECEIVER}", receive_limit_bps=limit_bps)


def wait_faults(run: WireRun, *faults: str) -> None:
    """Wait until health says that something is wrong, and that it is this."""
    run.app.wait_for(lambda: run.health()["status"] == "degraded", "noticed", 20)
    assert run.health()["faults"] == {"s1": [*faults]}


def the_rest_works(run: WireRun) -> bool:
    """Whether the other switch is still controlled: a new host there is learned."""
    run.introduce(2, 1, next(NEW_HOST))
    return run.fabric.connections(2) == 1


def jump(run: WireRun, meter_id: int) -> None:
    run.switch(1).meters.shift(meter_id, "byte_in_count", 10**15)


def fall_back(run: WireRun, meter_id: int) -> None:
    run.switch(1).meters.shift(meter_id, "byte_in_count", -(2**40))


def reset(run: WireRun, meter_id: int) -> None:
    run.switch(1).meters.reset_counters()


@pytest.mark.parametrize("fault", [jump, fall_back, reset])
def test_counters_that_move_as_no_traffic_can_change_no_grant(
    run: WireRun, last: int, fault: Callable[[WireRun, int], None]
) -> None:
    before = views(run)
    with run.fabric.locked():
        fault(run, before[0]["meter_id"])
    if fault is not reset:
        run.app.wait_for(lambda: run.app.events("counters-implausible", last), "told")
        said = run.app.events("counters-implausible", last)[0]["text"]
        assert said == "VLAN 10 at s1:1 to VLAN 10 at s1:4: its counters jumped or went back"
    asked = run.handled(1, MessageType.MULTIPART_REQUEST)
    run.wait(lambda: run.handled(1, MessageType.MULTIPART_REQUEST) > asked + 30, "read again")
    assert held(run)
    granted = [[view["granted_bps"] for view in found] for found in (views(run), before)]
    assert granted[0] == pytest.approx(granted[1], rel=0.02)
    assert the_rest_works(run)
    assert run.health()["status"] == "ready"


def test_counters_that_never_come_leave_the_limits_in_force_and_show_in_the_health(run: WireRun, last: int) -> None:
    meters, before = run.meters(1), run.app.get("/v1/loop")["poll_timeouts"]
    set_faults(run, lose_replies={int(MultipartType.METER)})
    run.app.wait_for(lambda: run.health()["status"] == "degraded", "noticed")
    assert "has not sent its counters" in run.health()["faults"]["s1"][0]
    assert run.app.get("/v1/loop")["poll_timeouts"] > before
    assert held(run)
    assert run.meters(1).keys() == meters.keys()
    assert the_rest_works(run)
    set_faults(run, lose_replies=set())
    run.app.wait_ready(10)
    assert "faults" not in run.health()
    wait_held(run, "limited again")


def test_slow_confirmations_are_waited_for(run: WireRun, last: int) -> None:
    set_faults(run, barrier_delay_s=1.0)
    set_limit(run, 200_000_000)
    wait_held(run, "held to another limit", 200e6)
    assert the_rest_works(run)
    assert run.fabric.connections(1) == 1
    assert run.app.events("switch-error", last) == []
    assert run.health()["status"] == "ready"


def test_a_switch_that_lags_is_measured_rightly(run: WireRun, last: int) -> None:
    """Meters that are modified all the time count from when the lagging switch did it, not from when it was told."""
    set_faults(run, lag_s=0.030)
    offered_bps = []
    before = run.handled(1, MessageType.METER_MOD)
    for number in range(40):
        set_limit(run, (200_000_000, 390_000_000)[number % 2])
        time.sleep(0.05)
        offered_bps += [view["offered_bps"] for view in views(run)]
    assert run.handled(1, MessageType.METER_MOD) - before > 40, "the meters were modified all the time"
    assert statistics.median(offered_bps) == pytest.approx(270e6, rel=0.15)
    assert the_rest_works(run)


def test_a_switch_that_refuses_every_meter_is_not_called_well(run: WireRun, last: int) -> None:
    set_abilities(run, refuse=True)
    set_limit(run, 200_000_000)
    wait_faults(run, "refuses meters")
    said = [event["text"] for event in run.app.events("switch-error", last)]
    assert len(said) <= 2  # not once for each of the refusals, of which there are some each interval
    assert all("METER_MOD_FAILED" in text for text in said)
    assert the_rest_works(run)
    set_abilities(run, refuse=False)

    def as_wanted() -> bool:
        return sum(run.meters(1)[view["meter_id"]][0] for view in views(run)) <= 200_000

    run.wait(as_wanted, "as wanted", 30)
    run.app.wait_for(lambda: run.health()["status"] == "ready", "well again", 40)


def test_a_switch_that_only_pretends_to_have_meters_is_found_out(run: WireRun, last: int) -> None:
    set_abilities(run, limit=False, count=False)
    with run.fabric.locked():
        run.switch(1).meters.offsets.clear()  # of earlier tests
        run.switch(1).meters.reset_counters()
    set_limit(run, 200_000_000)  # modifies zero what stood in the counters
    said = "senders are not limited: meters count nothing while its ports receive"
    wait_faults(run, said)
    run.app.wait_for(
        lambda: any(said in event["text"] for event in run.app.events("enforceability-changed", last)), "told"
    )
    assert the_rest_works(run)
    set_abilities(run, limit=True, count=True)
    run.app.wait_ready(20)


def test_counters_from_before_a_change_are_not_taken_for_those_after_it(run: WireRun, last: int) -> None:
    """A switch that was asked, then told to change a meter, and only then finds the time to answer."""
    for limit_bps in (200_000_000, 400_000_000) * 4:
        run.fabric.set_silent(1, True)
        time.sleep(0.12)  # more than an interval: a question is on its way
        set_limit(run, limit_bps)
        time.sleep(0.12)
        run.fabric.set_silent(1, False)
        time.sleep(0.12)
    wait_held(run, "limited again")
    assert run.app.events("counters-implausible", last) == []
