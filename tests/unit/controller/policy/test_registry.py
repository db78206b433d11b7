"""Policies by name: made, described, their parameters checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from support.configs import star

from controller.allocation.parameters import check_parameters, parameter, parameters_of, switch
from controller.errors import InvalidValueError
from controller.fabric.vn_table import VnTable
from controller.policy.policy_groups import PolicyChoice, apply_choices, groups_of
from controller.policy.registry import make_policy, policies, title_of


@dataclass(frozen=True)
class Toy:
    count: float = parameter(2.0, "how many", minimum=1.0, maximum=20.0, whole=True)
    flag: float = switch(True, "whether")
    kept: float = 1.0  # nobody's to set


def test_every_policy_is_made_with_the_defaults_that_are_described():
    for name, policy in policies.items():
        values = {key: one.default for key, one in parameters_of(policy).items()}
        assert make_policy(name) == make_policy(name, values)
        assert policy.name == name
        assert title_of(name) == policy.title
        assert all(one.about for one in parameters_of(policy).values())
    assert title_of("gone") == "gone"


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"count": 2.5}, "parameters.count: 2.5 must be whole, at least 1 and at most 20"),
        ({"count": 0}, "parameters.count: 0 must be whole, at least 1 and at most 20"),
        ({"flag": 0.5}, r"parameters.flag: 0.5 must be 0 \(off\) or 1 \(on\)"),
        ({"flag": 2}, r"parameters.flag: 2 must be 0 \(off\) or 1 \(on\)"),
        ({"flag": True}, r"parameters.flag: True must be a number 0 \(off\) or 1 \(on\)"),
    ],
)
def test_whole_numbers_and_switches_are_checked(given, refusal):
    with pytest.raises(InvalidValueError, match=refusal):
        check_parameters("toy", parameters_of(Toy), given)
    assert check_parameters("toy", parameters_of(Toy), {"count": 3, "flag": 0}) == {"count": 3.0, "flag": 0.0}


def test_vlans_of_one_policy_are_one_call_if_their_parameters_agree_or_it_decides_together():
    vns = VnTable.from_config(star(2, limits=dict.fromkeys((10, 20, 30, 40), "100M")))
    choices = {
        10: PolicyChoice("fe", {"k": 0.5}),
        20: PolicyChoice("fe"),  # the default
        30: PolicyChoice("max-min", {"probe": 3}),
        40: PolicyChoice("max-min"),
    }
    alike, together = groups_of(vns, choices)
    assert set(vns.vlan_vid[alike.vns]) == {10, 20}
    assert set(vns.vlan_vid[together.vns]) == {30, 40}
    probe = together.parameters["probe"]
    assert [set(probe[vns.vlan_vid == vid].tolist()) for vid in (30, 40)] == [{3.0}, {2.0}]
    assert np.isnan(probe[vns.vlan_vid == 10]).all()


def test_policies_say_where_ceilings_count_and_who_is_always_controlled():
    vns = VnTable.from_config(star(2))
    changed = apply_choices(vns, {10: PolicyChoice("max-min")})
    for column in (changed.uses_ceiling, changed.always_controlled):
        assert (column == (vns.vlan_vid == 10)).all()
    kept = apply_choices(changed, {20: PolicyChoice("fs")})
    assert (kept.uses_ceiling == changed.uses_ceiling).all()
    assert policies["max-min"].joint
