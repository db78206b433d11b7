"""One greenlet waits for another: who goes on, when, and that it is called no second time."""

from __future__ import annotations

import time

from ryu.lib import hub

from apps.runtime.sockets.greenlet_event import GreenletFlag, TimedWait

LONG_S = 10.0


def test_a_pause_ends_when_it_is_told_to() -> None:
    pause, went_on = TimedWait(), []
    hub.spawn(lambda: (pause.wait(LONG_S), went_on.append(True)))
    hub.sleep(0)
    pause.end()
    assert not went_on, "in the next turn of the hub"
    hub.sleep(0.001)
    assert went_on == [True]


def test_a_pause_ends_with_its_time() -> None:
    pause, began_s = TimedWait(), time.monotonic()
    pause.wait(0.01)
    assert 0.01 <= time.monotonic() - began_s < LONG_S
    pause.end()  # nobody waits


def test_whoever_was_woken_twice_sleeps_as_long_as_it_wants_afterwards() -> None:
    pause, slept_s = TimedWait(), []

    def wait_and_sleep() -> None:
        pause.wait(0.0)
        began_s = time.monotonic()
        hub.sleep(0.02)
        slept_s.append(time.monotonic() - began_s)

    hub.spawn(wait_and_sleep)
    hub.spawn(lambda: (pause.end(), pause.end()))  # in the turn in which its time ends
    hub.sleep(0.05)
    assert slept_s[0] >= 0.02


def test_a_flag_is_waited_for_until_it_is_set() -> None:
    flag, went_on = GreenletFlag(), []
    hub.spawn(lambda: (flag.wait(LONG_S), went_on.append(flag.is_set())))
    hub.sleep(0)
    flag.set()
    hub.sleep(0.001)
    assert went_on == [True]
    flag.wait(LONG_S)  # it is set
    flag.clear()
    flag.wait(0.001)
    assert not flag.is_set()
