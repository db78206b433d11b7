"""The VN table: rows, names and limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.configs import fabric, star

from controller.errors import InvalidValueError
from controller.fabric.vns import VnKey, VnTable

TABLE = VnTable.of_config(fabric({0xFFFF_0000_0000_0001: {3: [10, 20]}, 2: {1: 10}}, vlans={20: {"weight": 3}}))


def test_of_config():
    assert len(TABLE) == 3
    keys = [TABLE.key(row) for row in range(3)]
    assert sorted(keys) == [(10, 2, 1), (10, 0xFFFF_0000_0000_0001, 3), (20, 0xFFFF_0000_0000_0001, 3)]
    assert [TABLE.row_of(*key) for key in keys] == [0, 1, 2]
    assert TABLE.row_of(30, 2, 1) is None
    row = keys.index(VnKey(20, 0xFFFF_0000_0000_0001, 3))
    assert (TABLE.weight[row], TABLE.capacity_bps[row], TABLE.receive_limit_bps[row]) == (3.0, 1e9, 500e6)


def test_two_rows_of_one_name_are_refused():
    with pytest.raises(InvalidValueError, match="only 3 different"):
        replace(
            TABLE,
            **{
                name: np.concatenate([getattr(TABLE, name), getattr(TABLE, name)[:1]])
                for name in (
                    "vlan_vid",
                    "dpid",
                    "port_no",
                    "send_limit_bps",
                    "receive_limit_bps",
                    "weight",
                    "capacity_bps",
                )
            },
        )


def test_new_limits_leave_the_old_table_and_the_other_rows_alone():
    table = VnTable.of_config(star(2))
    row = table.row_of(10, 1, 1)
    changed = table.with_limits(row, send_limit_bps=1_000, receive_limit_bps=500_000_000)
    assert (changed.send_limit_bps[row], changed.receive_limit_bps[row]) == (1_000, 500_000_000)
    others = np.arange(len(table)) != row
    assert (changed.send_limit_bps[others] == table.send_limit_bps[others]).all()
    assert table.send_limit_bps[row] == 400_000_000
    assert changed.row_of(10, 1, 1) == row


def test_a_table_with_other_limits_does_not_number_its_vns_anew():
    table = VnTable.of_config(star(2))
    assert table.with_limits(0, send_limit_bps=1_000, receive_limit_bps=1_000)._row is table._row
    assert table.with_lending([10])._row is table._row


@pytest.mark.parametrize("limit_bps", [0, -1, 999, 10**16])
def test_what_a_meter_cannot_carry_is_refused(limit_bps):
    with pytest.raises(InvalidValueError, match="receive_limit_bps"):
        VnTable.of_config(star(2)).with_limits(0, receive_limit_bps=limit_bps)


CEILINGS = {10: {"send_ceiling": "450M", "receive_ceiling": "490M"}}


def test_ceilings_count_where_the_vlan_lends():
    table = VnTable.of_config(star(2, vlans=CEILINGS))
    row, other = table.row_of(10, 1, 1), table.row_of(20, 1, 1)
    assert table.send_most_bps.tolist() == table.send_limit_bps.tolist()
    lending = table.with_lending([10])
    assert (lending.send_most_bps[row], lending.receive_most_bps[row]) == (450e6, 490e6)
    assert (lending.send_most_bps[other], lending.receive_most_bps[other]) == (500e6, 500e6)
    assert lending.with_lending([]).send_most_bps[row] == 400e6


def test_a_limit_above_the_ceiling_lifts_it_and_none_follows_the_limit():
    table = VnTable.of_config(star(2, vlans=CEILINGS)).with_lending([10, 20])
    row, other = table.row_of(10, 1, 1), table.row_of(20, 1, 1)
    assert table.with_limits(row, send_limit_bps=480_000_000).send_most_bps[row] == 480e6
    assert table.with_limits(row, send_limit_bps=1_000_000).send_most_bps[row] == 450e6
    assert table.with_limits(other, send_limit_bps=1_000_000).send_most_bps[other] == 1e6


def test_ceilings_come_and_go_and_leave_the_old_table_alone():
    table = VnTable.of_config(star(2, vlans=CEILINGS)).with_lending([10])
    row = table.row_of(10, 1, 1)
    changed = table.with_limits(row, send_ceiling_bps=None, receive_ceiling_bps=1_000_000_000)
    assert (changed.send_most_bps[row], changed.receive_most_bps[row]) == (400e6, 1e9)
    assert (table.send_most_bps[row], table.receive_most_bps[row]) == (450e6, 490e6)
    others = np.arange(len(table)) != row
    assert (changed.send_most_bps[others] == table.send_most_bps[others]).all()


@pytest.mark.parametrize(
    ("limits", "key"),
    [
        ({"send_ceiling_bps": 399_999_999}, "send_ceiling_bps"),
        ({"receive_ceiling_bps": 1_000_000_001}, "receive_ceiling_bps"),
        ({"send_ceiling_bps": 999}, "send_ceiling_bps"),
        ({"receive_limit_bps": 450_000_000, "receive_ceiling_bps": 449_000_000}, "receive_ceiling_bps"),
    ],
)
def test_a_new_ceiling_is_from_the_new_limit_to_the_capacity(limits, key):
    table = VnTable.of_config(star(2, vlans=CEILINGS))
    with pytest.raises(InvalidValueError) as caught:
        table.with_limits(table.row_of(10, 1, 1), **limits)
    assert (caught.value.key, caught.value.value) == (key, limits[key])
    fits = table.with_limits(0, receive_limit_bps=450_000_000, receive_ceiling_bps=450_000_000)
    assert fits.receive_ceiling_bps[0] == 450_000_000
