"""The manifest of a run can be written as JSON, whatever its scenario has."""

import json

from experiments.measure.manifest import manifest
from experiments.scenarios import scenarios


def test_limits_of_single_vns_are_written():
    scenario = scenarios()["seawall-fig3-tasks"]
    assert json.loads(json.dumps(manifest(scenario)))["options"]["vn_limits"]["(1, 6)"]["weight"] == 0.1
