"""The configuration that experiments generate is one that the controller accepts, and says what the fabric is."""

from __future__ import annotations

import pytest
import yaml

from controller.config.loader import parse_config
from experiments.machine.controller_process import configuration
from topologies.builders import fabrics


@pytest.mark.parametrize("name", sorted(fabrics))
@pytest.mark.parametrize(("algorithm", "parameters"), [("fs", {}), ("sp", {}), ("fp", {"d": 2}), ("fe", {})])
def test_every_fabric_makes_a_valid_configuration(name: str, algorithm: str, parameters: dict[str, object]) -> None:
    fabric = fabrics[name]()
    text = yaml.safe_dump(configuration(fabric, {1: 40_000_000, 2: 50_000_000}, algorithm, parameters, 6653, 8080))
    config = parse_config(text, "generated.yaml")
    found = {(vn.vlan_vid, vn.dpid, vn.port_no, vn.send_limit_bps, vn.receive_limit_bps) for vn in config.vns()}
    limits = {1: 40_000_000, 2: 50_000_000}
    expected = {
        (vn.vlan_vid, fabric.switch(vn.pn.switch).dpid, vn.pn.port_no, limits[vn.vlan_vid], limits[vn.vlan_vid])
        for vn in fabric.vns()
    }
    assert found == expected
    assert {name: switch.dpid for name, switch in config.switches.items()} == {s.name: s.dpid for s in fabric.switches}
