"""The traffic of ``dets bench loop``: what is said to be set in every interval is, and nothing else."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from controller.central.controller import CentralController
from controller.openflow.meters import decode_meter_stats
from experiments.bench.loop.switch_process import CAPACITY_BPS, BusyDatapath, LoopPlan, fill, load
from experiments.machine.controller_process import ROOT
from experiments.switch.datapath import Datapath
from experiments.switch.options import DatapathOptions

INTERVAL_S = 0.055
SETTLED, ROUNDS = 40, 80


def meter_stats(datapath: Datapath, now_s: float) -> np.ndarray:
    ids = datapath.meters.ids()
    return decode_meter_stats(datapath.meters.stats(ids, np.zeros_like(ids), now_s).tobytes())


@pytest.mark.parametrize("varied", [1.0, 0.1])
def test_the_share_that_varies_is_set_in_every_round_and_the_rest_is_not(
    varied: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    plan = LoopPlan(4, 150, 55, varied, 6653, 8080)
    central = CentralController(plan.config())
    datapaths: dict[int, Datapath] = {dpid: BusyDatapath(dpid, DatapathOptions()) for dpid in range(1, 5)}
    for datapath in datapaths.values():
        for port_no in range(1, plan.ports + 1):
            datapath.add_port(port_no, CAPACITY_BPS, 0.0)
    fill(plan, central, datapaths)
    load(plan, varied, central, datapaths)

    rng, told_s = np.random.default_rng(1), {}
    varies = np.arange(len(central.vns))[central.state.entries.receiver] % 10 < varied * 10
    set_share = []
    for number in range(ROUNDS):
        start_s = 1.0 + number * INTERVAL_S + rng.uniform(0.0, 0.004)
        read_s = {dpid: start_s + rng.uniform(0.0, 0.003) for dpid in datapaths}
        stats = {dpid: meter_stats(datapath, read_s[dpid]) for dpid, datapath in datapaths.items()}
        rows = central.interval(stats, read_s, start_s + 0.008, told_s).changes.rows
        for dpid, update in central.drain_updates().items():
            datapaths[dpid].receive(update.encode(1), start_s + 0.012)
            datapaths[dpid].drain_messages()
            told_s[dpid] = start_s + 0.012
        was_set = np.isin(np.arange(len(varies)), rows)
        set_share.append((was_set[varies].mean(), was_set[~varies].mean() if not varies.all() else 0.0))
    of_varied, of_others = np.mean(set_share[SETTLED:], axis=0)
    assert of_varied > 0.95
    assert of_others < 0.05


SERVED_BY_TWO = """
import sys
from experiments.bench.loop import switch_process

switch_process.SPLIT_SWITCHES = 20
switch_process.main(sys.argv[1])
"""


def test_many_switches_are_served_by_two_processes(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        plan = LoopPlan(20, 16, 55, 1.0, server.getsockname()[1], 8080)
        (tmp_path / "plan.json").write_text(json.dumps(asdict(plan)))
        command = [sys.executable, "-c", SERVED_BY_TWO, str(tmp_path / "plan.json")]
        fabric = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert fabric.stdin is not None
        assert fabric.stdout is not None
        try:
            assert fabric.stdout.readline() == "ready\n"
            server.settimeout(60.0)
            connected = [server.accept()[0] for _ in range(plan.switches)]
            fabric.stdin.write("watch\nvary 0.1 0.6\nreport\n")
            fabric.stdin.flush()
            assert len(json.loads(fabric.stdout.readline())) == plan.switches
            fabric.stdin.close()
            assert fabric.wait(60.0) == 0
            for one in connected:
                one.settimeout(60.0)
                with one, suppress(ConnectionError):
                    while one.recv(4096):  # until the switch has closed the connection
                        pass
        finally:
            fabric.kill()
            fabric.wait()
            fabric.stdout.close()
