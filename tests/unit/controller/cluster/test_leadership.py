"""The lease as one node knows it: how long it counts, which generation ids and roles follow, and for which switches."""

from __future__ import annotations

import pytest

from controller.cluster.leadership import LEASE_MARGIN_S, MAX_EPOCH, Leadership, LeaseSnapshot, generation_id
from controller.cluster.ownership import Owner, Ownership
from controller.errors import InvalidValueError
from controller.openflow.constants import ControllerRole

TTL_S = 3.0
MINE, OTHER = 7, 8


def answer(began_s: float, active_lease_id: int = MINE, generation: int = 5) -> LeaseSnapshot:
    return LeaseSnapshot(began_s, MINE, "n1" if active_lease_id == MINE else "n2", active_lease_id, generation)


def test_the_key_counts_from_the_beginning_of_the_question_and_less_the_margin() -> None:
    leadership = Leadership(TTL_S)
    assert leadership.active_generation(0.0) is None
    leadership.update(answer(10.0))
    assert leadership.active_generation(10.0 + TTL_S - LEASE_MARGIN_S - 0.01) == 5
    assert leadership.active_generation(10.0 + TTL_S - LEASE_MARGIN_S) is None
    leadership.update(answer(12.0))
    assert leadership.active_generation(12.0 + TTL_S - LEASE_MARGIN_S - 0.01) == 5


def test_another_nodes_key_gives_nothing_but_the_role_of_a_slave() -> None:
    leadership = Leadership(TTL_S)
    assert leadership.desired_role(0.0) is None
    leadership.update(answer(0.0, OTHER))
    assert leadership.active_generation(0.0) is None
    assert leadership.desired_role(0.0) == (ControllerRole.SLAVE, 5)
    leadership.update(answer(1.0, MINE, 6))
    assert leadership.desired_role(1.0) == (ControllerRole.MASTER, 6)
    assert leadership.desired_role(1.0 + TTL_S) is None  # its own key, too old: etcd has to say whose it is


def test_without_a_lease_or_an_active_node_there_is_neither_generation_nor_role() -> None:
    leadership = Leadership(TTL_S)
    leadership.update(answer(0.0))
    leadership.invalidate()
    assert (leadership.active_generation(0.0), leadership.lease_id) == (None, None)
    leadership.update(LeaseSnapshot(0.0, MINE, "", MINE, None))
    assert (leadership.active_generation(0.0), leadership.desired_role(0.0)) == (None, None)


def test_generation_ids_grow_with_the_revision_and_with_the_epoch() -> None:
    assert generation_id(0, 1) < generation_id(0, 2**40 - 1) < generation_id(1, 1) < generation_id(MAX_EPOCH, 1) < 2**63


@pytest.mark.parametrize(("epoch", "revision", "key"), [(-1, 1, "epoch"), (2**22, 1, "epoch"), (0, 0, "revision")])
def test_bad_generations_are_refused(epoch: int, revision: int, key: str) -> None:
    with pytest.raises(InvalidValueError, match=key):
        generation_id(epoch, revision)


def test_a_node_may_change_its_own_switches_while_it_may_rely_on_its_lease() -> None:
    leadership = Leadership(TTL_S)
    ownership = Ownership(leadership)
    leadership.update(answer(10.0, OTHER))
    ownership.owners = {1: Owner("n1", MINE, 20), 2: Owner("n2", OTHER, 21)}
    assert [ownership.write_generation(dpid, 12.4) for dpid in (1, 2, 3)] == [20, None, None]
    assert ownership.desired_role(1, 12.4) == (ControllerRole.MASTER, 20)
    assert ownership.desired_role(2, 12.4) == (ControllerRole.SLAVE, 21)
    assert ownership.desired_role(3, 12.4) is None
    assert (ownership.write_generation(1, 12.5), ownership.desired_role(1, 12.5)) == (None, None)
    leadership.invalidate()
    assert ownership.write_generation(1, 11.0) is None
