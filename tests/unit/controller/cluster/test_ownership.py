"""Switches shared out over nodes: who may change one."""

from __future__ import annotations

from controller.cluster.leadership import Leadership, LeaseSnapshot
from controller.cluster.ownership import Owner, Ownership
from controller.openflow.constants import ControllerRole


def test_a_node_may_change_its_own_switches_while_it_may_rely_on_its_lease() -> None:
    leadership = Leadership(3.0)
    ownership = Ownership(leadership)
    leadership.update(LeaseSnapshot(10.0, 7, "n2", 8, 5))
    ownership.owners = {1: Owner("n1", 7, 20), 2: Owner("n2", 8, 21)}
    assert [ownership.write_generation(dpid, 12.4) for dpid in (1, 2, 3)] == [20, None, None]
    assert ownership.desired_role(1, 12.4) == (ControllerRole.MASTER, 20)
    assert ownership.desired_role(2, 12.4) == (ControllerRole.SLAVE, 21)
    assert ownership.desired_role(3, 12.4) is None
    assert (ownership.write_generation(1, 12.5), ownership.desired_role(1, 12.5)) == (None, None)
    leadership.invalidate()
    assert ownership.write_generation(1, 11.0) is None
