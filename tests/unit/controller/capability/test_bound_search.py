"""What a search finds out of a switch's meters, against a table of meters with such limits."""

from __future__ import annotations

import numpy as np
import pytest

from controller.capability.bound_search import BoundTest, Setting, search
from controller.fabric.meter_bounds import UNBOUNDED, MeterBounds
from controller.openflow.constants import ErrorType
from controller.openflow.messages import ErrorMessage
from experiments.switch import requests
from experiments.switch.meter_table import MeterAbilities, MeterLimits, MeterTable

NEED = Setting(1_000_000, 300_000)
METER_ID = 7
BIG = 2**32 - 1


def found(limits: MeterLimits, *, tells: bool = True, readable: bool = True, most: int = 500) -> MeterBounds | None:
    """Return what a search finds on a switch that ``tells`` what it refuses, and whose meters are ``readable``."""
    table, test, xid, tried = MeterTable(MeterAbilities(limits=limits)), BoundTest(METER_ID), 0, 0
    steps, answers = search(NEED), None
    while True:
        try:
            settings = next(steps) if answers is None else steps.send(answers)
        except StopIteration as end:
            assert tried <= most
            return end.value
        answers = []
        for setting in settings:
            xid, tried = xid + 1, tried + 1
            rows = np.frombuffer(test.attempt(setting, xid), requests.METER_MOD)
            for _, refusal in table.apply_rows(rows, 0.0):
                if tells:
                    assert test.on_error(ErrorMessage(ErrorType.METER_MOD_FAILED, refusal.code, b"...", xid))
            read = Setting(*table.setting(METER_ID)) if table.exists(METER_ID) else None
            answers.append(test.answer(setting, xid, read if readable else None, readable=readable))


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize(
    ("limits", "bounds"),
    [
        ({}, {}),
        ({"max_burst_kbits": 32_000}, {"max_burst_kbits": 32_000}),
        ({"min_rate_kbps": 64}, {"min_rate_kbps": 64}),
        ({"max_rate_kbps": 999_999}, {"max_rate_kbps": 999_999}),
        ({"min_burst_kbits": 100}, {"min_burst_kbits": 100}),
        ({"rate_step_kbps": 65, "rounds": "up"}, {"rate_step_kbps": 65}),
        ({"rate_step_kbps": 65, "rounds": "down"}, {"rate_step_kbps": 65}),
        ({"rate_step_kbps": 64}, {"rate_step_kbps": 64}),
        ({"rate_step_kbps": 1_000, "max_rate_kbps": 500_000}, {"rate_step_kbps": 1_000, "max_rate_kbps": 500_000}),
        ({"min_rate_kbps": 200_000, "max_burst_kbits": 40_000}, {"min_rate_kbps": 200_000, "max_burst_kbits": 40_000}),
    ],
)
def test_bounds_are_found(limits: dict[str, int], bounds: dict[str, int], tells: bool) -> None:
    assert found(MeterLimits(**limits), tells=tells, most=80) == UNBOUNDED._replace(**bounds)


def test_little_is_asked_without_bounds_and_unreadable_meters_are_believed() -> None:
    assert found(MeterLimits(), most=11) == UNBOUNDED
    assert found(MeterLimits(max_burst_kbits=32_000), readable=False) == UNBOUNDED._replace(max_burst_kbits=32_000)
    assert found(MeterLimits(supports_burst_flag=False)) is None  # it takes nothing


def test_errors_that_are_not_of_the_search_are_left_to_others() -> None:
    assert not BoundTest(METER_ID).on_error(ErrorMessage(1, 2, b"\x04\x0e", 99))
    assert BoundTest(METER_ID).on_error(ErrorMessage(1, 2, b"", 99))  # which may be
