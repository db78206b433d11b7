"""The application on the kernel datapath: meters and queues give what was granted, and outlive restarts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.application import Application
from support.ovs import controlled

from experiments.ovs_fabric import OvsFabric
from topologies.builders import fig1

LIMITS_BPS = {1: 4_000_000, 2: 5_000_000}
FABRIC = fig1(pns=3, link_rate_bps=10_000_000)


@pytest.fixture(scope="module")
def controlled_fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OvsFabric, Application, Path]]:
    folder = tmp_path_factory.mktemp("kernel")
    with controlled(FABRIC, LIMITS_BPS, folder, "kernel", control={"on_stop": "keep"}) as (ovs, app):
        yield ovs, app, folder


def test_all_bridges_are_the_kernels(controlled_fabric) -> None:
    said = subprocess.run(["ovs-appctl", "dpif/show"], capture_output=True, text=True, check=True).stdout
    assert "system@ovs-system" in said
    assert "netdev@" not in said
