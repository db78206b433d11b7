"""Grants that arrive late: which, when, and for whom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from controller.allocation import Requests, make_algorithm
from experiments.model.late_grants import LateGrants


def requests(limit_bps, granted_bps, active=(True, True)):
    return Requests(
        offsets=np.array([0, 2]),
        limit_bps=np.array([limit_bps]),
        received_bps=np.array([limit_bps]),
        measured_bps=np.full(2, 10.0),
        granted_bps=np.array(granted_bps),
        available_bps=np.full(2, 70.0),
        dropped_bps=np.zeros(2),
        weight=np.ones(2),
        active=np.array(active),
    )


def run(algorithm, limits_bps, state=None, active=(True, True)):
    """The grants of one interval after the other, each of which is in force in the next."""
    state, granted_bps, found = state or algorithm.initial_state(1, 2), [np.inf, np.inf], []
    for limit_bps in limits_bps:
        granted_bps, state = algorithm.allocate(requests(limit_bps, granted_bps, active), state)
        found.append(granted_bps.tolist())
    return found, state


def test_grants_arrive_two_intervals_late_and_until_then_a_sender_may_send_what_it_can():
    found, _ = run(LateGrants(make_algorithm("fs"), 2), [100.0, 80.0, 60.0, 40.0, 20.0])
    assert found == [[70.0, 70.0], [70.0, 70.0], [50.0, 50.0], [40.0, 40.0], [30.0, 30.0]]


def test_a_sender_for_which_no_grant_is_on_the_way_keeps_its_rate():
    algorithm = LateGrants(make_algorithm("fs"), 1)
    _, state = run(algorithm, [100.0], active=(True, False))
    granted_bps, _ = algorithm.allocate(requests(100.0, [50.0, 33.0]), state)
    assert granted_bps.tolist() == [70.0, 33.0]  # the first was alone


def test_the_algorithms_own_state_goes_on_beside_the_grants_on_their_way():
    plain, late = make_algorithm("fe"), LateGrants(make_algorithm("fe"), 2)
    state, late_state = plain.initial_state(1, 2), late.initial_state(1, 2)
    asked = replace(requests(100.0, [50.0, 50.0]), received_bps=np.array([120.0]))
    grants = []
    for _ in range(4):
        decided_bps, state = plain.allocate(asked, state)
        grants.append(decided_bps.tolist())
        arrived_bps, late_state = late.allocate(asked, late_state)
    assert arrived_bps.tolist() == grants[1]
    moved = late_state.carried_over(np.array([0]), np.array([1, -1]))
    assert moved.entry_columns["late.0"].tolist()[0] == grants[2][1]
    assert np.isnan(moved.entry_columns["late.0"][1])
