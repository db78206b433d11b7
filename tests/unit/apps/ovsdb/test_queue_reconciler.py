"""The keeper of queues: how often it asks the switches' databases."""

from __future__ import annotations

import importlib
import warnings
from types import SimpleNamespace

import pytest


def test_whoever_wakes_it_again_and_again_gets_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():  # what Ryu imports is deprecated
        warnings.simplefilter("ignore")
        importlib.import_module("eventlet.wsgi").ALREADY_HANDLED = []  # as the launcher does
        importlib.import_module("ryu.base.app_manager")
        module = importlib.import_module("apps.ovsdb.queue_reconciler")
    clock = SimpleNamespace(now_s=50.0, slept_s=[])
    monkeypatch.setattr(module.hub, "sleep", clock.slept_s.append)
    keeper = module.QueueReconciler(
        SimpleNamespace(now_s=lambda: clock.now_s, peers={}, central=SimpleNamespace(switches={}))
    )
    keeper.wake()
    keeper.wait()
    assert clock.slept_s == [], "the first round begins at once"
    keeper.run_round()
    clock.now_s += 0.1
    keeper.wake()
    keeper.wait()
    assert clock.slept_s == [pytest.approx(module.PAUSE_S - 0.1)]
    clock.now_s += module.PAUSE_S
    keeper.wait()
    assert len(clock.slept_s) == 1
