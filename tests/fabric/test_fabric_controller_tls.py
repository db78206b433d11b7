"""Open vSwitch connects to the real application over TLS: several switches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.application import Application
from support.ovs import controlled

from apps.cli.support.certificates import create_authority, issue
from experiments.ovs.fabric import OvsFabric
from experiments.ovs.ovs_vsctl import vsctl
from topologies.builders import fig7


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("pki")
    create_authority(folder, "test CA", 30)
    issue(folder, "controller", 30, ["127.0.0.1"])
    issue(folder, "switch", 30, None)
    vsctl("set-ssl", *(str(folder / name) for name in ("switch.key", "switch.pem", "ca.pem")))
    yield folder
    vsctl("del-ssl")


@pytest.fixture(scope="module")
def fabric(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OvsFabric, Application]]:
    files = {"certificate": "controller.pem", "key": "controller.key", "client_ca": "ca.pem"}
    openflow = {key: str(pki / name) for key, name in files.items()}
    folder = tmp_path_factory.mktemp("tls")
    with controlled(fig7(), {1: 40_000_000, 2: 40_000_000}, folder, scheme="ssl", openflow=openflow) as both:
        yield both


def test_all_switches_are_ready_and_forward(fabric: tuple[OvsFabric, Application], can_connect) -> None:
    ovs, app = fabric
    assert len(app.get("/v1/health")["switches"]) == len(ovs.fabric.switches) > 1
    vns = [vn for vn in ovs.fabric.vns() if vn.vlan_vid == 1]
    assert can_connect(ovs, vns[0].name, vns[-1].name)
