"""The real application reads its configuration again: what did not change is not touched, errors change nothing."""

from __future__ import annotations

import signal

import pytest
import yaml
from support.host_traffic import of_pair
from support.skipped_rounds import few_skipped
from support.wire import WireRun

from apps.cli import main
from controller.openflow.constants import MessageType

MACS = {1: 0x0200_0000_0001, 2: 0x0200_0000_0002, 3: 0x0200_0000_0003}


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with WireRun(tmp_path_factory.mktemp("reload"), {1: [1, 2, 3]}) as run:
        for port, mac in MACS.items():
            run.introduce(1, port, mac)
        for port in (1, 2):
            run.offer((1, port), MACS[port], MACS[3], 300e6)
        run.app.wait_for(lambda: run.app.get("/v1/vns/10/s1/3")["congested"], "congested")
        # A pair is shown before its flow entries have come to the switch.
        run.wait(lambda: sum(map(of_pair, run.flows(1))) == 2, "both pairs")
        run.app.wait_for(lambda: run.app.entry(1, 3, 10) and run.app.entry(2, 3, 10), "both are shown")
        yield run


@pytest.fixture
def run(started):
    """The application and its file as they were at first, when a test begins and after it."""
    yield started
    started.app.request("DELETE", "/v1/vns/10/s1/3/overrides")
    started.app.configure(started.config)
    reload(started)
    started.wait(lambda: sum(map(of_pair, started.flows(1))) == 2, "both pairs again")


def rewrite(run, change):
    """Change the file under the running application."""
    config = run.app.config()
    change(config)
    run.app.configure(config)


def reload(run, status=200, query=""):
    got, _, answer = run.app.request("POST", f"/v1/reload{query}")
    assert got == status, answer
    return answer


def test_nothing_is_done_for_nothing(run):
    before = run.flows(1)
    assert reload(run)["changes"] == []
    assert run.flows(1) == before


def test_a_new_port_comes_and_goes_and_nobody_else_is_touched(run):
    flow_mods = run.handled(1, MessageType.FLOW_MOD)
    entries = {port: run.app.entry(port, 3, 10)["meter_id"] for port in (1, 2)}
    granted = run.app.get("/v1/vns/10/s1/3")["granted_bps"]
    port = {"capacity": "1G", "trunk": [10]}
    rewrite(run, lambda config: config["switches"]["s1"]["ports"].update({4: port}))
    changes = reload(run, query="?dry_run=true")["changes"]
    assert "switches.s1.ports.4.capacity_bps" in {change["path"] for change in changes}
    assert run.app.request("GET", "/v1/vns/10/s1/4")[0] == 404
    assert reload(run)["changes"] == changes
    assert run.app.get("/v1/vns/10/s1/4")["receive_limit_bps"] == 400_000_000
    assert {port: run.app.entry(port, 3, 10)["meter_id"] for port in (1, 2)} == entries
    vn = run.app.get("/v1/vns/10/s1/3")
    assert (vn["congested"], vn["granted_bps"]) == (True, pytest.approx(granted, rel=0.02))
    run.wait(lambda: any(flow.match.in_port == 4 for flow in run.flows(1)), "the new port's entries")
    # Unknown sources, the VN's send limit, its newcomers, the floods of both VLANs, what is refused; and deletes of
    # three entries of the port, which the switch lacks: not those of hosts and pairs.
    assert run.handled(1, MessageType.FLOW_MOD) - flow_mods <= 13
    rewrite(run, lambda config: config["switches"]["s1"]["ports"].pop(4))
    reload(run)
    run.wait(lambda: not any(flow.match.in_port == 4 for flow in run.flows(1)), "gone")
    assert run.app.request("GET", "/v1/vns/10/s1/4")[0] == 404


def test_what_was_set_at_run_time_stays_in_force(run):
    run.app.patch("/v1/vns/10/s1/3", receive_limit_bps=100_000_000)
    rewrite(run, lambda config: config["vlans"][10].update(receive_limit="300M", algorithm="sp"))
    assert {"vlans.10.algorithm"} < {change["path"] for change in reload(run)["changes"]}
    assert run.app.get("/v1/vns/10/s1/3")["receive_limit_bps"] == 100_000_000
    assert run.app.get("/v1/vns/10/s1/2")["receive_limit_bps"] == 300_000_000
    assert run.app.get("/v1/vlans/10")["algorithm"] == "sp"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda config: config["vlans"][10].update(receive_limt="1M"), "receive_limt: is not a known key"),
        (lambda config: config["vlans"][10].update(receive_limit="2G"), "receive"),
        (lambda config: config.update(control={"interval_ms": 100}), "control.interval_ms: 100 can only be changed by"),
        (lambda config: config["rest"].update(requests_per_s=7), "rest.requests_per_s: 7 can only be changed by"),
    ],
)
def test_errors_are_told_and_change_nothing(run, change, said):
    before, flows = run.app.get("/v1/vlans/10"), run.flows(1)
    rewrite(run, change)
    problem = reload(run, 422)
    assert said in str(problem)
    assert run.app.get("/v1/vlans/10") == before
    assert run.flows(1) == flows
    with pytest.raises(AssertionError):
        run.app.wait_for(lambda: run.app.get("/v1/health")["status"] != "ready", "ill", 0.5)


def test_a_signal_reloads_and_the_log_tells_of_errors(run):
    rewrite(run, lambda config: config["vlans"][10].update(name="first"))
    run.app.send_signal(signal.SIGHUP)
    run.app.wait_for(lambda: run.app.get("/v1/vlans/10")["name"] == "first", "reloaded")
    rewrite(run, lambda config: config["vlans"][10].update(name=""))
    run.app.send_signal(signal.SIGHUP)
    run.app.wait_for(lambda: "not reloaded, the configuration is as before" in run.app.log(), "told")
    assert run.app.get("/v1/vlans/10")["name"] == "first"


def test_signals_while_a_reload_runs_end_with_the_file_as_it_is_last(run):
    """Good and bad files by turns, and requests among the signals: nothing half of it, and the loop goes on."""
    config = run.app.config()

    def write(name):
        run.app.configure({**config, "vlans": {**config["vlans"], 10: {**config["vlans"][10], "name": name}}})
        run.app.send_signal(signal.SIGHUP)

    with few_skipped(run.app):
        for number in range(30):
            write(f"n{number}" if number % 3 else "not a name")
            if number % 5 == 0:
                assert run.app.request("POST", "/v1/reload")[0] in (200, 422)
        write("last")
        run.app.wait_for(lambda: run.app.get("/v1/vlans/10")["name"] == "last", "the last one")
    with pytest.raises(AssertionError):
        run.app.wait_for(lambda: run.app.get("/v1/vlans/10")["name"] != "last", "another one", 0.5)
    assert run.app.get("/v1/health")["status"] == "ready"


def test_an_included_file_that_is_gone_changes_nothing(run, tmp_path):
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text(yaml.safe_dump({"vlans": {30: {"send_limit": "1M", "receive_limit": "1M"}}}))
    rewrite(run, lambda config: config.update(include=[str(tenants)]))
    reload(run)
    assert run.app.get("/v1/vlans/30")["send_limit_bps"] == 1_000_000
    tenants.unlink()
    assert "tenants.yaml: cannot be read: No such file" in str(reload(run, 422))
    assert run.app.get("/v1/vlans/30")["send_limit_bps"] == 1_000_000
    tenants.write_text(yaml.safe_dump({"rest": {"listen": "0.0.0.0:1"}}))
    assert "rest: is not for an included file" in str(reload(run, 422))


def test_a_switch_is_let_go_and_taken_in_again(tmp_path):
    with WireRun(tmp_path, {1: [1, 2], 2: [1, 2]}, [((1, 9), (2, 9))]) as run:
        config = run.app.config()
        rewrite(run, lambda config: config["switches"].pop("s2"))
        reload(run)
        run.wait(lambda: not run.flows(2) and not run.meters(2), "cleared")
        assert run.app.get("/v1/health")["switches"] == {"s1": "ready"}
        run.app.configure(config)
        reload(run)
        run.app.wait_ready()
        run.wait(lambda: len(run.meters(2)) == 4 * 5, "meters again")  # four VNs, five meters each


def test_the_command_line_shows_what_differs(run, capsys):
    rewrite(run, lambda config: config["vlans"][10].update(receive_limit="300M"))
    assert main(["reload", "--dry-run", "--url", run.app.url]) == 0
    said = capsys.readouterr().out
    assert "VLAN 10: receive_limit 300M, was 400M\n" in said
    assert "400M" in said
    assert "300M" in said
    assert "nothing is changed: --dry-run" in said
    assert main(["reload", "--wait", "--url", run.app.url]) == 0
    assert "in force" in capsys.readouterr().out
    assert run.app.get("/v1/vns/10/s1/3")["receive_limit_bps"] == 300_000_000
    rewrite(run, lambda config: config["vlans"][10].update(receive_limit="fast"))
    assert main(["reload", "--url", run.app.url]) != 0
    assert "receive_limit" in capsys.readouterr().err
