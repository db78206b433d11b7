"""Meters to modify, by switch: the compiled form gives the rows of the numpy form."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.configs import star
from support.native_comparison import numpy_alone

from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.metering.enforcement import MeterChanges
from controller.openflow import meter_codec_native
from controller.openflow.constants import MeterModCommand
from controller.switch.meters.meter_mods import modifications_by_switch

ENTRIES = PairTable(np.array([0, 1, 2, 0, 1]), np.array([1, 2, 3, 3, 3]), np.array([10, 11, 12, 13, 14]))


def vns(switch: list[int]) -> VnTable:
    """VNs behind these switches."""
    table = VnTable.from_config(star(4, limits={10: "400M"}))
    assert len(table) == len(switch)
    columns = {field.name: getattr(table, field.name) for field in fields(VnTable) if field.init}
    return VnTable(**columns | {"dpid": np.array(switch, dtype=np.uint64)})


def changes(rows: list[int]) -> MeterChanges:
    """Rates and bursts that tell the rows apart."""
    entries = np.arange(len(ENTRIES), dtype=np.uint32)
    return MeterChanges(np.array(rows, dtype=np.int64), 1000 + entries, 300 + entries)


def test_each_switch_has_its_meters_in_the_order_of_the_changes() -> None:
    mods, parts = modifications_by_switch(vns([9, 5, 9, 7]), ENTRIES, changes([4, 0, 2, 1]))
    assert parts == [(5, 0, 2), (7, 2, 2), (9, 2, 4)]
    assert mods[0].tolist() == [int(MeterModCommand.MODIFY)] * 4
    assert mods[1].tolist() == [14, 11, 10, 12]
    assert mods[2].tolist() == [1004, 1001, 1000, 1002]
    assert mods[3].tolist() == [304, 301, 300, 302]


@pytest.mark.skipif(meter_codec_native.library is None, reason="no C compiler was there when it was installed")
@given(st.lists(st.integers(1, 4), min_size=4, max_size=4), st.lists(st.integers(0, 4), unique=True))
def test_both_forms_give_the_same(switch: list[int], rows: list[int]) -> None:
    mods, parts = modifications_by_switch(vns(switch), ENTRIES, changes(rows))
    with numpy_alone(meter_codec_native):
        plain, plain_parts = modifications_by_switch(vns(switch), ENTRIES, changes(rows))
    assert parts == plain_parts
    np.testing.assert_array_equal(mods, plain)
    assert mods.T.flags.c_contiguous
    assert plain.T.flags.c_contiguous
