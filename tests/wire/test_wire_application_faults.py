"""The real application against software switches that refuse, stall, talk nonsense, vanish and come back."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import corrupted_messages
from support.application import Application
from support.paths import ROOT
from support.wire import EVERYBODY, WireRun, configuration, frame

from controller.forwarding.pipeline import Table
from controller.openflow.constants import MessageType, MultipartType
from experiments.machine.controller_process import free_ports
from experiments.switch.options import DatapathOptions

SUPPORT = Path(__file__).parents[1] / "support"
LINK = [((1, 10), (2, 10))]


def health(app: Application) -> dict[str, Any]:
    return dict(app.get("/v1/health"))


def wait_back(run: WireRun, dpid: int, connections: int) -> None:
    """Wait until a switch has connected so many times, and all are ready."""
    run.wait(lambda: run.fabric.connections(dpid) >= connections, f"connected {connections} times", 30)
    run.app.wait_ready()


def connects(host: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((host, port)) == 0


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireRun]:
    """One switch, with which all is well again after each test, and two more applications beside."""
    folder = tmp_path_factory.mktemp("one")
    beside = SUPPORT / "stock_ryu_app.py", SUPPORT / "failing_loop_app.py"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SABOTAGE", str(folder / "spoiler"))
        with WireRun(folder, {1: [1, 2]}, beside=beside) as run:
            yield run


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireRun]:
    """Two switches with a link, with which all is well again after each test."""
    with WireRun(tmp_path_factory.mktemp("two"), {1: [1, 2], 2: [1, 2]}, LINK) as run:
        yield run


# -- switches that refuse


def test_a_full_table_is_told_once_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    with WireRun(tmp_path, {1: [1, 2]}, options=DatapathOptions(entries_per_table=14)) as run:
        for number in range(12):
            run.fabric.inject(1, 1, frame(0xA0 + number, EVERYBODY, 10))
        run.app.wait_for(lambda: run.app.events("switch-error"), "told")
        run.fabric.forget_received()
        run.fabric.inject(1, 1, frame(0xA1, EVERYBODY, 10))
        assert len(run.fabric.received(1, 2)) == 1
        last = run.app.last_event()
        run.app.wait_for(lambda: run.app.last_event() > last, "audited", 25)
        full = [event for event in run.app.events("switch-error") if "TABLE_FULL" in event["text"]]
        assert 1 <= len(full) <= 3
        assert health(run.app)["status"] == "ready"


# -- switches that come and go


def changes_at_rest(run: WireRun) -> tuple[int, int]:
    """Return how many flow- and meter-mods the switch has had, once half a second brings no more."""
    seen: list[tuple[int, int]] = []

    def at_rest() -> bool:
        time.sleep(0.5)
        seen.append((run.handled(1, MessageType.FLOW_MOD), run.handled(1, MessageType.METER_MOD)))
        return seen[-2:] == seen[-1:] * 2

    run.app.wait_for(at_rest, "nothing more is sent")
    return seen[-1]


def test_a_switch_that_kept_its_tables_is_left_as_it_is(one: WireRun) -> None:
    one.introduce(1, 1, 0xA1)
    one.introduce(1, 2, 0xA2)
    one.fabric.inject(1, 1, frame(0xA1, 0xA2, 10))
    one.app.wait_for(lambda: one.app.entry(1, 2, 10), "a pair")
    before = changes_at_rest(one)
    flows, meters = set(one.flows(1)), one.meters(1)
    connections = one.fabric.connections(1)
    one.fabric.disconnect(1, reconnect=False)
    one.app.wait_for(lambda: health(one.app)["status"] == "degraded", "missed")
    assert health(one.app)["switches"] == {"s1": "disconnected"}
    one.fabric.reconnect(1)
    wait_back(one, 1, connections + 1)
    assert changes_at_rest(one) == before
    assert (set(one.flows(1)), one.meters(1)) == (flows, meters)


def test_a_switch_that_lost_its_tables_gets_them_again(one: WireRun) -> None:
    one.introduce(1, 1, 0xA1)
    one.introduce(1, 2, 0xA2)
    one.fabric.inject(1, 1, frame(0xA1, 0xA2, 10))
    one.app.wait_for(lambda: one.app.entry(1, 2, 10), "a pair")
    changes_at_rest(one)  # its entry comes behind its meter
    flows, meters = set(one.flows(1)), one.meters(1)
    connections = one.fabric.connections(1)
    one.fabric.disconnect(1, keep_tables=False)
    wait_back(one, 1, connections + 1)
    one.wait(lambda: (set(one.flows(1)), one.meters(1)) == (flows, meters), "as before")


def test_entries_that_somebody_else_removed_or_changed_come_back(one: WireRun) -> None:
    last = one.app.last_event()
    one.introduce(1, 1, 0xA1)
    changes_at_rest(one)
    flows, meters = set(one.flows(1)), one.meters(1)
    with one.fabric.locked():
        tables = one.switch(1).tables
        for entry in list(tables._entries[Table.FORWARD].values()):
            tables.remove(entry)
        one.switch(1).meters.delete(1)
    one.wait(lambda: (set(one.flows(1)), one.meters(1)) == (flows, meters), "mended", 25)
    assert one.app.events("tables-repaired", last)


def test_a_switch_that_confirms_nothing_is_made_to_connect_anew(two: WireRun) -> None:
    last, connections = two.app.last_event(), [two.fabric.connections(dpid) for dpid in (1, 2)]
    with two.fabric.locked():
        two.switch(1).faults.lose_barriers = -1
    two.fabric.inject(1, 1, frame(0xC00 + connections[0], EVERYBODY, 10))  # a host that is not known
    two.app.wait_for(lambda: two.app.events("switch-down", last), "dropped", 25)
    assert any("no barrier reply" in event["text"] for event in two.app.events("switch-error", last))
    with two.fabric.locked():
        two.switch(1).faults.lose_barriers = 0
    wait_back(two, 1, connections[0] + 1)
    assert two.fabric.connections(2) == connections[1]
    two.introduce(1, 1, 0xD00 + connections[0])


def test_limits_that_change_while_a_switch_is_away_are_there_when_it_is_back(two: WireRun) -> None:
    """Those of its own VNs, and what the others may send it: the switch has kept the old ones."""

    def rates() -> set[int]:
        return {rate for rate, _ in two.meters(1).values()}

    for dpid, mac in ((1, 0xA1), (2, 0xB1)):
        two.introduce(dpid, 1, mac)
    assert 400_000 in rates()
    connections = two.fabric.connections(1)
    two.fabric.disconnect(1, reconnect=False)
    two.app.wait_for(lambda: health(two.app)["switches"]["s1"] == "disconnected", "away")
    limits = [{"vlan_vid": 10, "switch": "s1", "port_no": port, "send_limit_bps": 123_000_000} for port in (1, 2)]
    status, _, answer = two.app.request("POST", "/v1/limits", {"limits": limits})
    assert status == 200, answer
    shown = two.app.get("/v1/revision")
    assert (shown["disconnected_switches"], shown["revision"]) == (["s1"], answer["revision"])
    with two.fabric.locked():
        assert two.switch(1).meters.ids().size
    two.fabric.reconnect(1)
    wait_back(two, 1, connections + 1)
    two.wait(lambda: 123_000 in rates() and 400_000 not in rates(), "new limits")
    two.app.wait_for(lambda: two.app.get("/v1/revision")["installed_revision"] >= answer["revision"], "in force")
    for limit in limits:
        assert two.app.request("DELETE", f"/v1/vns/10/s1/{limit['port_no']}/overrides")[0] == 200


def test_the_metrics_tell_of_limits_messages_and_switches_that_are_away(two: WireRun) -> None:
    before = two.app.metrics()
    two.app.patch("/v1/vns/10/s1/1", receive_limit_bps=123_000_000)
    rounds = ("dets_loop_round_seconds_count",)
    two.app.wait_for(lambda: two.app.metrics()[rounds] > before[rounds] + 5, "on")
    after = two.app.metrics()
    assert after["dets_vn_receive_limit_bits_per_second", "1", "s1", "10"] == 123_000_000
    assert after["dets_switch_ready", "s1"] == after["dets_switch_ready", "s2"] == 1
    for direction in ("sent", "received"):
        key = ("dets_openflow_messages_total", direction, "s1")
        assert after[key] > before[key] > 0
    assert after["dets_event_loop_lag_seconds_count",] > 0
    assert after["dets_loop_interval_seconds",] == 0.055
    errors = ("dets_openflow_error_replies_total", "s1")
    assert after[errors] == before[errors]
    two.fabric.disconnect(2, reconnect=False)
    two.app.wait_for(lambda: two.app.metrics()["dets_switch_ready", "s2"] == 0, "gone")
    two.fabric.reconnect(2)
    two.app.wait_ready()
    assert two.app.request("DELETE", "/v1/vns/10/s1/1/overrides")[0] == 200


def test_a_refused_barrier_confirms_no_change(two: WireRun) -> None:
    """The next barrier does, and a switch that refuses each of them has to connect again."""
    last, connections = two.app.last_event(), two.fabric.connections(1)

    def refuse_barriers(count: int) -> None:
        with two.fabric.locked():
            two.switch(1).faults.corrupt = corrupted_messages.times(
                count, MessageType.BARRIER_REPLY, corrupted_messages.refused_request
            )

    def change(limit_bps: int) -> int:
        status, _, answer = two.app.request("PATCH", "/v1/vns/10/s1/1", {"send_limit_bps": limit_bps})
        assert status == 200, answer
        return int(answer["revision"])

    def unconfirmed(revision: int) -> list[str]:
        answer = two.app.get("/v1/revision")
        assert (answer["installed_revision"] >= revision) == (not answer["unconfirmed_switches"])
        return list(answer["unconfirmed_switches"])

    refuse_barriers(-1)
    revision = change(300_000_000)
    two.app.wait_for(lambda: two.app.events("switch-error", last), "refused")
    two.app.wait_for(lambda: unconfirmed(revision) == ["s1"], "confirmed by s2 alone")
    refuse_barriers(0)
    two.app.wait_for(lambda: not unconfirmed(revision), "confirmed by a later barrier", 10)
    assert two.fabric.connections(1) == connections
    refuse_barriers(-1)
    change(400_000_000)
    two.app.wait_for(lambda: two.app.events("switch-down", last), "dropped", 25)
    refuse_barriers(0)
    wait_back(two, 1, connections + 1)
    assert any("refused BARRIER_REQUEST" in event["text"] for event in two.app.events("switch-error", last))


def test_a_switch_that_stalls_is_noticed_though_nothing_is_to_be_told(one: WireRun) -> None:
    last, connections = one.app.last_event(), one.fabric.connections(1)
    one.fabric.set_silent(1, True)
    one.app.wait_for(lambda: one.app.events("switch-down", last), "noticed", 20)
    assert health(one.app) | {"loops": None} == {
        "status": "degraded",
        "switches": {"s1": "disconnected"},
        "enforceable": {"yes": 0, "partly": 0, "no": 2},
        "loops": None,
    }
    one.fabric.set_silent(1, False)
    wait_back(one, 1, connections + 1)


def test_switches_are_taken_again_after_file_descriptors_ran_out(one: WireRun) -> None:
    connections = one.fabric.connections(1)
    one.fabric.disconnect(1, reconnect=False)
    one.app.wait_for(lambda: health(one.app)["status"] == "degraded", "missed")
    most = len(os.listdir(f"/proc/{one.app.pid}/fd")) + 3
    before = resource.prlimit(one.app.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(one.app.pid, resource.RLIMIT_NOFILE, (most, before[1]))
    host, _, port = one.config["openflow"]["listen"].partition(":")
    held = [socket.create_connection((host, int(port)), timeout=10) for _ in range(10)]
    one.app.wait_for(lambda: "OpenFlow: a connection cannot be taken now" in one.app.log(), "told", 30)
    for sock in held:
        sock.close()
    resource.prlimit(one.app.pid, resource.RLIMIT_NOFILE, before)
    one.fabric.reconnect(1)
    wait_back(one, 1, connections + 1)


# -- switches that talk nonsense


@pytest.mark.parametrize(
    "mangle", [corrupted_messages.cut_body, corrupted_messages.truncated, corrupted_messages.longer_than_it_is]
)
@pytest.mark.parametrize("kind", [MessageType.MULTIPART_REPLY, MessageType.PACKET_IN, MessageType.BARRIER_REPLY])
def test_a_malformed_message_stops_nothing(two: WireRun, kind: MessageType, mangle: corrupted_messages.Mangle) -> None:
    two.app.wait_ready()
    connections = two.fabric.connections(2)
    number = kind << 8 | list(vars(corrupted_messages)).index(mangle.__name__)  # hosts that no other of these tests has
    mangled = [0]

    def mangle_and_count(buf: bytes) -> bytes:
        mangled[0] += 1
        return mangle(buf)

    with two.fabric.locked():
        two.switch(1).faults.corrupt = corrupted_messages.once(kind, mangle_and_count)
    two.fabric.inject(1, 1, frame(0xA0000 + number, EVERYBODY, 10))
    two.wait(lambda: mangled[0] == 1, "said wrongly")
    asked = two.handled(1, MessageType.MULTIPART_REQUEST)
    two.wait(lambda: two.handled(1, MessageType.MULTIPART_REQUEST) > asked + 20, "going on", 30)
    two.introduce(1, 2, 0xB0000 + number)
    assert two.fabric.connections(2) == connections
    assert all(loop["failures"] == 0 for loop in health(two.app)["loops"].values())


def test_garbage_costs_its_sender_the_connection_at_most(two: WireRun) -> None:
    connections = two.fabric.connections(2)
    for seed in range(3):
        with two.fabric.locked():
            two.switch(1).send_raw(corrupted_messages.garbage(seed, 200))
        two.fabric.refresh()
        two.introduce(2, 1, 0xB0 + seed)
    two.fabric.disconnect(1)  # the rest of it may stand for a message that never ends
    two.app.wait_ready()
    two.introduce(1, 1, 0xA1)
    assert two.fabric.connections(2) == connections


def test_a_switch_that_does_not_answer_at_first_comes_up_in_the_end(tmp_path: Path) -> None:
    run = WireRun(tmp_path, {1: [1, 2]})
    run.switch(1).faults.lose_replies = {int(MultipartType.METER_CONFIG)}
    run.app.start()
    run.fabric.start()
    try:
        run.app.wait_for(lambda: run.app.events("switch-error"), "told", 30)
        assert "no answer within 10 s" in run.app.events("switch-error")[0]["text"]
        assert health(run.app)["status"] == "degraded"
        with run.fabric.locked():
            run.switch(1).faults.lose_replies = set()
        run.app.wait_ready()
        run.introduce(1, 1, 0xA1)
    finally:
        run.__exit__(None)


# -- the application itself


def test_plain_applications_work_beside(one: WireRun) -> None:
    one.fabric.inject(1, 1, frame(0xA9, EVERYBODY, 10))
    one.app.wait_for(lambda: "plain app: a frame at port 1" in one.app.log(), "a frame")
    assert "plain app: ports [1, 2]" in one.app.log()
    assert "plain app: barrier of 1" in one.app.log()


def test_a_loop_that_fails_goes_on_and_shows_in_the_health(one: WireRun) -> None:
    def queues() -> dict[str, Any]:
        return dict(health(one.app)["loops"]["queues"])

    assert queues() == {"failures": 0, "fault": None}
    spoiler = one.app.config_path.parent / "spoiler"
    spoiler.touch()
    one.app.patch("/v1/vns/10/s1/1", receive_limit_bps=100_000_000)  # that wakes the loop
    one.app.wait_for(lambda: queues()["failures"] >= 2, "tried again")
    ill = health(one.app)
    assert (ill["status"], ill["switches"]) == ("degraded", {"s1": "ready"})
    assert queues()["fault"] == "SabotageError: switch 1 is beyond me"
    spoiler.unlink()
    one.app.wait_ready()
    assert queues()["failures"] >= 2


def test_an_option_of_ryus_takes_precedence_and_the_log_says_so(tmp_path: Path) -> None:
    """The module's name is what is known after an installation; options stand anywhere among the applications."""
    config = configuration({1: [1, 2]})
    host, port = "127.0.0.1", free_ports(1)[0]
    app = Application(
        config, tmp_path, beside=("ryu.app.ofctl_rest", "--wsapi-port=0", f"--ofp-tcp-listen-port={port}")
    )
    with app:
        app.wait_for(lambda: "loading app ryu.app.ofctl_rest" in app.log(), "the other application")
        app.wait_for(lambda: connects(host, port), "listening")
    log = app.log()
    configured = config["openflow"]["listen"]
    assert f"--ofp-tcp-listen-port {port} takes precedence over openflow.listen: {configured}" in log
    assert f"listens for switches at {host}:{port}" in log
    assert f"listens for REST at {config['rest']['listen']}" in log


def test_a_bad_configuration_is_refused_with_file_and_line(tmp_path: Path) -> None:
    config = configuration({1: [1, 2]})
    config["switches"]["s1"]["ports"][2]["capacity"] = "800M"
    config["vlans"][10]["algorithm"] = "best"
    app = Application(config, tmp_path)
    command = [sys.executable, "-m", "apps.cli", "run", "--config", str(app.config_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    where = app.config_path.read_text().splitlines().index("    algorithm: best") + 1
    assert f"{app.config_path}:{where}:" in done.stderr
    assert "Traceback" not in done.stderr
    assert "800M is below the sum of the port's send limits" in done.stderr


def test_an_address_of_rest_that_is_in_use_is_refused_at_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = configuration({1: [1, 2]})
        config["rest"]["listen"] = f"127.0.0.1:{taken.getsockname()[1]}"
        app = Application(config, tmp_path)
        with app:
            assert app.wait_ended(30) == 2
        assert "rest.listen" in app.log()
        assert "Traceback" not in app.log()
