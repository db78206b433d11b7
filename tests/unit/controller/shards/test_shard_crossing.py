"""Where a shard's entries lead, found once: the same rows that looking at each entry finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.dets.send_rate_controller import MachineState
from controller.fabric.pair_table import PairTable
from controller.metering.measurement import IDLE_INTERVALS
from controller.node_protocol.message_types import GrantMessage
from controller.shards.pair_partition import PairPartition

VNS = 9
OWNERS = (2, 5)  # peers; 0 is the shard itself, 7 nobody


def ints(values):
    return np.array(values, dtype=np.int64)


pairs = st.sets(st.tuples(st.integers(0, VNS - 1), st.integers(0, VNS - 1)), max_size=30)


def table(some):
    sender, receiver = ints([one for one, _ in some]), ints([other for _, other in some])
    return PairTable.empty().add(sender, receiver, np.arange(1, len(sender) + 1))[0]


def grants(some, rate_bps):
    entries = table(some)
    nothing = ints([])
    return GrantMessage(nothing, nothing, nothing > 0, entries.sender, entries.receiver, rate_bps, rate_bps < 0)


@given(some=pairs, owner=st.lists(st.sampled_from((0, *OWNERS, 7)), min_size=VNS, max_size=VNS), data=st.data())
def test_rows_by_peer_are_those_whose_receivers_it_owns(some, owner, data):
    entries, owner = table(some), ints(owner)
    crossing = PairPartition.build(entries, owner == 0, {one: owner == one for one in OWNERS})
    size = {"min_size": len(entries), "max_size": len(entries)}
    control = ints(data.draw(st.lists(st.sampled_from(MachineState), **size))).astype(np.int8)
    silent = ints(data.draw(st.lists(st.sampled_from((0, IDLE_INTERVALS - 1, IDLE_INTERVALS)), **size))).astype(
        np.int16
    )
    told = (control != MachineState.IDLE) | (silent < IDLE_INTERVALS)
    rows = crossing.reportable_rows(control, silent)
    to = owner[entries.receiver]
    assert crossing.local_rows.tolist() == np.flatnonzero(to == 0).tolist()
    assert crossing.remote_mask.tolist() == (to != 0).tolist()
    for one in OWNERS:
        assert rows[one].tolist() == np.flatnonzero((to == one) & told).tolist()
        assert crossing.remote_rows[one].tolist() == np.flatnonzero(to == one).tolist()


@given(some=pairs, granted=pairs, others=pairs)
def test_grants_find_the_rows_of_their_pairs_that_are_there(some, granted, others):
    entries, owner = table(some), ints([0, 0, 0, 2, 2, 2, 5, 5, 5])
    crossing = PairPartition.build(entries, owner == 0, {one: owner == one for one in OWNERS})
    for said in (granted, granted, others):
        message = grants({pair for pair in said if owner[pair[1]] == 2}, np.empty(0))
        rows, at = crossing.granted(2, message)
        found = set(zip(entries.sender[rows].tolist(), entries.receiver[rows].tolist(), strict=True))
        named = list(zip(message.sender.tolist(), message.receiver.tolist(), strict=True))
        assert [named[one] for one in np.arange(len(named))[at]] == list(
            zip(entries.sender[rows].tolist(), entries.receiver[rows].tolist(), strict=True)
        )
        assert found == set(some) & set(named)
