"""Where Seawall's meters of new entries start, and how full its loops make links."""

import numpy as np
import pytest
from support.configs import star

from controller.fabric.vn_table import VnTable
from controller.policy.interface import NewPairs
from controller.policy.registry import make_policy
from controller.seawall import policy
from controller.seawall.link_feedback import LinkBacklog
from controller.seawall.link_state import LinkState, PathLoops, in_path_order, used_link_rates
from controller.seawall.loops import Loops

VNS = VnTable.from_config(star(4, capacity="100M", limits={10: "40M"}, algorithm="seawall"))


@pytest.mark.parametrize(("senders", "first_bps"), [(0, 40e6), (1, 40e6), (4, 10e6)])
def test_newcomers_start_with_an_equal_part_of_their_receiver(senders, first_bps):
    new = NewPairs(VNS, np.array([0]), np.array([3]), np.array([senders]), np.array([False]))
    assert make_policy("seawall", {}).first_bps(new).tolist() == [first_bps]


def test_the_receivers_access_link_is_the_last_of_a_path():
    # One link; two access links; two access links and two of the core.
    assert in_path_order(np.array([0, 1, 3, 7]), np.arange(7)).tolist() == [0, 1, 2, 3, 5, 6, 4]


@pytest.mark.parametrize(
    ("takes_bursts", "interval_s", "load_bps"), [(False, 0.055, 100e6), (False, 0.0, 90e6), (True, 0.055, 90e6)]
)
def test_what_waits_in_a_queue_counts_in_its_marks_but_not_saved_bursts(takes_bursts, interval_s, load_bps):
    """5.5 ms of a link of 100 Mb/s are a tenth of what it sends in an interval; 3 ms more may be the clocks'."""
    ledger = LinkBacklog(np.full(1, 0.85e6), np.zeros(1), np.zeros(1))
    zero, capacity, loads = np.zeros(1), np.full(1, 100e6), np.full(1, 90e6)
    links = LinkState(
        used_bps=zero,
        capacity_bps=capacity,
        load_bps=loads,
        takes_bursts=np.array([takes_bursts]),
        ledger=ledger,
        lost=zero,
    )
    assert links.marked_load_bps(interval_s) == pytest.approx([load_bps])


@pytest.mark.parametrize(
    ("used_bps", "passed_bps", "load_bps"),
    [
        # Two flows of one sender take turns: one passes 14 through a limit that was 14 before, the other 6 of its 10.
        ([10.0, 6.0], [14.0, 6.0], 20.0),
        ([10.0, 6.0], [18.0, 6.0], 20.0),  # no more than the sum of the limits
        ([10.0, 10.0], [8.0, 9.0], 20.0),  # both are limited, and their meters are late
        ([5.0, 6.0], [5.0, 6.0], 11.0),
    ],
)
def test_flows_of_a_sender_load_a_link_together(used_bps, passed_bps, load_bps):
    loops = Loops.build(np.array([0, 0, 1]), np.array([0, 1, 2, 3]), np.array([0, 0, 0]), 2)
    # Another sender's flow above its limit does not add to them.
    used, passed = np.array([*used_bps, 10.0]), np.array([*passed_bps, 14.0])
    loads = used_link_rates(loops, used, passed, np.full(3, 10.0), np.zeros(2))
    assert loads.tolist() == [load_bps + 10.0, 0.0]


def test_who_has_more_than_its_share_leaves_room_on_any_link():
    loops = Loops.build(np.arange(6), np.arange(7), np.zeros(6, dtype=np.int64), 1)
    rate_bps, standing_bps = np.array([40e6, 50e6, 50.5e6, 52.5e6, 80e6, np.nan]), np.full(6, 50e6)
    for up, room in ((False, 0.95), (True, 0.93)):
        ways = PathLoops(None, loops, loops, np.arange(0), np.array([up]))
        part = 0.98 - 0.2 * (0.98 - room)
        targets = policy._targets(ways, rate_bps, standing_bps)
        assert targets == pytest.approx([0.98, 0.98, part, room, room, 0.98])
