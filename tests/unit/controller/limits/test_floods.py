"""What VNs may flood: with whatever limits, all the others' floods fit a receive limit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import star

from controller.fabric.vns import VnTable
from controller.limits.floods import FLOOD_SHARE, MOST_DISCOVERY_BPS, discovery_limits, flood_limits


def table(limits_bps, vlan_vid):
    """A VN of each VLAN and receive limit, each at a port of its own."""
    one = VnTable.of_config(star(1, limits={10: "400M"}))
    vns = len(limits_bps)
    columns = {name: np.repeat(getattr(one, name), vns) for name in VnTable.__dataclass_fields__ if name[0] != "_"}
    columns |= {"port_no": np.arange(1, vns + 1), "vlan_vid": np.array(vlan_vid)}
    return VnTable(**columns | {"receive_limit_bps": np.array(limits_bps, dtype=np.float64)})


@given(
    st.lists(st.tuples(st.integers(10, 12), st.integers(1_000_000, 10**10)), min_size=2, max_size=30),
    st.dictionaries(st.integers(10, 12), st.integers(1_000, 10**9), max_size=3),
)
@settings(derandomize=True, deadline=None)
def test_what_all_others_flood_is_within_the_receive_limit(vns, configured):
    vlan_vid, limits_bps = zip(*vns, strict=True)
    vn_table = table(limits_bps, vlan_vid)
    may_flood = flood_limits(vn_table, configured)
    assert (may_flood % 1_000 == 0).all()
    for row, vid in enumerate(vlan_vid):
        same = np.array(vlan_vid) == vid
        others_bps = may_flood[same].sum() - may_flood[row]
        most_bps = limits_bps[row] * (1.0 if vid in configured else FLOOD_SHARE)
        assert others_bps <= max(most_bps, 2_000 * (same.sum() - 1))
        if vid in configured:
            assert may_flood[row] <= max(configured[vid], 2_000)


def test_the_smallest_receive_limit_of_the_vlan_is_shared_by_the_others():
    vns = table([50e6, 100e6, 100e6, 80e6], [10, 10, 10, 20])
    assert flood_limits(vns, {}).tolist() == [2_500_000, 2_500_000, 2_500_000, 8_000_000]
    assert flood_limits(vns, {10: 1_000_000}).tolist() == [1_000_000] * 3 + [8_000_000]
    assert flood_limits(vns, {10: 40_000_000}).tolist() == [25_000_000] * 3 + [8_000_000]


def test_neighbour_discovery_has_its_part():
    limits_bps = np.array([2_000.0, 333_000.0, 2_500_000.0])
    assert discovery_limits(limits_bps).tolist() == [1_000.0, 166_000.0, MOST_DISCOVERY_BPS]
