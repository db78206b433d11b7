"""The smallest case of the enforcement bench on Open vSwitch: it runs, and tells the naive way from the product's."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.bench.enforcement import bench
from experiments.bench.enforcement.cases import ENFORCEMENT_MODES

pytestmark = pytest.mark.rates


def test_the_smallest_case_of_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {name: ENFORCEMENT_MODES[name] for name in ("dets", "naive-200ms")}
    monkeypatch.setattr(bench, "ENFORCEMENT_MODES", ways)
    result = bench.run(grant=["2M"], traffic=["udp-2x"], pattern=["constant"], seconds=3.0, output=tmp_path)
    rows = {row["way"]: row for row in result["figures"]["rows"]}
    assert set(rows) == set(ways)
    # What a machine that is busy with other tests loses in front of the meters is lost for both.
    assert rows["dets"]["ratio"] < 1.05
    assert rows["naive-200ms"]["ratio"] > rows["dets"]["ratio"] + 0.3
    assert rows["dets"]["meter_mods_per_s"] < 0.1 * rows["naive-200ms"]["meter_mods_per_s"]
    assert (tmp_path / "enforcement.md").read_text().count("\n") == 2 + len(ways)
