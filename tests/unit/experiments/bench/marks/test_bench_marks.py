"""What the bench of marks counts: meters and entries by what makes marks."""

from __future__ import annotations

import pytest

from controller.errors import InvalidValueError
from experiments.bench.marks.bench import run


def test_ecn_costs_a_meter_a_pair_and_a_phantom_meter_one_a_receiver() -> None:
    result = run(hosts=3, vns=20)
    meters = {what: found["meters"] for what, found in result["figures"]["state"].items()}
    assert meters["phantom meters"] - meters["DETS (fp)"] == 3
    assert meters["phantom meters and ECN"] - meters["phantom meters"] == 9
    assert [one["entries"] for one in result["figures"]["step"]] == [380, 380]
    assert result["targets"][0]["met"]


@pytest.mark.parametrize("options", [{"hosts": 1}, {"vns": 1001}])
def test_bad_options_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidValueError, match="outside"):
        run(**options)
