"""``/metrics`` of the real application."""

from __future__ import annotations

from support.wire import WireRun


def test_a_running_controller_tells_its_metrics(tmp_path):
    with WireRun(tmp_path, {1: [1, 2], 2: [1, 2]}, [((1, 9), (2, 9))]) as run:
        before = run.app.metrics()
        run.app.patch("/v1/vns/10/s1/1", receive_limit_bps=123_000_000)
        run.app.wait_for(
            lambda: run.app.metrics()["dets_loop_round_seconds_count",] > before["dets_loop_round_seconds_count",] + 5,
            "on",
        )
        after = run.app.metrics()
        assert after["dets_vn_receive_limit_bits_per_second", "1", "s1", "10"] == 123_000_000
        assert after["dets_switch_ready", "s1"] == after["dets_switch_ready", "s2"] == 1
        for direction in ("sent", "received"):
            key = ("dets_openflow_messages_total", direction, "s1")
            assert after[key] > before[key] > 0
        assert after["dets_event_loop_lag_seconds_count",] > 0
        assert after["dets_loop_interval_seconds",] == 0.055
        assert after["dets_openflow_error_replies_total", "s1"] == 0
        run.fabric.disconnect(2, reconnect=False)
        run.app.wait_for(lambda: run.app.metrics()["dets_switch_ready", "s2"] == 0, "gone")
