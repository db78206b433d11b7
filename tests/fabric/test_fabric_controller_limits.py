"""The real application on real Open vSwitch: limits changed under traffic, stops and starts that disturb nothing."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.application import Application
from support.ovs import controlled, flow_durations, meter_durations, meter_rates, wait_until

from experiments.measure.rate_series import Rates, rates_of, read_samples
from experiments.measure.sampler import Sampler
from experiments.ovs.fabric import OvsFabric
from experiments.ovs.ovs_vsctl import find_rows, ofctl, vsctl
from experiments.ovs.traffic import FIRST_PORT, Flow, Traffic
from topologies.builders import fig1
from topologies.fabric import Fabric

pytestmark = pytest.mark.rates

LIMITS_BPS = {1: 20_000_000, 2: 30_000_000}
UDP_BPS = 18_000_000  # of each of two senders: more than the limit together, less than it alone
INTERVAL_S = 0.055
FABRIC = fig1(pns=3)
RECEIVER = "/v1/vns/1/s1/3"
QUEUED_PORT = "s1-eth3"
FOREIGN_FLOW = "table=20,priority=7,cookie=0xbeef,in_port=1,actions=drop"
FOREIGN_METER = 5000
LAST_METER = 1000


@dataclass
class Blast:
    """Two UDP senders of VLAN 1 on their way to PN 3, and what it gets."""

    ovs: OvsFabric
    app: Application
    folder: Path
    _number: int = 0

    @property
    def receiver_interface(self) -> str:
        return self.ovs.fabric.vn(1, 3).switch_interface

    def received_bps(self, seconds: float) -> float:
        """The wire rate at which VLAN 1 reaches PN 3, on average over some time."""
        return float(np.average(self.rates(seconds).wire_bps))

    def rates(self, seconds: float) -> Rates:
        """The wire rate in each interval for some time."""
        self._number += 1
        samples = self.folder / f"samples{self._number}.csv"
        with Sampler([self.receiver_interface], INTERVAL_S, seconds + 30, samples):
            time.sleep(seconds)
        return rates_of(read_samples(samples, self.receiver_interface))

    def wait_received(self, wanted_bps: float, tolerance: float = 0.03) -> float:
        """Wait until a second's mean is within the tolerance; return it."""
        latest = 0.0

        def close() -> bool:
            nonlocal latest
            latest = self.received_bps(1.0)
            return abs(latest / wanted_bps - 1) <= tolerance

        wait_until(close, f"receiving {wanted_bps:g}", 15)
        return latest


def sources(fabric: Fabric) -> list[Flow]:
    receiver = fabric.vn(1, 3)
    return [Flow(fabric.vn(1, n), receiver, FIRST_PORT + n, wire_rate_bps=UDP_BPS) for n in (1, 2)]


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OvsFabric, Application, Path]]:
    folder = tmp_path_factory.mktemp("limits")
    sections: dict[str, Any] = {"control": {"on_stop": "keep"}, "openflow": {"last_meter_id": LAST_METER}}
    # Hosts that know each other ask nobody: once the tables were emptied, the receiver is seen when it is asked.
    with controlled(FABRIC, LIMITS_BPS, folder, static_arp=True, **sections) as (ovs, app):
        yield ovs, app, folder


@pytest.fixture(scope="module")
def blast(fabric: tuple[OvsFabric, Application, Path]) -> Iterator[Blast]:
    ovs, app, folder = fabric
    with Traffic(ovs, folder, 620) as traffic:
        flows = sources(ovs.fabric)
        traffic.serve(flows)
        traffic.start(flows, 600)
        blast = Blast(ovs, app, folder)
        app.wait_for(lambda: app.get(RECEIVER)["congested"], "congested")
        yield blast
        traffic.check_running(flows)


def pair_meters(app: Application) -> list[int]:
    """The meter ids of the two senders' entries towards PN 3."""
    entries = [app.entry(port, 3, 1) for port in (1, 2)]
    return [int(entry["meter_id"]) for entry in entries if entry is not None]


def queue_max_bps(vlan_vid: int) -> int:
    """The max-rate of a VLAN's queue towards PN 3 in the database."""
    qos = vsctl("get", "Port", QUEUED_PORT, "qos").strip()
    queues = next(row["queues"] for row in find_rows("QoS", "_uuid,queues") if row["_uuid"] == qos)
    row = next(row for row in find_rows("Queue", "_uuid,other_config") if row["_uuid"] == queues[vlan_vid])
    return int(row["other_config"]["max-rate"])


def class_rates_bps() -> set[int]:
    """The ceilings of the HTB classes of the port towards PN 3, as the kernel has them."""
    done = subprocess.run(
        ["tc", "class", "show", "dev", QUEUED_PORT], capture_output=True, text=True, check=True, timeout=10
    )
    scale = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
    found = re.findall(r"ceil (\d+)([KMG]?)bit", done.stdout)
    return {int(number) * scale[unit] for number, unit in found}


def test_the_limit_holds_and_the_queue_has_its_rate(blast: Blast) -> None:
    blast.wait_received(LIMITS_BPS[1])
    assert queue_max_bps(1) == LIMITS_BPS[1]
    assert queue_max_bps(2) == LIMITS_BPS[2]
    assert set(LIMITS_BPS.values()) <= class_rates_bps()


@pytest.mark.parametrize("limit_bps", [10_000_000, 20_000_000])
def test_a_receive_limit_changed_under_traffic_is_in_force_soon_and_holds(blast: Blast, limit_bps: int) -> None:
    app = blast.app
    samples = blast.folder / f"change{limit_bps}.csv"
    with Sampler([blast.receiver_interface], INTERVAL_S, 60, samples):
        time.sleep(1.0)
        asked_s = time.monotonic()
        app.patch(RECEIVER, receive_limit_bps=limit_bps)

        def granted_bps() -> int:
            return int(app.get(RECEIVER)["granted_bps"] or 0)

        wait_until(lambda: granted_bps() == pytest.approx(limit_bps, rel=0.01), "granted", 2.0)
        granted_s = time.monotonic() - asked_s
        wait_until(lambda: queue_max_bps(1) == limit_bps, "queued", 3.0)
        time.sleep(2.0)
    rates = rates_of(read_samples(samples, blast.receiver_interface))
    over = rates.wire_bps > 1.05 * limit_bps
    late = rates.end_s[over & (rates.start_s > asked_s)]
    last_over_s = float(late.max() - asked_s) if len(late) else 0.0
    print(f"{limit_bps / 1e6:g} Mb/s: granted after {granted_s * 1e3:.0f} ms, last over {last_over_s * 1e3:.0f} ms")
    wanted_kbps = limit_bps / 1000
    meters = meter_rates("s1")
    assert sum(meters[meter_id] for meter_id in pair_meters(app)) <= 1.001 * wanted_kbps
    assert limit_bps in class_rates_bps()
    mean_bps = blast.wait_received(limit_bps)
    print(f"received {mean_bps / 1e6:.2f} of {limit_bps / 1e6:g} Mb/s")
    assert granted_s < 1.0


def test_a_send_limit_changed_under_traffic_holds(blast: Blast) -> None:
    app = blast.app
    for port in (1, 2):
        app.patch(f"/v1/vns/1/s1/{port}", send_limit_bps=5_000_000)
    try:
        wait_until(lambda: list(meter_rates("s1").values()).count(5_000) >= 2, "set on the switch", 2)
        blast.wait_received(10_000_000)
    finally:
        for port in (1, 2):
            app.patch(f"/v1/vns/1/s1/{port}", send_limit_bps=LIMITS_BPS[1])
    blast.wait_received(LIMITS_BPS[1])


def test_an_algorithm_changed_under_traffic_keeps_the_limit(blast: Blast) -> None:
    blast.app.patch("/v1/vlans/1", algorithm="fp")
    blast.wait_received(LIMITS_BPS[1])


@pytest.fixture
def foreign() -> Iterator[str]:
    """A flow entry, a meter and a QoS row of others."""
    ofctl("add-flow", "s1", FOREIGN_FLOW)
    ofctl("add-meter", "s1", f"meter={FOREIGN_METER},kbps,band=type=drop,rate=77777")
    qos = vsctl("create", "QoS", "type=linux-htb", "other_config:max-rate=77000000").strip()
    yield qos
    vsctl("--if-exists", "destroy", "QoS", qos)
    ofctl("del-flows", "s1", "table=20")
    ofctl("del-meter", "s1", f"meter={FOREIGN_METER}")


def foreign_stands(qos: str) -> bool:
    return (
        "cookie=0xbeef" in ofctl("dump-flows", "s1", "table=20")
        and meter_rates("s1")[FOREIGN_METER] == 77777
        and any(row["_uuid"] == qos for row in find_rows("QoS", "_uuid"))
    )


def test_traffic_flows_on_through_a_stop_and_a_start(blast: Blast, foreign: str) -> None:
    app = blast.app
    blast.wait_received(LIMITS_BPS[1])
    ids = pair_meters(app)
    qos = vsctl("get", "Port", QUEUED_PORT, "qos").strip()
    flows, meters = flow_durations("s1"), meter_durations("s1")
    begin_s = time.monotonic()
    samples = blast.folder / "restart.csv"
    with Sampler([blast.receiver_interface], INTERVAL_S, 90, samples):
        assert app.stop() == 0
        assert set(flow_durations("s1")) == set(flows)
        assert meter_durations("s1").keys() == meters.keys()
        time.sleep(1.0)
        app.start()
        app.wait_ready()
        app.wait_for(lambda: sorted(pair_meters(app)) == sorted(ids), "adopted")
        time.sleep(1.0)
    passed_s = time.monotonic() - begin_s
    rates = rates_of(read_samples(samples, blast.receiver_interface))
    later = flow_durations("s1")
    renewed = [flow for flow in flows if later.get(flow, 0.0) < flows[flow] + 0.5 * passed_s]
    assert renewed == []
    lasting = meter_durations("s1")
    assert [i for i in meters if lasting.get(i, 0.0) < meters[i] + 0.5 * passed_s] == []
    assert vsctl("get", "Port", QUEUED_PORT, "qos").strip() == qos
    assert foreign_stands(foreign)
    # Meters that stand alone let the rate through that they were set to last, which may be that of a moment.
    assert 0.90 < np.average(rates.wire_bps) / LIMITS_BPS[1] < 1.03
    assert rates.wire_bps.min() > 0.0


def test_a_stop_that_removes_leaves_only_what_is_not_ours(blast: Blast, foreign: str) -> None:
    app = blast.app
    config = app.config()
    app.stop()
    app.configure({**config, "control": {**config["control"], "on_stop": "remove"}})
    app.start()
    app.wait_ready()
    assert app.stop() == 0
    assert foreign_stands(foreign)
    assert list(meter_rates("s1")) == [FOREIGN_METER]
    assert [line for line in ofctl("dump-flows", "s1").splitlines() if "table=" in line and "0xbeef" not in line] == []
    assert vsctl("get", "Port", QUEUED_PORT, "qos").strip() == "[]"
