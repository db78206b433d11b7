"""What the bench of the pair takes for two writers and for a meter filled again, and which options it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.openflow.constants import METER_ALL, ControllerRole, MeterModCommand
from controller.openflow.meters import encode_meter_mods
from controller.openflow.multipart import encode_meter_stats_request
from experiments.bench.cluster import bench
from experiments.bench.cluster.bench import run
from experiments.bench.cluster.testbed.loaded_cluster import ClusterVerdict, is_shared_out
from experiments.bench.cluster.testbed.switch_logs import MeterLog, ReadingLog, second_writer
from experiments.switch.datapath import Datapath

MASTER, SLAVE, EQUAL = ControllerRole.MASTER, ControllerRole.SLAVE, ControllerRole.EQUAL


@pytest.mark.parametrize(
    ("writers", "said"),
    [
        ([], ""),
        ([(0, MASTER, 5), (1, MASTER, 6), (0, MASTER, 9)], ""),
        ([(0, MASTER, 5), (1, EQUAL, 5)], "node 1 wrote as EQUAL"),
        ([(0, MASTER, None)], "node 0 wrote as MASTER"),
        ([(0, MASTER, 5), (1, MASTER, 5)], "nodes 0 and 1 wrote under generation id 5"),
        ([(0, MASTER, 5), (1, MASTER, 6), (0, MASTER, 5)], "node 0 wrote under generation id 5 after 6"),
    ],
)
def test_what_says_that_there_were_two_writers(writers: list[Any], said: str) -> None:
    assert second_writer(writers) == said


def test_the_log_of_meters_tells_what_a_new_writer_filled_again() -> None:
    switch = Datapath(1)
    other = switch.add_controller()
    switch.receive(encode_meter_mods([MeterModCommand.ADD], [7], [100], [50], xid_first=0), 1.0)
    log = MeterLog(switch)

    def modify(rate_kbps: int, conversation: Any) -> None:
        mods = encode_meter_mods([MeterModCommand.MODIFY], [7], [rate_kbps], [50], xid_first=0)
        switch.receive(mods, 2.0, conversation)

    for rate_kbps, conversation in ((90, None), (90, None), (80, other), (80, other), (80, None)):
        modify(rate_kbps, conversation)
    assert log.set == [(7, 90), (7, 90), (7, 80), (7, 80), (7, 80)]
    assert log.same == [7, 7, 7]
    assert log.filled_again == [7]


def test_the_log_of_readings_tells_when_masters_have_read_all_meters() -> None:
    switch, now_s = Datapath(1), [10.0]
    other = switch.add_controller()
    log = ReadingLog(switch, lambda: now_s[0])
    roles = {None: switch.conversations[0], other: other}
    for at_s, conversation, role, meter_id in (
        (10.0, None, MASTER, METER_ALL),
        (10.1, None, MASTER, METER_ALL),
        (10.2, None, MASTER, 7),
        (10.3, other, SLAVE, METER_ALL),
        (10.4, other, MASTER, METER_ALL),
    ):
        now_s[0], roles[conversation].role = at_s, role
        switch.receive(encode_meter_stats_request(1, meter_id), at_s, conversation)
    assert log.read_s == [(10.0, 0), (10.1, 0), (10.4, 1)]
    assert log.longest_gap_s() == pytest.approx(0.3)
    log.close()
    switch.receive(encode_meter_stats_request(1), 11.0, other)
    assert len(log.read_s) == 3


@pytest.mark.parametrize(
    ("rates_kbps", "shared"),
    [
        ([133_333, 133_333, 133_333], True),
        ([200_000, 133_333, 66_666], False),  # one has yet to fall, one takes back what it let through
        ([133_333, 133_333], False),
    ],
)
def test_a_limit_is_shared_out_when_every_sender_has_its_share(rates_kbps: list[int], shared: bool) -> None:
    assert is_shared_out(rates_kbps) == shared


@pytest.mark.parametrize("sharded", [False, True])
def test_faults_are_of_active_and_standby_or_of_sharded_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sharded: bool
) -> None:
    def faults(_folder: Path, *, sharded: bool) -> ClusterVerdict:
        return ClusterVerdict(kept=2, took_s={"clocks step": 1.0}, problems=[f"sharded: {sharded}"])

    monkeypatch.setattr(bench, "run_faults", faults)
    made = run(repeats=0, sharded=sharded, faults=True, output=tmp_path)
    assert made["figures"]["faults"]["problems"] == [f"sharded: {sharded}"]
    assert [row["met"] for row in made["targets"]] == [False]
