"""The keeper of queues: how often it asks the switches' databases."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import support.framework  # noqa: F401

from apps.ovsdb import queue_reconciler


def test_whoever_wakes_it_again_and_again_gets_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now_s=50.0, slept_s=[])
    monkeypatch.setattr(queue_reconciler.hub, "sleep", clock.slept_s.append)
    keeper = queue_reconciler.QueueReconciler(
        SimpleNamespace(now_s=lambda: clock.now_s, peers={}, central=SimpleNamespace(switches={}))
    )
    keeper.wake()
    keeper.wait()
    assert clock.slept_s == [], "the first round begins at once"
    keeper.run_round()
    clock.now_s += 0.1
    keeper.wake()
    keeper.wait()
    assert clock.slept_s == [pytest.approx(queue_reconciler.PAUSE_S - 0.1)]
    clock.now_s += queue_reconciler.PAUSE_S
    keeper.wait()
    assert len(clock.slept_s) == 1
