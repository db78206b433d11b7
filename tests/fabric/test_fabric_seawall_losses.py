"""What Seawall's readings say of the frames that a narrow core link of real Open vSwitch lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.core_bottleneck import NEVER_CUTS, SENDERS, core_bottleneck_scenario, reported_lost_bits

from apps.cli.support.recording_files import read
from controller.whatif.replay import replay
from experiments.measure.frame_sizes import UDP_FRAME_BYTES
from experiments.runs.ovs_run import run_on_ovs

pytestmark = pytest.mark.rates

SCALE = 0.05
FULL, HALF_FULL = (2.0, 7.0), (7.5, 10.0)


def test_the_ledger_tells_what_the_sources_lost(tmp_path: Path) -> None:
    """The core link is offered 1.8 times what it carries, then 0.8 times. It stays up, though it loses hellos too."""
    scenario = core_bottleneck_scenario((0.45, "udp", (0.0, FULL[0])), (0.45, "udp", FULL), (0.2, "udp", HALF_FULL))
    run = run_on_ovs(scenario.on("ovs", SCALE), NEVER_CUTS, 1, lambda _passed_s: None, tmp_path)
    again = list(replay(read(tmp_path / "recording")))
    assert all(one.same for one in again)
    decisions = [one.decisions[0] for one in again]
    time_s = np.array([one.now_s for one in again]) - run.notes["begun_s"]
    said_bits = np.array([reported_lost_bits(one) for one in decisions])
    metered_bits = np.array([one.view.dropped_bps.sum() * one.view.elapsed_s for one in decisions])
    lost, sent = (packets.reshape(-1, len(SENDERS)).sum(axis=1) for packets in (run.lost_packets, run.sent_packets))
    for phase, (begin_s, end_s) in enumerate((FULL, HALF_FULL), 1):
        rows = (begin_s <= time_s) & (time_s < end_s)
        of_sent = 1 / (sent[phase] * UDP_FRAME_BYTES * 8)
        metered, said = metered_bits[rows].sum() * of_sent, said_bits[rows].sum() * of_sent
        print(f"sources lost {lost[phase] / sent[phase]:.4f}: {metered:.4f} at meters, the ledger says {said:.4f}")
        assert said == pytest.approx(lost[phase] / sent[phase] - metered, rel=0.1, abs=0.002)
    assert said_bits[(FULL[0] <= time_s) & (time_s < FULL[1])].sum() > 0.2 * sent[1] * UDP_FRAME_BYTES * 8
    assert run.delivered_bits[(run.time_s[1:] > FULL[0]) & (run.time_s[1:] < FULL[1])].sum(axis=1).min() > 0
