"""What VNs may flood: with whatever limits, all the others' floods fit a receive limit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.configs import star

from controller.fabric.config_model import Vlan
from controller.fabric.vn_table import VnTable
from controller.limits.flood_limits import (
    FLOOD_SHARE,
    MAX_DISCOVERY_BPS,
    discovery_limits,
    flood_limits,
    largest_flood_limit,
    min_receive_limits,
)

VIDS = (10, 20, 30)


def table(limits_bps, vlan_vid, own_bps=None):
    """A VN of each VLAN and receive limit, each at a port of its own; with flood limits of their own, if given."""
    one = VnTable.from_config(star(1, limits={10: "400M"}))
    vns = len(limits_bps)
    columns = {name: np.repeat(getattr(one, name), vns) for name in VnTable.__dataclass_fields__ if name[0] != "_"}
    columns |= {"port_no": np.arange(1, vns + 1), "vlan_vid": np.array(vlan_vid)}
    columns["own_flood_limit_bps"] = None if own_bps is None else np.array(own_bps, dtype=np.float64)
    return VnTable(**columns | {"receive_limit_bps": np.array(limits_bps, dtype=np.float64)})


def vlans(**flood_limit_bps):
    """VLANs 10, 20 and 30, with the flood limits given by ``v10`` and so on."""
    return {vid: Vlan(vid, "", "fp", {}, 1.0, None, None, None, {}, flood_limit_bps.get(f"v{vid}")) for vid in VIDS}


@given(
    st.lists(st.tuples(st.sampled_from(VIDS), st.integers(1_000_000, 10**10)), min_size=2, max_size=30),
    st.dictionaries(st.sampled_from(["v10", "v20", "v30"]), st.floats(0.0, 1.0), max_size=3),
)
def test_what_all_others_flood_is_within_the_receive_limit(vns, share):
    """Without a flood limit and with any that fits; and the largest that fits is the largest that does."""
    vlan_vid, limits_bps = map(np.array, zip(*vns, strict=True))
    vn_table = table(limits_bps, vlan_vid)
    largest = {
        f"v{vid}": largest_flood_limit(limits_bps[vlan_vid == vid].min(), (vlan_vid == vid).sum())
        for vid in set(vlan_vid.tolist())
    }
    configured = {vid: int(2_000 + one * (largest[vid] - 2_000)) for vid, one in share.items() if largest.get(vid)}
    may_flood = flood_limits(vn_table, vlans(**configured))
    assert (may_flood % 1_000 == 0).all()
    for row, vid in enumerate(vlan_vid.tolist()):
        same = vlan_vid == vid
        others_bps = may_flood[same].sum() - may_flood[row]
        asked_bps = configured.get(f"v{vid}")
        most_bps = limits_bps[row] * (1.0 if asked_bps else FLOOD_SHARE)
        assert others_bps <= max(most_bps, 2_000 * (same.sum() - 1))
        assert asked_bps is None or may_flood[row] == asked_bps // 1_000 * 1_000
    at_most = vlans(**{vid: one for vid, one in largest.items() if one})
    assert (min_receive_limits(vn_table, at_most) <= limits_bps).all()
    beyond = vlans(**{vid: one + 1_000 for vid, one in largest.items() if one})
    for vid in set(vlan_vid.tolist()):
        here = vlan_vid == vid
        assert not largest[f"v{vid}"] or (min_receive_limits(vn_table, beyond) > limits_bps)[here].any()


def test_the_smallest_receive_limit_of_the_vlan_is_shared_by_the_others():
    vns = table([50e6, 100e6, 100e6, 80e6], [10, 10, 10, 20])
    assert flood_limits(vns, vlans()).tolist() == [2_500_000, 2_500_000, 2_500_000, 8_000_000]
    assert flood_limits(vns, vlans(v10=1_000_000)).tolist() == [1_000_000] * 3 + [8_000_000]
    assert min_receive_limits(vns, vlans(v10=25_000_000)).tolist() == [50e6] * 3 + [0.0]
    assert largest_flood_limit(50e6, 3) == 25_000_000


def test_a_receive_limit_that_holds_no_two_meters_of_each_sender_has_room_for_no_flood_limit():
    assert largest_flood_limit(1e6, 501) == 2_000
    assert largest_flood_limit(1e6, 502) == 0
    assert largest_flood_limit(1e6, 1) == 1_000_000


def test_neighbour_discovery_has_its_part():
    limits_bps = np.array([2_000.0, 333_000.0, 2_500_000.0])
    assert discovery_limits(limits_bps).tolist() == [1_000.0, 166_000.0, MAX_DISCOVERY_BPS]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(VIDS), st.integers(1_000_000, 10**9), st.one_of(st.none(), st.integers(2_000, 20_000_000))
        ),
        min_size=2,
        max_size=30,
    ),
    st.dictionaries(st.sampled_from(["v10", "v20", "v30"]), st.integers(2_000, 1_000_000), max_size=3),
)
def test_limits_of_vns_own_fit_where_each_receive_limit_holds_the_floods_of_the_others(vns, configured):
    vlan_vid, limits_bps, own_bps = (list(column) for column in zip(*vns, strict=True))
    of_vlans = vlans(**configured)
    own = [np.nan if one is None else one for one in own_bps]
    needed_bps = min_receive_limits(table(limits_bps, vlan_vid, own), of_vlans)
    enough_bps = np.maximum(limits_bps, needed_bps)
    fitting = table(enough_bps, vlan_vid, own)
    assert (min_receive_limits(fitting, of_vlans) == needed_bps).all()
    may_flood = flood_limits(fitting, of_vlans)
    for row, (vid, own_one) in enumerate(zip(vlan_vid, own_bps, strict=True)):
        same = np.array(vlan_vid) == vid
        assert may_flood[same].sum() - may_flood[row] <= enough_bps[row]
        if own_one is not None:
            assert may_flood[row] == own_one // 1_000 * 1_000
        elif f"v{vid}" in configured:
            assert may_flood[row] == configured[f"v{vid}"] // 1_000 * 1_000


def test_one_source_may_flood_more_than_the_others():
    """A source of 20 Mb/s among four VNs of 100: the others need room for it, and it needs room for theirs."""
    own = [20e6, np.nan, np.nan, np.nan]
    vns = table([100e6] * 4, [10] * 4, own)
    assert flood_limits(vns, vlans()).tolist() == [20e6] + [3_333_000.0] * 3
    assert min_receive_limits(vns, vlans()).tolist() == [0.0] + [22_222_223.0] * 3
    assert min_receive_limits(vns, vlans(v10=1_000_000)).tolist() == [3e6] + [22e6] * 3
