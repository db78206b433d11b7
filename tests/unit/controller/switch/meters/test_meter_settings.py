"""Settings of meters as columns, against what dictionaries would say."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.switch.meters.meter_settings import MeterSetting, MeterSettingsTable

TABLES = st.dictionaries(st.integers(1, 12), st.builds(MeterSetting, st.integers(1, 3), st.integers(1, 3)), max_size=10)


def columns(meters: dict[int, MeterSetting]) -> MeterSettingsTable:
    rows = np.array([(i, *setting) for i, setting in meters.items()], dtype=np.int64).reshape(-1, 3)
    return MeterSettingsTable(*rows.T)


@given(TABLES, TABLES)
def test_differing_is_what_two_dictionaries_say(one: dict[int, MeterSetting], other: dict[int, MeterSetting]) -> None:
    wanted = {i for i in one.keys() | other.keys() if one.get(i) != other.get(i)}
    assert columns(one).differing(columns(other)) == wanted
    assert columns(one) == one
    assert list(columns(one).items()) == sorted(one.items())
    assert columns(one).get(13) is None
    assert columns(one).within(3, 9) == {i: setting for i, setting in one.items() if 3 <= i <= 9}


def test_rates_become_kilobits() -> None:
    made = MeterSettingsTable.from_rates(np.array([4]), np.array([2_000_000.0]), np.array([36_000.0]))
    assert made == {4: MeterSetting(2_000, 36)}
