"""The real application against software switches that carry traffic: limits hold, change, and are taken over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.application import Application
from support.host_traffic import of_pair
from support.paths import ROOT
from support.wire import EVERYBODY, WireRun, frame

from controller.capability import meter_probe
from controller.forwarding.pipeline import OWN_COOKIE, Table
from controller.metering.enforcement import RESPONSIVE_BURST_S
from controller.openflow.actions import Output
from controller.openflow.constants import FlowModCommand, MessageType, MeterModCommand
from controller.openflow.flows import Flow, encode_flow_mods
from controller.openflow.match import Match
from controller.openflow.meters import encode_meter_mods

SENDERS, RECEIVER = (1, 2, 3), 4
SENDER_MACS, RECEIVER_MAC = (0xA1, 0xA2, 0xA3), 0xB1
LIMIT_BPS = 400e6
BLAST_BPS = 300e6
SETTLE_S = 10.0


class Blast:
    """Three senders of one VLAN on their way to one receiver."""

    def __init__(self, run: WireRun) -> None:
        self.run = run
        run.introduce(1, RECEIVER, RECEIVER_MAC)
        for port, mac in zip(SENDERS, SENDER_MACS, strict=True):
            run.introduce(1, port, mac)
        self.flows = [
            run.offer((1, port), mac, RECEIVER_MAC, 0.0) for port, mac in zip(SENDERS, SENDER_MACS, strict=True)
        ]

    def start(self, rate_bps: float = BLAST_BPS) -> None:
        with self.run.fabric.locked():
            self.run.fabric.rates.set_rates(self.flows, rate_bps)

    def delivered_bps(self, seconds: float = 0.5) -> float:
        """What the receiver's port sends, on average over some time."""
        before = self.sent()
        time.sleep(seconds)
        after = self.sent()
        return float((after[1] - before[1]) * 8 / (after[0] - before[0]))

    def sent(self) -> tuple[float, float]:
        """Return the time, and how many bytes the receiver's port has sent by then."""
        with self.run.fabric.locked():
            now_s = time.monotonic()
            self.run.fabric.rates.advance(now_s)
            return now_s, self.run.switch(1).ports[RECEIVER].counters["tx_bytes"]

    def wait_delivered(self, wanted_bps: float, tolerance: float = 0.03) -> None:
        """Wait until the receiver gets what it is to get."""
        self.run.app.wait_for(
            lambda: abs(self.delivered_bps() / wanted_bps - 1) < tolerance, f"delivering {wanted_bps:g}", SETTLE_S
        )


@pytest.fixture(scope="module")
def blast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blast]:
    with WireRun(tmp_path_factory.mktemp("blast"), {1: [*SENDERS, RECEIVER]}) as run:
        yield Blast(run)


def grants(app: Application) -> list[int]:
    entries = [app.entry(port, RECEIVER, 10) for port in SENDERS]
    return [entry["granted_bps"] or 0 for entry in entries if entry is not None]


@pytest.mark.rates
def test_the_receivers_limit_holds_and_is_shared(blast: Blast) -> None:
    app = blast.run.app
    assert app.events("congestion-began") == []
    blast.start()
    blast.wait_delivered(LIMIT_BPS)
    assert app.get("/v1/vns/10/s1/4")["congested"]
    assert len(app.events("congestion-began")) == 1
    app.wait_for(lambda: grants(app) == pytest.approx([LIMIT_BPS / 3] * 3, rel=0.02), "equal parts")
    view = app.wait_for(lambda: (e := app.entry(1, RECEIVER, 10)) and e["unresponsive"] and e, "seen not to respond")
    assert blast.run.meters(1)[view["meter_id"]][0] * 1000 <= LIMIT_BPS / 3


@pytest.mark.rates
def test_os_ken_controls_and_runs_what_is_written_for_ryu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ryu itself cannot be imported in that process."""
    ryu = tmp_path / "path" / "ryu" / "__init__.py"
    ryu.parent.mkdir(parents=True)
    ryu.write_text("raise SystemExit('Ryu itself')\n")
    monkeypatch.setenv("PYTHONPATH", str(ryu.parents[1]))
    monkeypatch.setenv("DETS_FRAMEWORK", "os-ken")
    run = WireRun(tmp_path, {1: [*SENDERS, RECEIVER]}, beside=(ROOT / "tests" / "support" / "stock_ryu_app.py",))
    run.app.by_command = True
    with run:
        blast = Blast(run)
        blast.start()
        blast.wait_delivered(LIMIT_BPS)
        log = run.app.log()
        assert "plain app: ports [1, 2, 3, 4]" in log
        assert "plain app: a frame at port 1" in log
        assert "os_ken.base.app_manager" in log
        assert run.app.stop() == 0


@pytest.mark.rates
def test_a_limit_that_is_changed_while_traffic_flows_holds(blast: Blast) -> None:
    app = blast.run.app
    blast.start()
    blast.wait_delivered(LIMIT_BPS)
    try:
        app.patch("/v1/vns/10/s1/4", receive_limit_bps=150_000_000)
        blast.run.wait(lambda: sum(grants(app)) <= 151e6, "granted no more than the new limit", 2)
        blast.wait_delivered(150e6)
        app.patch("/v1/vns/10/s1/1", send_limit_bps=20_000_000)
        blast.wait_delivered(150e6)
        assert app.entry(1, RECEIVER, 10)["limit_bps"] == 20_000_000  # type: ignore[index]
        assert (20_000, 6_000) in blast.run.meters(1).values()  # the VN's own meter: 300 ms of burst
    finally:  # the other tests share the application
        app.patch("/v1/vns/10/s1/1", send_limit_bps=400_000_000)
        app.patch("/v1/vns/10/s1/4", receive_limit_bps=400_000_000)
    blast.wait_delivered(LIMIT_BPS)


@pytest.mark.rates
@pytest.mark.parametrize("algorithm", ["fp", "sp", "fe", "fs"])
def test_an_algorithm_that_is_changed_while_traffic_flows_keeps_the_limit(blast: Blast, algorithm: str) -> None:
    blast.start()
    blast.wait_delivered(LIMIT_BPS)
    assert blast.run.app.patch("/v1/vlans/10", algorithm=algorithm)["algorithm"] == algorithm
    blast.wait_delivered(LIMIT_BPS)
    assert blast.run.app.get("/v1/vns/10/s1/4")["congested"]


def changes(run: WireRun) -> dict[str, int]:
    """How many messages that change tables the switch has had."""
    kinds = {"flow-mods": MessageType.FLOW_MOD, "meter-mods": MessageType.METER_MOD}
    return {name: run.handled(1, kind) for name, kind in kinds.items()}


FOREIGN = Flow(9, 7, Match(in_port=1), 0xBEEF, actions=(Output(2),))
FOREIGN_METER = 60_000


def add_foreign(run: WireRun) -> None:
    """An entry and a meter of another application."""
    with run.fabric.locked():
        meter = encode_meter_mods([int(MeterModCommand.ADD)], [FOREIGN_METER], [123], [64], xid_first=1)
        run.switch(1).receive(encode_flow_mods([(FlowModCommand.ADD, FOREIGN)], 1) + meter, time.monotonic())


@pytest.mark.rates
def test_a_stop_keeps_everything_and_the_next_start_takes_it_over_untouched(tmp_path: Path) -> None:
    with WireRun(tmp_path, {1: [*SENDERS, RECEIVER]}, openflow={"last_meter_id": 1000}) as run:
        add_foreign(run)
        calm = Blast(run)
        calm.start(100e6)  # within the limit: no meter has a reason to change
        run.app.wait_for(lambda: len(run.app.get("/v1/pairs?vlan=10")["pairs"]) == 3, "three pairs")
        calm.wait_delivered(300e6)
        pairs = {entry["meter_id"] for entry in run.app.get("/v1/pairs?vlan=10")["pairs"]}

        def standing() -> dict[int, tuple[int, int]]:
            """The meters that no account moves: without queues those of pairs share what their receiver has left."""
            return {meter_id: setting for meter_id, setting in run.meters(1).items() if meter_id not in pairs}

        flows, meters = set(run.flows(1)), standing()
        assert run.app.stop() == 0
        assert (set(run.flows(1)), standing()) == (flows, meters)
        assert pairs <= run.meters(1).keys()
        assert calm.delivered_bps() == pytest.approx(300e6, rel=0.02)
        before = changes(run)
        # A new run tests what the switch can do, on a meter and entries of the test's own that come and go.
        tested = {"flow-mods": 1 + len(meter_probe.ProbeKind) + 1}
        run.app.start()
        run.app.wait_ready()
        run.app.wait_for(lambda: len(run.app.get("/v1/pairs?vlan=10")["pairs"]) == 3, "three pairs again")
        time.sleep(0.5)
        assert changes(run)["flow-mods"] == before["flow-mods"] + tested["flow-mods"]
        assert (set(run.flows(1)), standing()) == (flows, meters)
        assert FOREIGN in flows
        assert meters[FOREIGN_METER][0] == 123


@pytest.mark.rates
def test_a_controlled_receiver_stays_controlled_over_a_restart(tmp_path: Path) -> None:
    run = WireRun(tmp_path, {1: [*SENDERS, RECEIVER]})
    run.app.by_command = True  # a stop fills buckets once, which counts over the time that operators' restarts take
    with run:
        blast = Blast(run)
        blast.start()
        blast.wait_delivered(LIMIT_BPS)
        assert run.app.stop() == 0
        before = blast.sent()
        run.app.start()
        run.app.wait_ready()
        blast.wait_delivered(LIMIT_BPS)
        after = blast.sent()
        sent_bits, time_s = (after[1] - before[1]) * 8, after[0] - before[0]
        # A stop leaves each pair its grant and a bucket for TCP, which fills once (docs/enforcement.md).
        assert sent_bits < LIMIT_BPS * (1.01 * time_s + RESPONSIVE_BURST_S)
        assert run.app.get("/v1/vns/10/s1/4")["congested"]


def test_pairs_towards_a_switch_that_comes_late_wait_for_it(tmp_path: Path) -> None:
    """What an earlier run granted them stands meanwhile, and they are controlled without an audit, 10 s later."""
    with WireRun(tmp_path, {1: SENDERS, 2: [RECEIVER]}, [((1, 9), (2, 9))]) as run:
        run.introduce(2, RECEIVER, RECEIVER_MAC)
        for port, mac in zip(SENDERS, SENDER_MACS, strict=True):
            run.introduce(1, port, mac)
            run.offer((1, port), mac, RECEIVER_MAC, BLAST_BPS)
        receiver = f"/v1/vns/10/s2/{RECEIVER}"
        run.app.wait_for(lambda: len(run.app.get("/v1/pairs?vlan=10")["pairs"]) == 3, "the pairs")  # two congest it
        run.app.wait_for(lambda: run.app.get(receiver)["congested"], "congestion")
        assert run.app.stop() == 0
        run.fabric.disconnect(2, reconnect=False)
        granted = {flow: run.meters(1)[flow.meter_id] for flow in run.flows(1) if of_pair(flow)}
        assert len(granted) == len(SENDERS)

        run.app.start()
        run.app.wait_for(lambda: run.app.get("/v1/health")["switches"]["s1"] == "ready", "the senders' switch")
        time.sleep(1.0)
        assert run.app.get("/v1/pairs")["pairs"] == []
        run.fabric.reconnect(2)
        run.app.wait_for(lambda: len(run.app.get("/v1/pairs?vlan=10")["pairs"]) == 3, "the pairs", 4.0)
        now = {flow: run.meters(1)[flow.meter_id] for flow in run.flows(1) if of_pair(flow)}
        assert now.keys() == granted.keys()
        run.app.wait_for(lambda: run.app.get(receiver)["congested"], "congestion again", 2.0)


def test_a_stop_that_removes_leaves_only_what_is_not_ours(tmp_path: Path) -> None:
    sections = {"control": {"on_stop": "remove"}, "openflow": {"last_meter_id": 1000}}
    with WireRun(tmp_path, {1: [*SENDERS, RECEIVER]}, **sections) as run:
        add_foreign(run)
        Blast(run).start(100e6)
        run.app.wait_for(lambda: len(run.app.get("/v1/pairs")["pairs"]) == 3, "three pairs")
        assert run.app.stop() == 0
        assert run.flows(1) == [FOREIGN]
        assert list(run.meters(1)) == [FOREIGN_METER]


def test_leftovers_of_another_configuration_are_replaced(tmp_path: Path) -> None:
    with WireRun(tmp_path, {1: [*SENDERS, RECEIVER]}, openflow={"last_meter_id": 1000}) as run:
        add_foreign(run)
        Blast(run).start(100e6)
        run.app.wait_for(lambda: len(run.app.get("/v1/pairs")["pairs"]) == 3, "three pairs")
        assert run.app.stop() == 0
        vlans = {30: {"send_limit": "10M", "receive_limit": "20M", "algorithm": "fp"}}
        ports = {port: {"capacity": "1G", "access": 30} for port in (1, 2)}
        run.app.configure({**run.config, "vlans": vlans, "switches": {"s1": {"dpid": 1, "ports": ports}}})
        run.app.start()
        run.app.wait_ready()
        # Two VNs have a send, a flood, a discovery, a newcomers' and a report meter each.
        run.app.wait_for(lambda: len(run.meters(1)) == 2 * 5 + 1, "the old meters gone", 20)
        assert FOREIGN_METER in run.meters(1)
        # What a VN may send, and what it may send to the only other one before that has an entry.
        assert [rate for rate, _ in run.meters(1).values()].count(10_000) == 2 * 2
        ours = [flow for flow in run.flows(1) if flow != FOREIGN]
        assert {flow.cookie >> 48 for flow in ours} == {OWN_COOKIE >> 48}
        assert {flow.match.vlan_vid for flow in ours if flow.table_id == Table.SEND_LIMIT} == {30}
        assert not any(flow.match.eth_dst in SENDER_MACS for flow in ours)
        assert FOREIGN in run.flows(1)
        run.fabric.forget_received()
        sent = frame(0xA1, EVERYBODY, None)
        run.fabric.inject(1, 1, sent)
        assert [run.fabric.received(1, port) for port in (1, 2, 3, 4)] == [[], [sent], [], []]
