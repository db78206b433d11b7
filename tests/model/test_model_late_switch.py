"""A controller starts again, or another one takes over, and one of the fabric's switches comes later than the other."""

from __future__ import annotations

import pytest
from support.configs import fabric
from support.fabrics import ControlLoop, started_loop
from support.host_traffic import LEFT, RIGHT, restarted

from controller.central.fabric_state import SWITCH_WAIT_S
from controller.central.reconfiguration import reconfigure
from controller.loop import control_step
from controller.switch.adoption import split_own_flows
from controller.whatif.recording import Recorder, decode
from controller.whatif.replay import replay

MBIT = 1e6
RISE = 1.1  # once all are there: FP offers a sender a tenth more, to see whether it takes it
RECEIVER = (1, 3)
HERE, THERE = ((1, 1), (1, 2)), (2, 4)  # senders behind the receiver's switch, and behind the other one
ALGORITHMS = ("fs", "sp", "fp", "fe", "level", "max-min")
COMPENSATED = 1.06  # a meter makes up for what setting it gave or took


def shared(algorithm: str) -> ControlLoop:
    """Three senders on two switches share a receive limit."""
    ports = {1: {port: [10] for port in (1, 2, 3, 5)}, 2: {4: [10]}}
    loop = started_loop(fabric(ports, limits={10: "400M"}, algorithm=algorithm), [(LEFT, RIGHT)])
    for place in (*HERE, THERE):
        loop.add(place, RECEIVER, 10, 300 * MBIT)
    loop.run(60)
    assert max(loop.limits(10).values()) < 200 * MBIT
    return loop


def taken_over(before: ControlLoop) -> ControlLoop:
    """Another controller, to which no switch is connected yet; the hosts go on."""
    loop = ControlLoop(restarted(before.fabric))
    loop.senders = before.senders
    return loop


def highest_rise(loop: ControlLoop, standing_bps: dict[tuple[int, int], float], intervals: int) -> float:
    """Run so many intervals, and return how far a meter rose above the rate that stood before."""
    highest = 0.0
    for _ in range(intervals):
        loop.run(1)
        highest = max([highest, *(rate / standing_bps[ports] for ports, rate in loop.limits(10).items())])
    return highest


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_no_grant_rises_while_a_switch_has_yet_to_come(algorithm, first, second):
    before = shared(algorithm)
    standing_bps = before.limits(10)
    loop = taken_over(before)
    loop.fabric.connect(first)
    assert highest_rise(loop, standing_bps, 60) <= COMPENSATED
    loop.fabric.connect(second)
    loop.fabric.hello()
    assert highest_rise(loop, standing_bps, 60) <= RISE
    assert loop.rate(RECEIVER, 10, -20) <= 1.03 * 400 * MBIT


@pytest.mark.parametrize("algorithm", ["fs", "fe"])
def test_a_switch_that_never_comes_does_not_hold_grants_for_ever_nor_does_one_that_comes_again_and_again(algorithm):
    loop = taken_over(shared(algorithm))
    loop.senders.pop()  # nothing comes from behind the dead switch
    loop.fabric.connect(1)
    for _ in range(11):
        loop.run(48)
        loop.fabric.disconnect(1)
        loop.fabric.connect(1)
    loop.run(int(SWITCH_WAIT_S / 0.055) - 10 - 11 * 48)
    assert sum(loop.limits(10).values()) <= COMPENSATED * 2 / 3 * 400 * MBIT
    loop.run(40)
    assert loop.rate(RECEIVER, 10, -10) >= 0.95 * 400 * MBIT


def test_grants_are_held_from_the_first_piece_of_the_first_switch_on():
    """A switch with many entries is taken over in pieces, between which the interval goes on."""
    before = shared("fs")
    standing_bps = before.limits(10)
    net = taken_over(before).fabric
    switch, central = net.switches[1], net.central
    holds = split_own_flows(switch.flows.values())
    for _ in central.reconciler.bring_up(1, *holds, switch.meter_config(), net.now_s):
        net.now_s += 0.055
        central.interval({}, {}, net.now_s)
        granted_bps = control_step.effective_limits_bps(central.state, central.vns)
        assert all(granted_bps <= max(standing_bps.values()))
    assert len(central.state.entries) == 2


def test_a_recording_of_held_grants_is_decided_again_bit_for_bit():
    loop = taken_over(shared("fe"))
    recorder = loop.fabric.central.recorder = Recorder()
    loop.fabric.connect(1)
    loop.run(10)
    loop.fabric.connect(2)
    loop.run(10)
    again = list(replay(decode(recorder.drain())))
    assert len(again) == 20
    assert all(one.same for one in again)


def test_who_comes_while_grants_are_held_gets_a_share():
    loop = taken_over(shared("fs"))
    loop.fabric.connect(1)
    newcomer = loop.add((1, 5), RECEIVER, 10, 300 * MBIT)
    loop.run(40)
    before_bits = newcomer.received_bits
    loop.run(20)
    assert (newcomer.received_bits - before_bits) / (20 * 0.055) >= 0.9 * 100 * MBIT


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_a_reload_goes_on_holding_grants_and_takes_nothing_from_whom_has_yet_to_come(first, second):
    """Meanwhile a sender behind a switch without a controller goes on sending; it fails if its frames do not arrive."""
    before = shared("fs")
    standing_bps = before.limits(10)
    loop = taken_over(before)
    loop.fabric.connect(first)
    loop.run(5)
    reconfigure(loop.fabric.central, loop.fabric.config, loop.fabric.now_s).finish(loop.fabric.central)
    loop.fabric.push()
    assert highest_rise(loop, standing_bps, 40) <= COMPENSATED
    loop.fabric.connect(second)
    loop.fabric.hello()
    assert highest_rise(loop, standing_bps, 60) <= RISE
    assert loop.rate(RECEIVER, 10, -20) <= 1.03 * 400 * MBIT
    assert len(loop.limits(10)) == 3
