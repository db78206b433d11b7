"""The VN table: rows, names and limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.configs import fabric, star

from controller.errors import InvalidValueError
from controller.fabric.vn_table import VnKey, VnTable, check_ceiling
from controller.policy.policy_groups import PolicyChoice, apply_choices

TABLE = VnTable.from_config(fabric({0xFFFF_0000_0000_0001: {3: [10, 20]}, 2: {1: 10}}, vlans={20: {"weight": 3}}))


def test_of_config():
    assert len(TABLE) == 3
    keys = [TABLE.key(row) for row in range(3)]
    assert sorted(keys) == [(10, 2, 1), (10, 0xFFFF_0000_0000_0001, 3), (20, 0xFFFF_0000_0000_0001, 3)]
    assert [TABLE.row_of(*key) for key in keys] == [0, 1, 2]
    assert TABLE.row_of(30, 2, 1) is None
    row = keys.index(VnKey(20, 0xFFFF_0000_0000_0001, 3))
    assert (TABLE.weight[row], TABLE.capacity_bps[row], TABLE.receive_limit_bps[row]) == (3.0, 1e9, 500e6)


def test_rows_by_their_switch():
    order, parts = TABLE.by_switch(np.array([2, 1, 0, 2, 0]))
    assert {dpid: order[start:end].tolist() for dpid, start, end in parts} == {
        2: [row for row, of in enumerate([2, 1, 0, 2, 0]) if TABLE.key(of).dpid == 2],
        0xFFFF_0000_0000_0001: [row for row, of in enumerate([2, 1, 0, 2, 0]) if TABLE.key(of).dpid != 2],
    }


def test_two_rows_of_one_name_are_refused():
    keys, values = ("vlan_vid", "dpid", "port_no"), ("send_limit_bps", "receive_limit_bps", "weight", "capacity_bps")
    twice = {name: np.append(getattr(TABLE, name), getattr(TABLE, name)[0]) for name in keys + values}
    with pytest.raises(InvalidValueError, match="only 3 different"):
        replace(TABLE, **twice)


def with_values(table, row, **values):
    columns = {name: getattr(table, name).copy() for name in values}
    for name, value in values.items():
        columns[name][row] = value
    return table.with_columns(**columns)


def test_a_table_with_other_columns_shares_its_names_and_leaves_the_old_one_alone():
    table = VnTable.from_config(star(2))
    row = table.row_of(10, 1, 1)
    changed = with_values(table, row, send_limit_bps=1_000)
    assert (changed.send_limit_bps[row], table.send_limit_bps[row]) == (1_000, 400_000_000)
    assert changed.row_of(10, 1, 1) == row
    assert changed._row is table._row
    assert apply_choices(table, LENDING)._row is table._row


LENDING = {10: PolicyChoice("max-min")}
CEILINGS = {10: {"algorithm": "max-min", "send_ceiling": "450M", "receive_ceiling": "490M"}}


def test_ceilings_count_where_the_vlan_lends():
    table = VnTable.from_config(star(2, vlans=CEILINGS))
    row, other = table.row_of(10, 1, 1), table.row_of(20, 1, 1)
    assert table.send_max_bps.tolist() == table.send_limit_bps.tolist()
    lending = apply_choices(table, LENDING)
    assert (lending.send_max_bps[row], lending.receive_max_bps[row]) == (450e6, 490e6)
    assert (lending.send_max_bps[other], lending.receive_max_bps[other]) == (500e6, 500e6)
    assert apply_choices(lending, {10: PolicyChoice("fs")}).send_max_bps[row] == 400e6


def test_a_limit_above_the_ceiling_lifts_it_and_none_follows_the_limit():
    table = apply_choices(
        VnTable.from_config(star(2, vlans=CEILINGS)), dict.fromkeys([10, 20], PolicyChoice("max-min"))
    )
    row, other = table.row_of(10, 1, 1), table.row_of(20, 1, 1)
    assert with_values(table, row, send_limit_bps=480e6).send_max_bps[row] == 480e6
    assert with_values(table, row, send_limit_bps=1e6).send_max_bps[row] == 450e6
    assert with_values(table, other, send_limit_bps=1e6).send_max_bps[other] == 1e6
    assert with_values(table, row, send_ceiling_bps=np.nan).send_max_bps[row] == 400e6


@pytest.mark.parametrize("ceiling_bps", [399_999_999, 1_000_000_001])
def test_a_ceiling_is_from_the_limit_to_the_capacity(ceiling_bps):
    with pytest.raises(InvalidValueError, match="outside the limit of 400M to the port's capacity of 1G") as caught:
        check_ceiling("send_ceiling", ceiling_bps, 400_000_000, 1_000_000_000)
    assert (caught.value.key, caught.value.value) == ("send_ceiling", ceiling_bps)
    for fits in (400_000_000, 1_000_000_000):
        assert check_ceiling("send_ceiling", fits, 400_000_000, 1_000_000_000) == fits
