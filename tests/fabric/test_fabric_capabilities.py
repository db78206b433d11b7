"""What the running application finds out of real Open vSwitch: meters limit and count; queues with the classifier."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from support.application import Application
from support.ovs import controlled

from controller.capability.meter_probe import COOKIE
from controller.config.loader import parse_config
from experiments.ovs.fabric import OvsFabric
from experiments.ovs.ovs_vsctl import ofctl, vsctl
from topologies.builders import fig1

LIMITS_BPS = {1: 20_000_000, 2: 20_000_000}
IGNORED = "frames do not reach the queues that they are sent to (set_queue has no effect)"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OvsFabric, Application]]:
    with controlled(fig1(pns=2), LIMITS_BPS, tmp_path_factory.mktemp("capabilities")) as (ovs, app):
        yield ovs, app
        app.stop()


def told(app: Application) -> list[str]:
    return [event["text"].partition("enforceable: ")[2] for event in app.events("enforceability-changed")]


def test_meters_limit_and_count_and_queues_take_effect(run: tuple[OvsFabric, Application]) -> None:
    _, app = run
    app.wait_for(lambda: told(app) and told(app)[-1] == "yes", "told", 30)
    assert app.get("/v1/health")["enforceable"] == {"yes": 2, "partly": 0, "no": 0}
    assert app.events("switch-error") == []


def test_the_tests_leave_nothing_behind(run: tuple[OvsFabric, Application]) -> None:
    _, app = run
    config = parse_config(app.config_path.read_text())
    assert f"cookie=0x{COOKIE >> 48:x}" not in ofctl("dump-flows", "s1")
    assert f"meter={config.last_meter_id} " not in ofctl("dump-meters", "s1")


def test_queues_without_the_classifier_are_found_out(run: tuple[OvsFabric, Application]) -> None:
    """Open vSwitch's userspace datapath lists queues and puts every frame into the default one."""
    ovs, app = run
    assert ovs.classifier is not None
    ovs.classifier.stop()
    for interface in ovs.classifier.interfaces:
        subprocess.run(["tc", "filter", "del", "dev", interface, "parent", "1:"], check=False, capture_output=True)
    target = f"tcp:{app.config()['openflow']['listen']}"
    vsctl("del-controller", "s1")
    app.wait_for(lambda: app.get("/v1/health")["switches"]["s1"] == "disconnected", "disconnected")
    assert app.get("/v1/health")["enforceable"] == {"yes": 0, "partly": 0, "no": 2}
    vsctl("set-controller", "s1", target)
    app.wait_for(lambda: app.get("/v1/health").get("faults"), "found out", 40)
    assert app.get("/v1/health")["faults"] == {"s1": [f"receivers at port 1-2 have no queue: {IGNORED}"]}
    app.wait_for(lambda: told(app)[-1] == f"partly (receivers have no queue: {IGNORED})", "told")
