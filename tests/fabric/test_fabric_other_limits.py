"""The real application on Open vSwitch without queues: a limit that changes all the time moves nobody else."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from support.application import Application

from experiments.machine.controller_process import configuration, free_ports
from experiments.measure.rate_series import rates_of, read_samples
from experiments.measure.sampler import Sampler
from experiments.ovs.fabric import OvsFabric, OvsOptions
from experiments.ovs.traffic import FIRST_PORT, Flow, Traffic
from topologies.builders import fig1

pytestmark = pytest.mark.rates

LIMITS_BPS = {1: 20_000_000, 2: 30_000_000}
UDP_BPS = 18_000_000  # of each of two senders of VLAN 1
CHANGES_PER_S = 14
MEASURED_S, TURNS = 4.0, 3
FABRIC = fig1(pns=3)


def received_bps(path: Path, app: Application, changes_per_s: float) -> float:
    """What PN 3 gets in VLAN 1 while the receive limit of a VN of VLAN 2 behind another port is changed so often."""
    interface = FABRIC.vn(1, 3).switch_interface
    with Sampler([interface], 0.055, MEASURED_S + 30, path):
        began_s, changes = time.monotonic(), 0
        while (passed_s := time.monotonic() - began_s) < MEASURED_S:
            if changes < passed_s * changes_per_s:
                changes += 1
                app.patch("/v1/vns/2/s1/1", receive_limit_bps=20_000_000 + changes % 2 * 5_000_000)
            time.sleep(0.005)
    return float(np.average(rates_of(read_samples(path, interface)).wire_bps))


def test_a_receive_limit_that_changes_all_the_time_moves_nobody_else(tmp_path: Path) -> None:
    """Both are measured in turn, since others may be at work on the machine; it was 75 to 80 % once."""
    config = configuration(FABRIC, LIMITS_BPS, "level", {}, *free_ports(2), queues=False)
    options = OvsOptions(controller=f"tcp:{config['openflow']['listen']}", static_arp=True)
    with Application(config, tmp_path) as app, OvsFabric(FABRIC, options) as ovs:
        app.wait_ready()
        with Traffic(ovs, tmp_path, 90) as traffic:
            flows = [Flow(FABRIC.vn(1, n), FABRIC.vn(1, 3), FIRST_PORT + n, wire_rate_bps=UDP_BPS) for n in (1, 2)]
            traffic.serve(flows)
            traffic.start(flows, 80)
            app.wait_for(lambda: app.get("/v1/vns/1/s1/3")["congested"], "congested")
            time.sleep(2.0)
            got_bps = [
                [received_bps(tmp_path / f"{turn}-{per_s}.csv", app, per_s) for per_s in (0, CHANGES_PER_S)]
                for turn in range(TURNS)
            ]
            traffic.check_running(flows)
    unchanged_bps, changed_bps = np.array(got_bps).T
    print(f"unchanged {unchanged_bps / 1e6}, changed {changed_bps / 1e6} Mb/s")
    assert np.median(changed_bps / unchanged_bps) > 0.92
