"""Every operation of the description with every check that schemathesis has: at rest, and while traffic flows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.rest_server import RestProcess
from support.skipped_rounds import few_skipped
from support.wire import WireRun

PROGRAM = Path(sys.executable).parent / "schemathesis"
SETTINGS = Path(__file__).parents[1] / "support" / "schemathesis.toml"
CONFIG = """\
vlans:
  10: {send_limit: 40M, receive_limit: 40M}
  20: {send_limit: 50M, receive_limit: 50M}
switches:
  s1: {dpid: 1, ports: {1: {capacity: 100M, trunk: [10, 20]}, 2: {capacity: 100M, trunk: [10, 20]}}}
"""
SENDERS, RECEIVER = (1, 2, 3), 4
LIMIT_BPS = 400e6


def fuzz(url: str, folder: Path, max_examples: int, *options: str) -> None:
    """Run all checks; AssertionError, with what was found, unless there is nothing."""
    command = [str(PROGRAM), "--config-file", str(SETTINGS), "run", f"{url}/v1/openapi.json", "--checks", "all"]
    command += ["--max-examples", str(max_examples), "--seed", "1", "--continue-on-failure", "--no-color"]
    command += ["--request-timeout", "60", "--generation-database", "none", *options]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "Tested: " in done.stdout
    tested = done.stdout.partition("Tested: ")[2].split()[0]
    assert f"Selected: {tested}/{tested}" in done.stdout


def test_nothing_is_found_at_rest(tmp_path: Path) -> None:
    """With more examples at random than while traffic flows, where all 3,000 cases of the schema's bounds are tried."""
    with RestProcess(CONFIG, tmp_path / "x.db", most_streams=32) as server:
        fuzz(f"http://127.0.0.1:{server.port}", tmp_path, 10, "--phases", "fuzzing")
        assert server.request("GET", "/v1/health")[0] == 200
    assert server.errors == ""


@pytest.mark.alone
def test_nothing_is_found_and_no_guarantee_missed_while_traffic_flows(tmp_path: Path) -> None:
    ports = {1: [*SENDERS, RECEIVER]}
    with WireRun(tmp_path, ports, rest={"requests_per_s": 100_000}) as run:
        run.introduce(1, RECEIVER, 0xB1)
        for port in SENDERS:
            run.introduce(1, port, 0xA0 + port)
        flows = [run.offer((1, port), 0xA0 + port, 0xB1, 0.0) for port in SENDERS]
        with run.fabric.locked():
            run.fabric.rates.set_rates(flows, 300e6)

        def delivered_bps() -> float:
            marks = []
            for pause_s in (0.5, 0.0):
                with run.fabric.locked():
                    now_s = time.monotonic()
                    run.fabric.rates.advance(now_s)
                    marks.append((now_s, run.switch(1).ports[RECEIVER].counters["tx_bytes"]))
                time.sleep(pause_s)
            return float((marks[1][1] - marks[0][1]) * 8 / (marks[1][0] - marks[0][0]))

        app = run.app
        app.wait_for(lambda: abs(delivered_bps() / LIMIT_BPS - 1) < 0.03, "at its limit")

        def entitled_bps() -> float:
            return float(app.get(f"/v1/vns/10/s1/{RECEIVER}")["guarantee"]["entitled_bps"])

        # In the first second one late interval is more than 5 % of the mean that the guarantee is judged by.
        app.wait_for(lambda: entitled_bps() > 0.8 * LIMIT_BPS, "judged by seconds of traffic")
        last = app.last_event()
        with few_skipped(app):
            fuzz(app.url, tmp_path, 3)
        assert [event["text"] for event in app.events("guarantee-violated", last) if "VLAN 10" in event["text"]] == []
        app.wait_for(lambda: abs(delivered_bps() / LIMIT_BPS - 1) < 0.03, "at its limit still")
