"""Whoever attacks REST is refused, and the control loop goes on as if nobody had come."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from support.wire import WireRun

from apps.settings.tokens import Tokens
from experiments.bench.rest.hostile_clients import Attack

SENDERS, RECEIVER = (1, 2, 3), 4


@pytest.mark.alone
def test_the_loop_is_undisturbed(tmp_path: Path) -> None:
    """Traffic is at its limit: no interval is missed, and no guarantee, under floods, slow clients and bad requests."""
    store = str(tmp_path / "x.db")
    rest = {"requests_per_s": 100, "authentication": "token"}
    run = WireRun(tmp_path, {1: [*SENDERS, RECEIVER]}, rest=rest, store={"file": store})
    tokens = Tokens(store)
    run.app.token = tokens.create("test", "read")
    with contextlib.closing(tokens), run:
        run.introduce(1, RECEIVER, 0xB1)
        for port in SENDERS:
            run.introduce(1, port, 0xA0 + port)
        flows = [run.offer((1, port), 0xA0 + port, 0xB1, 0.0) for port in SENDERS]
        with run.fabric.locked():
            run.fabric.rates.set_rates(flows, 300e6)
        app = run.app
        app.wait_for(lambda: len(app.get("/v1/pairs")["pairs"]) == len(SENDERS), "three entries")
        last = app.last_event()
        before = app.get("/v1/loop")
        answers = Attack(app.url, rapid=10_000, slow=100, others=50, token=tokens.create("enemy", "write")).run()
        after = app.get(f"/v1/loop?after={before['rounds']}")
        assert answers["rapid", 200] + answers["rapid", 429] == 10_000
        assert answers["rapid", 429] > 5_000
        assert (answers["body", 413], answers["path", 404], answers["unknown", 401]) == (50, 50, 50)
        assert sum(answers.values()) == 10_150 + answers["slow", 408]
        due = round((after["last"]["started_s"] - before["last"]["started_s"]) * 1e3 / after["interval_ms"])
        assert due > 20
        assert after["rounds"] - before["rounds"] >= due * 0.99
        assert after["skipped_rounds"] - before["skipped_rounds"] <= due * 0.01
        assert app.events("guarantee-violated", last) == []
        assert app.get("/v1/health")["status"] == "ready"
