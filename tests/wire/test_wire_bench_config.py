"""``dets bench config`` on a small file: what it does is done, and told."""

from __future__ import annotations

import pytest

from controller.errors import InvalidValueError
from experiments.bench.config.bench import run


def test_a_file_is_checked_started_with_and_reloaded() -> None:
    result = run(vlans=10, ports=3, seconds=1.0, reloads=1)
    figures = result["figures"]
    assert result["settings"]["vns"] == 30
    assert all(figures[name] > 0 for name in ("check_s", "start_s", "reload_s", "at_once_s", "check_of_baseline"))
    assert 1 <= figures["reloaded"] <= 100
    assert len(result["targets"]) == 6


@pytest.mark.parametrize("option", ["vlans", "ports", "seconds", "reloads"])
def test_what_nobody_can_measure_is_refused(option: str) -> None:
    with pytest.raises(InvalidValueError, match=f"^{option}"):
        run(**{option: 0})
