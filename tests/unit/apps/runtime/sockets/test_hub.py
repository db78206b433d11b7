"""The hub sleeps until something is to be done, not until something would have been."""

from __future__ import annotations

import pytest

from apps.runtime.sockets.hub import Hub


def test_it_does_not_wake_up_for_what_was_cancelled() -> None:
    hub, done = Hub(clock=lambda: 100.0), []
    first, second = (hub.schedule_call_global(seconds, done.append, seconds) for seconds in (0.5, 1.0))
    hub.schedule_call_global(2.0, done.append, 2.0)
    hub.prepare_timers()
    assert hub.sleep_until() == pytest.approx(100.5)
    first.cancel()
    second.cancel()
    assert hub.sleep_until() == pytest.approx(102.0)
    hub.fire_timers(103.0)
    assert done == [2.0]
    assert hub.sleep_until() is None
