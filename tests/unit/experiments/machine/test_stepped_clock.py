"""A wall clock that is stepped while a process runs: the process sees it, and sleeps as long as before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.machine.stepped_clock import SteppedClock

HOUR_S = 3600
LOOK = """
import datetime, json, sys, time
for line in sys.stdin:
    now = [time.time(), datetime.datetime.now().timestamp(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)]
    time.sleep(0.01)
    print(json.dumps(now), flush=True)
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_wall_clock_jumps_both_ways_and_the_others_go_on(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path)
    environment = {**os.environ, **clock.environment}
    with subprocess.Popen(
        [sys.executable, "-c", LOOK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for step_s in (0, 5 * HOUR_S, -5 * HOUR_S, 0):
            clock.step(step_s)
            process.stdin.write("now\n")
            process.stdin.flush()
            wall_s, local_s, monotonic_s, boot_s = json.loads(process.stdout.readline())
            for seen_s in (wall_s, local_s):
                assert abs(seen_s - time.time() - step_s) < HOUR_S
            assert abs(monotonic_s - time.monotonic()) < HOUR_S
            assert abs(boot_s - time.clock_gettime(time.CLOCK_BOOTTIME)) < HOUR_S
        process.stdin.close()
        assert process.wait(20) == 0
