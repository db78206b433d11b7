"""The command line: exit statuses, one-line errors, what reaches an experiment, and what its start must not load."""

import json
import os
import socket
import subprocess
import sys
import types
from pathlib import Path
from typing import Annotated
from unittest import mock

import pytest
from support.fake_rest_server import VN, FakeRestServer
from support.paths import ROOT

import experiments
from apps import cli
from apps.cli.support.common import Parameters
from apps.settings.store import Store, StoredChange
from controller import __version__
from controller.config.yaml_document import ConfigError, ConfigProblem
from controller.limits.overrides import Override, VnName
from controller.units import format_rate
from experiments import experiment_runner
from experiments.benches import print_result
from experiments.evaluation.result import Result
from experiments.experiment_options import ExperimentOptions
from experiments.scenarios import scenarios

CONFIG = """\
vlans:
  10: {send_limit: 40M, receive_limit: 40M}
switches:
  s1:
    dpid: 1
    ports:
      1: {capacity: 100M, access: 10}
      2: {capacity: 100M, trunk: [10]}
"""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> types.ModuleType:
    """What runs in place of experiments and benchmarks that need root and minutes."""
    module = types.ModuleType("stand_in_experiment")
    module.seen = []
    module.run = lambda *arguments: module.seen.append(arguments) or {}
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(experiments, "run", lambda *_arguments, **_named: Result(None, (), ()))
    monkeypatch.setattr(
        experiment_runner, "report", lambda name, options, folder, _result: module.run(name, options, folder)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "experiments.bench.allocation.bench", module)
    monkeypatch.setitem(sys.modules, "experiments.bench.loop.bench", module)
    return module


def test_asking_loads_nothing_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """\
import sys
from apps.cli import main
heavy = {"numpy", "networkx", "ryu", "eventlet", "matplotlib", "yaml"}
for words, never in ((["--help"], heavy | {"pydantic"}), (["vn", "list"], heavy)):
    assert main(words) == 0
    assert not never & set(sys.modules), never & set(sys.modules)
"""
    with FakeRestServer() as desk:
        desk.lists("/v1/vns", VN)
        monkeypatch.setenv("DETS_URL", desk.url)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(word in done.stdout for word in ("check", "run", "demo", "experiment", "bench", "sw1:3"))


def test_a_controller_needs_no_experiments(tmp_path: Path) -> None:
    path = tmp_path / "dets.yaml"
    code = """\
import sys
sys.modules["experiments"] = None
from apps.cli import main
assert [main(words) for words in (["--help"], ["check", sys.argv[1]], ["bench"])] == [0, 0, 2]
main(["run", "-c", sys.argv[1]])  # ends the process
"""
    with socket.create_server(("127.0.0.1", 0)) as taken:  # it ends there, after it has begun
        port = taken.getsockname()[1]
        path.write_text(f"openflow: {{listen: '127.0.0.1:{port}'}}\nrest: {{listen: '127.0.0.2:{port}'}}\n{CONFIG}")
        command = [sys.executable, "-c", code, str(path)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "ok: 1 switch" in done.stdout
    assert "bench" not in done.stdout
    assert f"'127.0.0.1:{port}' cannot be listened on: Address already in use by " in done.stderr
    assert f" (process {os.getpid()}); stop that, or set another openflow.listen" in done.stderr


def test_a_taken_port_names_the_option_of_ryu_that_chose_it(tmp_path: Path) -> None:
    path = tmp_path / "dets.yaml"
    path.write_text(f"rest: {{listen: '127.0.0.2:1'}}\n{CONFIG}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["--ofp-tcp-listen-port", port, "--dets-config", str(path), "apps/dets.py"]
        command = [sys.executable, "-m", "apps.runtime.launcher", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert f"--ofp-tcp-listen-port: '127.0.0.1:{port}' cannot be listened on" in done.stderr
    assert "or set another --ofp-tcp-listen-port" in done.stderr


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"dets {__version__}\n"


@pytest.mark.parametrize(("words", "first"), [([], "Usage: dets [OPTIONS]"), (["vlan"], "Usage: dets vlan [OPTIONS]")])
def test_without_a_command_the_help_is_shown_line_by_line(
    words: list[str], first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.splitlines()[0][: len(first)]) == ("", first)
    assert "\nCommands:\n" in said.err


def test_check_tells_every_problem_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dets.yaml"
    path.write_text(CONFIG.replace("100M, access", "1M, access").replace("dpid: 1", "dpid: x"))
    assert cli.main(["check", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.split(": ")[0] for line in said.err.splitlines()] == [f"{path}:5:11", f"{path}:7:21", f"{path}:7:21"]


def test_check_accepts_a_good_file_and_tells_what_was_set_at_run_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dets.yaml"
    path.write_text(CONFIG)
    store = Store(str(tmp_path / "dets.db"))
    vns = {VnName(10, "s1", port_no): Override({"send_limit_bps": 50_000_000}, 1) for port_no in (1, 3)}
    store.commit(StoredChange(1, "2026-01-01T00:00:00Z", "anna", "::1", "limits", 2), {}, vns)
    store.close()
    assert cli.main(["check", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok: 1 switch, 2 edge ports, 1 VLAN, 2 VNs; control every 55 ms",
        f"2 overrides in {tmp_path}/dets.db, 1 not in force",
        "not in force: VLAN 10 at s1:3: the configuration has no such VN",
    ]


def test_run_hands_over_to_the_launcher(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def start(config: str, apps: list[str]) -> int:
        if config == "bad.yaml":
            raise ConfigError(config, [ConfigProblem(3, 5, "vlans.10", "is bad")])
        return 7 if (config, apps) == ("a.yaml", ["x", "y"]) else 0

    launcher = types.ModuleType("apps.runtime.launcher")
    launcher.main = start
    monkeypatch.setitem(sys.modules, "apps.runtime.launcher", launcher)
    assert cli.main(["run", "--config", "a.yaml", "--app", "x", "--app", "y"]) == 7
    assert cli.main(["run", "-c", "bad.yaml"]) == 2
    assert capsys.readouterr().err == "bad.yaml:3:5: vlans.10: is bad\n"


def test_an_experiment_gets_the_defaults(stand_in: types.ModuleType) -> None:
    assert cli.main(["experiment", "dets-fig5"]) == 0
    assert stand_in.seen == [("dets-fig5", ExperimentOptions(), Path("results/dets-fig5"))]


def test_an_experiment_gets_what_was_asked_for(stand_in: types.ModuleType) -> None:
    words = """experiment dets-fig5 --algorithm sp --parameter inflation=0.2 --senders 4 --link-rate 50M
        --victim-limit 25M --aggressor-limit 25M --udp-rate 10M --duration 3 --warmup 4 --cooldown 5
        --congestion-control reno --topology dets-fig7 --datapath kernel --seed 9 --output out --no-baseline -q"""
    assert cli.main(words.split()) == 0
    expected = ExperimentOptions(
        algorithm="sp",
        parameters={"inflation": 0.2},
        senders=4,
        link_rate_bps=50_000_000,
        victim_limit_bps=25_000_000,  # both limits may fill the link
        aggressor_limit_bps=25_000_000,
        udp_rate_bps=10_000_000,
        blast_s=3.0,
        warmup_s=4.0,
        cooldown_s=5.0,
        congestion_control="reno",
        topology="dets-fig7",
        datapath="kernel",
        seed=9,
        output=Path("out"),
        baseline=False,
        quiet=True,
    )
    assert stand_in.seen == [("dets-fig5", expected, Path("out"))]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            "nope",
            "NAME: 'nope' is not an experiment: write one of agents-fig5-meter, agents-fig5-agent",
        ),
        (
            "dets-fig5 --victim-limit 35M",
            "--aggressor-limit: '25M' and the victim's limit, 35M, are 60M together",
        ),
        ("dets-fig5 --victim-limit 51M", "--victim-limit: '51M' is above the link rate, 50M"),
        ("dets-fig5 --victim-limit fast", "--victim-limit: 'fast' is not a rate"),
        ("dets-fig5 --udp-rate 1", "--udp-rate: '1' is outside 1k to"),
        ("dets-fig5 --link-rate 2G", "--link-rate: '2G' is above 1G, beyond which Mininet ignores"),
        ("dets-fig5 --senders 0", "--senders: 0 is outside 1 to 50"),
        ("dets-fig5 --senders many", "Invalid value for '--senders': Input should be a valid integer"),
        ("dets-fig5 --duration nan", "--duration: nan is outside 1 to 3600 seconds"),
        ("dets-fig5 --warmup 3601", "--warmup: 3601.0 is outside 1 to 3600 seconds"),
        ("dets-fig5 --seed -1", "--seed: -1 is outside 0 to 2^32 - 1"),
        ("dets-fig5 --congestion-control vegas", "--congestion-control: 'vegas' is not one of cubic, reno, bbr"),
        (
            "dets-fig5 --topology ring",
            "--topology: 'ring' is not one of dets-fig1, dets-fig5, dets-fig7, gatekeeper-hosts, dumbbell",
        ),
        ("dets-fig5 --fabric air", "--fabric: 'air' is not one of ovs, wire, model"),
        ("dets-fig5 --fabric model --link-rate 101G", "--link-rate: '101G' is above 100G"),
        (
            "dets-fig5 --fabric model --congestion-control bbr",
            "--congestion-control: 'bbr' is not one of cubic, reno, dctcp",
        ),
        ("dets-fig5 --fabric model --datapath user", "--datapath: 'user' means nothing on the model fabric"),
        ("dets-fig5 --slot 0.002", "--slot: 0.002 means nothing on the ovs fabric"),
        ("dets-fig5 --fabric model --slot 0.2", "--slot: 0.2 is outside 1e-05 to 0.01 seconds"),
        ("dets-fig5 --datapath dpdk", "--datapath: 'dpdk' is not one of user, kernel"),
        (
            "dets-fig5 --algorithm nope",
            "--algorithm: 'nope' is not an allocation algorithm: write one of",
        ),
        ("dets-fig5 --parameter d", "--parameter: 'd' is not KEY=VALUE"),
        ("dets-fig5 --parameter d=0.5", "--parameter: 'd=0.5' must be above 1"),
        ("dets-fig5 --parameter e=0.5", "--parameter: 'e=0.5' is not a parameter of fp"),
        ("dets-fig2 --algorithm fs", "--algorithm: 'fs' means nothing to dets-fig2"),
        ("dets-fig2 --no-baseline", "--baseline: False means nothing to dets-fig2"),
        (
            "dets-fig6 --senders 3",
            "--senders: 3 means nothing to dets-fig6: its file in",
        ),
        ("dets-fig6 --link-rate 1G", "--link-rate: '1G' "),
        ("dets-fig6 --algorithm nope", "--algorithm: 'nope' is not an allocation algorithm: write one of"),
        ("dets-fig5 --colour red", "No such option: --colour"),
    ],
)
def test_bad_values_are_one_line_and_status_2(
    words: str, line: str, stand_in: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["experiment", *words.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"dets: {line}")
    assert len(captured.err.splitlines()) == 1
    assert stand_in.seen == []


def test_without_a_name_experiments_and_benchmarks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["experiment"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list(scenarios())
    assert cli.main(["bench"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"allocation", "fidelity", "loop"} <= set(listed)
    for name in listed:
        assert cli.main(["bench", name, "--help"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("allocation --pairs 32", "No such option: --pairs"),
        ("rest --seconds 0", "--seconds: 0.0 is outside 1 to 600"),
        ("attack --seconds 0", "--seconds: 0.0 is outside 1 to 600"),
        ("attack --attack none --attack stays", "--attack: 'stays' is not one of 'none', "),
    ],
)
def test_options_that_a_benchmark_does_not_take_are_refused(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"dets: {said}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nosuch --access", "--interface: 'nosuch' is no interface of this host; there are lo"),
        ("lo --access --vlans 10", "--vlans: '10' cannot be with --access"),
        ("lo", "--vlans: is needed, or --access"),
    ],
)
def test_an_agent_names_what_it_lacks(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["agent", "--interface", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"dets: {said}")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(PermissionError("needs root"), 1, "needs root"), (KeyboardInterrupt(), 130, "interrupted")],
)
def test_a_failure_is_one_line_and_a_status(
    stand_in: types.ModuleType, capsys: pytest.CaptureFixture[str], error: BaseException, status: int, said: str
) -> None:
    stand_in.run = mock.Mock(side_effect=error)
    assert cli.main(["experiment", "dets-fig5", "-q"]) == status
    assert capsys.readouterr().err == f"dets: {said}\n"


def test_a_traceback_is_shown_on_request(stand_in: types.ModuleType) -> None:
    stand_in.run = mock.Mock(side_effect=PermissionError)
    with pytest.raises(PermissionError):
        cli.main(["--traceback", "experiment", "dets-fig5"])


RESULT = {
    "figures": {"fs": {"pairs_per_s": 5.5e7}, "runs": [1, 2]},
    "settings": {"pairs": 1000},
    "targets": [{"name": "fs", "value": 4e7, "unit": "pairs/s", "target": 5e7, "met": False}],
}


def test_a_benchmark_prints_one_json_object_and_a_missed_target_is_no_failure(
    stand_in: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.run = lambda: print("chatter") or RESULT
    assert cli.main(["bench", "allocation", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"name": "allocation", **RESULT}
    assert captured.err == "chatter\n"


def test_a_benchmark_as_tables(stand_in: types.ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in.run = lambda: RESULT
    assert cli.main(["bench", "allocation"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("fs.pairs_per_s", "5.5e+07", "runs.1", "pairs/s", "no"))
    print_result({"name": "empty"})
    assert "empty" in capsys.readouterr().out


def test_a_benchmark_gets_the_options_that_were_given(stand_in: types.ModuleType) -> None:
    seen = []

    def run(
        switches: Annotated[int, "How many."] = 2,
        pairs: Annotated[int | None, "Of each."] = None,
        name: Annotated[list[str] | None, "Only this; repeatable."] = None,
        output: Annotated[Path, "Folder."] = Path("results"),
        parameter: Parameters = None,
        full: Annotated[bool, "All of them."] = False,
    ) -> dict[str, object]:
        """What it measures."""
        seen.append((switches, pairs, name, output, parameter, full))
        return RESULT

    stand_in.run = run
    assert cli.main(["bench", "loop", "--json"]) == 0
    words = "--switches 3 --pairs 32 --name a --name b --output out --parameter k=1 --full"
    assert cli.main(["bench", "loop", "--json", *words.split()]) == 0
    assert seen == [(2, None, None, Path("results"), None, False), (3, 32, ["a", "b"], Path("out"), ["k=1"], True)]
    assert cli.main(["bench", "loop", "--no-full"]) == 2


def test_the_help_shows_the_defaults_of_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["experiment", "--help"]) == 0
    assert format_rate(ExperimentOptions().victim_limit_bps) in capsys.readouterr().out
