"""The policies' states in a start record: what is decoded is what was encoded, of every policy group."""

from __future__ import annotations

from typing import Any

import numpy as np

from controller.policy.policy_state import PolicyState
from controller.whatif.state_codec import decode_states, encode_states

VNS = 3


def test_the_states_of_all_groups_are_decoded_as_they_were_encoded() -> None:
    by_vn, by_pair = {"hot": np.array([1.0, np.nan, 0.0])}, {"rate_bps": np.array([5.0, 6.0])}
    columns_of_links = {"lost": np.array([0.1, 0.2])}, {"peak_bps": np.array([7.0])}
    rows = np.array([0, 2]), ("s1-s2", "s2-s1"), np.array([1]), np.array([0])
    by_link = PolicyState(VNS, *rows, by_vn, by_pair, *columns_of_links)
    by_entry = PolicyState(VNS, np.array([1]), ("s1-s2",), by_entry={"rate_bps": np.array([8.0])})
    columns: dict[str, Any] = {}
    link_names = encode_states(columns, [by_link, by_entry])
    assert link_names == [["s1-s2", "s2-s1"], []]  # without columns of links their names are not needed
    decoded = decode_states(columns, link_names, VNS)
    assert len(decoded) == 2
    for state, again in zip((by_link, by_entry), decoded, strict=True):
        assert again.vns == VNS
        for name in ("rows", "use_vn", "use_link"):
            np.testing.assert_array_equal(getattr(again, name), getattr(state, name))
        for kind in ("by_vn", "by_entry", "by_link", "by_use"):
            assert getattr(again, kind).keys() == getattr(state, kind).keys()
            for name, column in getattr(state, kind).items():
                np.testing.assert_array_equal(getattr(again, kind)[name], column)
