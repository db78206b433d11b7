"""Where a shard's entries lead, found once: the same rows that looking at each entry finds."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.native_comparison import numpy_alone

from controller.dets.send_rate_controller import MachineState
from controller.fabric.pair_table import PairTable
from controller.metering.measurement import IDLE_INTERVALS
from controller.node_protocol.message_types import GrantMessage
from controller.shards import shard_native
from controller.shards.pair_partition import PairPartition

VNS = 9
OWNERS = (2, 5)  # peers; 0 is the shard itself, 7 nobody
MANY_VNS, MAX_PAIRS = 100, 700  # more entries than the compiled form's blocks


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


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 20) | st.integers(0, MAX_PAIRS),
    quiet_share=st.sampled_from((0.0, 0.01, 0.5, 1.0)),
)
def test_rows_by_peer_are_those_whose_receivers_it_owns_compiled_or_not(seed, count, quiet_share):
    """But for those that are neither limited nor send anything."""
    rng = np.random.default_rng(seed)
    receiver, sender = np.divmod(np.sort(rng.permutation(MANY_VNS**2)[:count]), MANY_VNS)
    entries, owner = PairTable(sender, receiver, np.arange(count)), rng.choice((0, *OWNERS, 7), MANY_VNS)
    crossing = PairPartition.build(entries, owner == 0, {one: owner == one for one in OWNERS})
    quiet, busy = rng.random(count) < quiet_share, rng.random(count) < 0.5
    silent = np.where(~quiet & busy, rng.choice((0, IDLE_INTERVALS - 1), count), IDLE_INTERVALS).astype(np.int16)
    limited = rng.choice(ints([MachineState.REPORTING, MachineState.LIMITED]), count)
    control = np.where(~quiet & ~busy, limited, MachineState.IDLE).astype(np.int8)
    to = owner[entries.receiver]
    assert crossing.local_rows.tolist() == np.flatnonzero(to == 0).tolist()
    assert crossing.remote_mask.tolist() == (to != 0).tolist()
    for form in (nullcontext(), numpy_alone(shard_native)):
        with form:
            rows = crossing.reportable_rows(control, silent)
        for one, of_peer in crossing.remote_rows.items():
            assert of_peer.tolist() == np.flatnonzero(to == one).tolist()
            assert rows[one].tolist() == np.flatnonzero((to == one) & ~quiet).tolist()
            assert (rows[one] is of_peer) == (len(rows[one]) == len(of_peer))


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
