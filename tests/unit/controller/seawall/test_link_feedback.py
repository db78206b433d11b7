"""What links say: load, computed marks, and losses by the ledger of what came and what was transmitted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import InvalidValueError
from controller.seawall.link_feedback import LinkBacklog, along_paths, link_loads, marked_shares
from controller.seawall.loops import Loops

INTERVAL_S, C = 0.055, 1e9
LINK = np.array([C])


def run(offered_bps, *, clock_skew_s=0.0, buffer_s=0.030):
    """Return the ledger's losses and the true ones, in bits, of a FIFO link whose port is read late or early."""
    ledger, queued, lost, seen, late = LinkBacklog.empty(1), 0.0, 0.0, 0.0, 0.0
    for number, rate_bps in enumerate(offered_bps):
        came = rate_bps * INTERVAL_S
        room = buffer_s * C - queued + C * INTERVAL_S
        lost += max(came - room, 0.0)
        served = min(queued + came, C * INTERVAL_S)
        queued = min(queued + came - served, buffer_s * C)
        skew = C * clock_skew_s * (1 if number % 2 else -1) if served >= C * INTERVAL_S * 0.99 else 0.0
        transmitted_bps = (served + skew - late) / INTERVAL_S
        late = skew
        ledger = ledger.updated(np.array([rate_bps]), np.array([transmitted_bps]), LINK, INTERVAL_S)
        seen += float(ledger.lost[0]) * came
    return seen, lost


def test_a_standing_overload_is_seen_as_what_it_is():
    seen, lost = run([1.5e9] * 100)
    assert seen == pytest.approx(lost, rel=0.02)


@pytest.mark.parametrize(("offered_bps", "clock_skew_s"), [([1.4e9, 0.4e9] * 50, 0.0), ([0.99e9] * 200, 0.002)])
def test_bursts_that_the_buffer_holds_and_clocks_that_differ_are_no_loss(offered_bps, clock_skew_s):
    assert run(offered_bps, clock_skew_s=clock_skew_s) == (0.0, 0.0)


@given(st.lists(st.floats(0.0, 3e9), min_size=1, max_size=80))
def test_never_more_loss_than_there_is(offered_bps):
    seen, lost = run(offered_bps)
    assert seen <= lost * (1 + 1e-9) + 1.0


def test_a_port_that_does_not_answer_leaves_losses_unknown():
    ledger = LinkBacklog.empty(1).updated(np.array([2e9]), np.array([np.nan]), LINK, INTERVAL_S)
    assert np.isnan(ledger.lost[0])
    assert ledger.queued_bits[0] == 0.0


def test_traffic_without_entries_is_load():
    ledger = LinkBacklog.empty(1)
    for _ in range(40):
        ledger = ledger.updated(np.array([0.2e9]), np.array([0.7e9]), LINK, INTERVAL_S)
    assert ledger.foreign_bps[0] == pytest.approx(0.5e9, rel=0.01)


@pytest.mark.parametrize(
    ("offsets", "link", "told"),
    [
        ([0, 1], [0], "offsets: 2 must fit 2 entries and 1 uses"),
        ([0, 1, 1], [0, 1], "offsets: 3 must fit 2 entries and 2 uses"),
        ([0, 1, 2], [0, 3], r"link\[1\]: 3 does not exist: there are 3"),
        ([0, 1, 2], [-1, 0], r"link\[0\]: -1 does not exist"),
    ],
)
def test_ways_that_do_not_fit_are_refused(offsets, link, told):
    with pytest.raises(InvalidValueError, match=told):
        Loops.build(np.array([0, 1]), np.array(offsets), np.array(link), 3)


def test_what_is_lost_upstream_does_not_load_the_next_link():
    loops = Loops.build(np.array([0]), np.array([0, 3]), np.array([0, 1, 2]), 3)
    loads = link_loads(loops, np.array([100.0]), np.array([0.5, np.nan, 0.0]))
    assert loads.tolist() == [100.0, 50.0, 50.0]


def test_marks_stand_for_the_target_load():
    """A loop of the proportional law stands where its marks are a / (alpha + a): at 98 % of the link."""
    at_target = marked_shares(
        np.array([0.98 * C, 0.5 * C, 0.0]), np.full(3, C), np.full(3, 0.5), np.full(3, 0.05), 0.98
    )
    assert at_target == pytest.approx([0.05 / 0.55, 0.0, 0.0])


def test_shares_of_a_way():
    loops = Loops.build(np.array([0, 1]), np.array([0, 2, 3]), np.array([0, 1, 1]), 2)
    along = along_paths(loops, np.array([0.5, 0.5, 0.1]))
    assert along == pytest.approx([0.75, 0.75, 0.1])
    assert np.isnan(along_paths(loops, np.array([np.nan, 0.5, 0.1]))[:2]).all()
