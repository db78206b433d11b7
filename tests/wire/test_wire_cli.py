"""The operator's commands against the real application and software switches: what they say is so on the switches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.application import Application
from support.configs import star
from support.wire import WireRun, configuration

from apps import cli
from controller.config.loader import load_config
from controller.errors import InvalidValueError
from controller.openflow.constants import MessageType
from experiments.machine.controller_process import free_ports
from experiments.wire import lab
from experiments.wire.lab import Lab, parse_offer

Dets = Callable[..., str]
SENDER, RECEIVER = 1, 2
MAC = {SENDER: 0xA1, RECEIVER: 0xB1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireRun]:
    with WireRun(tmp_path_factory.mktemp("cli"), {1: [SENDER, RECEIVER, 3], 2: [1, 2]}, [((1, 101), (2, 101))]) as run:
        run.introduce(1, RECEIVER, MAC[RECEIVER])
        run.introduce(1, SENDER, MAC[SENDER])
        run.offer((1, SENDER), MAC[SENDER], MAC[RECEIVER], 50e6)
        yield run


@pytest.fixture
def dets(run: WireRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Dets:
    monkeypatch.setenv("DETS_URL", run.app.url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("DETS_TOKEN", raising=False)

    def call(*words: str, status: int = 0) -> str:
        found = cli.main(list(words))
        said = capsys.readouterr()
        assert found == status, said.err
        return said.err if status else said.out

    return call


def vn(dets: Dets, port: str, vlan: int = 10) -> dict[str, Any]:
    return dict(json.loads(dets("vn", "show", "--vlan", str(vlan), "--port", port, "-o", "json")))


def test_everything_is_listed(dets: Dets) -> None:
    assert json.loads(dets("status", "-o", "json"))["status"] == "ready"
    assert [vlan["vlan_vid"] for vlan in json.loads(dets("vlan", "list", "-o", "json"))] == [10, 20]
    vns = yaml.safe_load(dets("vn", "list", "-o", "yaml"))
    assert len(vns) == 10
    assert len(json.loads(dets("vn", "list", "--vlan", "20", "--switch", "s2", "-o", "json"))) == 2
    assert len(dets("vn", "list").splitlines()) == 11
    assert len(dets("port", "list").splitlines()) == 6
    assert "capacity" in dets("port", "show", "s1:3")
    assert dets("pair", "list", "--vlan", "10").splitlines()[1].split()[:3] == ["10", "s1:1", "s1:2"]
    assert dets("vlan", "show", "20").splitlines()[0].split() == ["VLAN", "20"]


def test_a_limit_is_on_the_switch_when_wait_returns(run: WireRun, dets: Dets) -> None:
    for rate, rate_kbps in (("40M", 40_000), ("35M", 35_000), ("30M", 30_000)):
        assert "in force" in dets("limit", "set", "--vlan", "10", "--port", "s1:1", "--send", rate, "--wait")
        assert rate_kbps in [meter[0] for meter in run.meters(1).values()]
    assert vn(dets, "s1:1")["send_limit_bps"] == 30_000_000


def test_a_dry_run_changes_nothing(run: WireRun, dets: Dets) -> None:
    before, handled = vn(dets, "s1:3"), run.handled(1, MessageType.METER_MOD)
    assert "nothing is changed" in dets("limit", "set", "--vlan", "10", "--port", "s1:3", "--send", "1M", "--dry-run")
    refused = dets("limit", "set", "--vlan", "10", "--port", "s1:3", "--send", "2G", "--dry-run", status=2)
    assert refused.startswith("dets: --send: 2G does not fit: port s1:3")
    assert vn(dets, "s1:3")["send_limit_bps"] == before["send_limit_bps"]
    assert vn(dets, "s1:3")["revision"] == before["revision"]
    assert run.handled(1, MessageType.METER_MOD) - handled < 20  # what the loop itself does


def test_many_limits_are_set_exported_taken_back_and_imported(dets: Dets, tmp_path: Path) -> None:
    file, kept = tmp_path / "limits.yaml", tmp_path / "kept.json"
    file.write_text("- {vlan: 20, port: 's2:1', receive: 120M}\n- {vlan: 20, port: 's2:2', receive: 130M, send: 64k}\n")
    dets("limit", "apply", str(file), "--wait")
    assert [vn(dets, f"s2:{port}", 20)["receive_limit_bps"] for port in (1, 2)] == [120_000_000, 130_000_000]
    assert dets("overrides").count("s2:") == 2
    dets("export", str(kept))
    assert dets("limit", "reset", "--vlan", "20", "--port", "s2:1").startswith("1 value changed")
    assert vn(dets, "s2:1", 20)["receive_limit_bps"] == 500_000_000
    dets("limit", "reset", "--all", "--wait")
    assert dets("overrides").count("s2:") == 0
    dets("import", str(kept), "--wait")
    assert vn(dets, "s2:2", 20)["send_limit_bps"] == 64_000
    dets("limit", "reset", "--all")


def test_a_vlan_is_changed_and_the_history_tells_of_it(dets: Dets) -> None:
    dets("vlan", "set", "20", "--algorithm", "sp", "--parameter", "inflation=0.2", "--name", "red", "--wait")
    shown = json.loads(dets("vlan", "show", "20", "-o", "json"))
    assert (shown["algorithm"], shown["name"], shown["parameters"]["inflation"]) == ("sp", "red", 0.2)
    newest = json.loads(dets("history", "--limit", "1", "-o", "json"))[0]
    assert (newest["revision"], newest["action"]) == (shown["revision"], "vlan")
    items = json.loads(dets("history", str(newest["revision"]), "-o", "json"))["items"]
    assert ("algorithm", "fs", "sp") in [(item["field"], item["before"], item["after"]) for item in items]
    assert "algorithm" in dets("history", str(newest["revision"]))
    dets("vlan", "reset", "20")
    assert json.loads(dets("vlan", "show", "20", "-o", "json"))["algorithm"] == "fs"


def test_top_and_events_show_what_happens(run: WireRun, dets: Dets) -> None:
    dets("limit", "reset", "--all")
    dets("limit", "set", "--vlan", "10", "--port", "s1:2", "--receive", "20M", "--wait")
    run.app.wait_for(lambda: vn(dets, "s1:2")["congested"], "congested")
    states = [json.loads(dets("top", *words, "--count", "1", "-o", "json")) for words in (["--vlan", "10"], [])]
    busiest = states[0][0]
    assert (busiest["switch"], busiest["port_no"], busiest["receive_limit_bps"]) == ("s1", 2, 20_000_000)
    assert (states[1][0]["vlan_vid"], states[1][0]["algorithm"]) == (10, "fs")
    assert "congestion-began" in dets("events")
    assert "20.0 Mb/s" in dets("explain", "--vlan", "10", "--from", "s1:1", "--to", "s1:2")


def test_a_lab_has_ports_by_name_and_the_names_that_ports_must_have(tmp_path: Path) -> None:
    port = {"capacity": "1G", "access": 10}
    ports = {"eth7": port, "a": {**port, "name": "web"}, 1: {**port, "expect": "tap1"}, 3: {**port, "expect": "any"}}
    vlans = {10: {"name": "blue", "send_limit": "50M", "receive_limit": "50M"}}
    config = configuration({}) | {"vlans": vlans, "switches": {"s1": {"dpid": 1, "ports": ports}}}
    with Application(config, tmp_path) as app:
        loaded = load_config(app.config_path)
        with Lab(loaded, [parse_offer("blue/s1:eth7/web/20M", loaded)]) as running:
            app.wait_for(lambda: receives_bps(running, app) == pytest.approx(20e6, rel=0.1), "the offer measured")
        names = {one["name"]: (one["state"], one["fence"], one["interface"]) for one in app.get("/v1/ports")["ports"]}
    found = {"eth7": "eth7", "web": "a", "s1-1": "tap1", "s1-3": "eth3"}
    assert names == {name: ("up", None, interface) for name, interface in found.items()}


def receives_bps(running: Lab, app: Application) -> float:
    running.run(lambda _: None, 0.5)
    return float(app.get("/v1/vns/10/s1/a")["measured_receive_bps"] or 0.0)


def test_a_lab_without_a_controller_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    said: list[str] = []
    monkeypatch.setattr(lab, "NO_CONTROLLER_S", 0.0)
    with Lab(star(2, openflow={"listen": f"127.0.0.1:{port}"}), []) as running:
        running.run(said.append, 0.3)
    assert said == [f"no controller accepts the switches at 127.0.0.1:{port}; they keep trying"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("10/s1:1/s1:2", "is not VID/SWITCH:PORT/SWITCH:PORT/RATE"),
        ("10/s1:1/s1:9/1M", "names s1:9, which is no port of VLAN 10"),
        ("10/s1:1/s1:9/1M", "; its ports are s1:1, s1:2, s1:3, s2:1, s2:2"),
        ("vlan10/s1-1/s1:s1-9/1M", "names s1:s1-9, which is no port of VLAN vlan10"),
        ("11/s1:1/s1:2/1M", "names s1:1, which is no port of VLAN 11"),
        ("10/s1:1/s1:2/x", "is not a rate"),
        ("10/s1:1/s1:1/1M", "has s1:1 send to itself"),
    ],
)
def test_the_labs_offers_are_checked(run: WireRun, text: str, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        parse_offer(text, load_config(run.app.config_path))
