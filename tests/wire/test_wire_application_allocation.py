"""The real application over the wire: lending with max-min, explanations, admission, recording and replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.wire import WireRun

from apps import cli
from apps.cli.support.recording_files import replayed

MBIT = 1e6
HUB = 4
MACS = {1: 0xA1, 2: 0xA2, 3: 0xA3, HUB: 0xB1}
LENDING = {"algorithm": "max-min", "send_ceiling": "900M", "receive_ceiling": "900M"}
VLANS = {
    10: {"send_limit": "400M", "receive_limit": "400M", **LENDING},
    20: {"send_limit": "500M", "receive_limit": "500M", **LENDING, "shadow": "fs"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("allocation")
    with WireRun(folder, {1: [1, 2, 3, HUB]}, vlans=VLANS) as started:
        for vid in (10, 20):
            for port, mac in MACS.items():
                started.introduce(1, port, mac, vid)
        yield started


@pytest.fixture
def send(run: WireRun) -> Iterator[Callable[[int, dict[int, float]], None]]:
    """Let ports of a VLAN send to the hub, {port: rate}; at the end all are silent."""
    flows: list[int] = []

    def begin(vid: int, rates_bps: dict[int, float]) -> None:
        for port, rate_bps in rates_bps.items():
            flows.append(run.offer((1, port), MACS[port], MACS[HUB], rate_bps, vid))

    yield begin
    with run.fabric.locked():
        run.fabric.rates.set_rates(flows, 0.0)


def limit_sum(run: WireRun, vid: int) -> float:
    entries = run.app.get(f"/v1/pairs?vlan={vid}")["pairs"]
    return float(sum(entry["limit_bps"] for entry in entries))


def test_idle_capacity_is_lent_taken_back_explained_recorded_and_replayed(
    run: WireRun, send: Callable[[int, dict[int, float]], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    send(10, {1: 600 * MBIT, 2: 600 * MBIT})
    run.app.wait_for(lambda: limit_sum(run, 10) > 850 * MBIT, "lent", 20.0)
    send(20, {3: 500 * MBIT})
    run.app.wait_for(lambda: limit_sum(run, 20) > 495 * MBIT, "the owner's", 20.0)
    run.app.wait_for(lambda: limit_sum(run, 10) < 510 * MBIT, "taken back", 20.0)
    vns = run.app.get("/v1/vns/10/s1/4")
    assert (vns["receive_limit_bps"], vns["receive_ceiling_bps"]) == (400_000_000, 900_000_000)
    shadows = {entry["shadow_bps"] for entry in run.app.get("/v1/pairs?vlan=10")["pairs"]}
    assert shadows == {None}
    (shown,) = {entry["shadow_bps"] for entry in run.app.get("/v1/pairs?vlan=20")["pairs"]}
    assert shown == 500_000_000

    def is_bound_by_the_link() -> bool:
        # Where an interval was late, less is measured of the sender for a moment: its demand is below its share.
        assert cli.main(["explain", "--vlan", "10", "--from", "s1:1", "--to", "s1:4", "--url", run.app.url]) == 0
        said = capsys.readouterr().out
        assert said.startswith("VLAN 10, s1:1 to s1:4: ")
        assert "; next bound: " in said
        return "link s1:4 (receiving), share " in said

    run.app.wait_for(is_bound_by_the_link, "explained", 20.0)

    path = tmp_path / "run.dets"
    assert cli.main(["record", "--output", str(path), "--duration", "1", "--url", run.app.url]) == 0
    result = replayed(path, "fs")
    assert result["same"]
    assert result["intervals"] >= 5
    assert {(row["vlan"], row["from"][-2:]) for row in result["differences"]} == {(10, ":1"), (10, ":2"), (20, ":3")}
    assert not run.app.get("/v1/recording")["running"]
