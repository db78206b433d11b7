"""The vector law against the paper's listing, frame by frame, at the paper's own pace of 0.5 ms."""

from functools import cache

import numpy as np
import pytest

from controller.hygenicc.law import Bottlenecks, Constants, LimiterState, next_rates
from experiments.model.packets import FRAME_BITS
from experiments.runs.reference_hygenicc import PaperConstants, Slips, Source, greedy, run, used

C = 1e9


@cache
def plain(senders, always_fed_back=False, **constants):
    paper = PaperConstants(**constants)
    slips = Slips(always_fed_back=always_fed_back)
    sources = [Source(paper, C, C / senders, slips) for _ in range(senders)]
    return paper, run(sources, greedy(sources), seconds=1.0)


@pytest.mark.parametrize("senders", [2, 4, 8])
def test_an_update_is_the_listings(senders):
    """A rate falls by ``f * C / 1000`` there (line 35), here by ``beta * phi * R``: the same, but for parts of frames.

    The rises are the same: C / 1000 after marks (line 37), C / 100 after the time-out (line 33).
    """
    paper, ticks = plain(senders)
    beta = C / 1000 / (FRAME_BITS / paper.update_s)
    timeout = round(paper.congestion_timeout_s / paper.update_s)
    columns = (0.0, beta, 0.001, 0.01, timeout, 0.98)
    constants = Constants(*(np.full(senders, float(one)) for one in columns))
    alone = Bottlenecks(np.arange(senders), np.full(senders, C), np.full(senders, C), np.ones(senders))
    bounds = (np.full(senders, C), np.full(senders, 0.01 * C), np.full(senders, C))
    quiet, compared = np.full(senders, 1e9), dict.fromkeys(("fall", "slow rise", "fast rise"), 0)
    for tick in ticks:
        frames = np.array(tick.frames, dtype=np.float64)
        phi = np.divide(np.array(tick.marks), frames, out=np.full(senders, np.nan), where=frames > 0)
        before = LimiterState(np.array(tick.before_bps), quiet)
        after = next_rates(before, phi, np.ones(senders), alone, *bounds, np.full(senders, np.inf), constants)
        quiet = np.where(np.array(tick.marks) > 0, 0.0, quiet + 1.0)
        sent = frames * FRAME_BITS / paper.update_s
        difference_bps = np.abs(after.rate_bps - np.array(tick.after_bps))
        cases = {
            "fall": ((phi > 0.0) & (phi <= 1.0) & (np.abs(sent - before.rate_bps) < 0.05 * C), 0.05 * C * beta),
            "slow rise": ((phi == 0.0) & (quiet < timeout - 2), 1.0),
            "fast rise": ((phi == 0.0) & (quiet > timeout + 2) & (before.rate_bps < C / senders - 0.02 * C), 1.0),
        }
        for case, (is_case, allowed_bps) in cases.items():
            compared[case] += int(is_case.sum())
            assert (difference_bps[is_case] <= allowed_bps).all(), case
    assert compared["fall"] > 300
    assert compared["slow rise"] > 2000
    assert compared["fast rise"] > 200 or senders > 2  # more are never without marks for so long


def test_the_printed_condition_leaves_the_link_less_used():
    """Line 34 asks ``f >= 0``: the slow increase never happens, and the link is used less for any number of senders."""
    for senders in (2, 4, 8):
        paper, mended = plain(senders)
        _, printed = plain(senders, always_fed_back=True)
        assert used(printed[400:], paper) < used(mended[400:], paper) - 0.02


def test_the_congestion_timeout_matters_and_not_in_one_direction():
    """The paper gives none. The link's use falls and rises again as it grows."""
    use = [used(plain(2, congestion_timeout_s=one)[1][400:], PaperConstants()) for one in (1e-3, 20e-3, 100e-3)]
    assert use[1] < use[0] - 0.04
    assert use[1] < use[2] - 0.04
