"""Where Seawall's meters of new entries start."""

import numpy as np
import pytest
from support.configs import star

from controller.fabric.vn_table import VnTable
from controller.policy.interface import NewPairs
from controller.policy.registry import make_policy

VNS = VnTable.of_config(star(4, capacity="100M", limits={10: "40M"}, algorithm="seawall"))


@pytest.mark.parametrize(("senders", "first_bps"), [(0, 40e6), (1, 40e6), (4, 10e6)])
def test_newcomers_start_with_an_equal_part_of_their_receiver(senders, first_bps):
    new = NewPairs(VNS, np.array([0]), np.array([3]), np.array([senders]), np.array([False]))
    assert make_policy("seawall", {}).first_bps(new).tolist() == [first_bps]
