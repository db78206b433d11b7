"""Without receiving queues, no pattern of bursts brings a receiver much more than its limit in any second."""

from __future__ import annotations

from random import Random

import pytest
from support.bursts import received_bits

from controller.metering.enforcement import MIN_BURST_BITS
from experiments.bench.enforcement.burst_bench import ALGORITHMS, PATTERNS
from experiments.bench.enforcement.burst_patterns import BurstPattern, worst_gain

MAX_GAIN = 0.10


def allowed(senders, limit_bps):
    """A tenth, and the three frames that each sender's meter lets through at least."""
    return MAX_GAIN + senders * MIN_BURST_BITS / limit_bps


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_known_patterns_gain_a_tenth_at_most(algorithm, pattern):
    time_s, bits = received_bits(pattern, algorithm, senders=5, limit_bps=50_000_000, rate_factor=1)
    assert worst_gain(time_s, bits, 50e6) <= allowed(5, 50e6)


def drawn(seed):
    """In step with the control interval or not, in phase or one after the other, after short or long sleeps."""
    rng = Random(seed)
    unit_s = rng.choice([0.001, 0.055, 0.0275])
    on_s = max(0.005, round(rng.choice([rng.uniform(0.005, 0.12), rng.uniform(0.05, 0.5)]) / unit_s) * unit_s)
    off_s = round(rng.choice([0, rng.uniform(0.005, 0.2), rng.uniform(0.2, 1.5)]) / unit_s) * unit_s
    stagger_s = rng.choice([0, 0, rng.uniform(0, 0.06), 0.055, rng.uniform(0, 0.25)])
    case = {"rate_factor": rng.choice([0.3, 0.5, 1, 2]), "senders": rng.choice([2, 3, 5, 8, 12, 20])}
    return BurstPattern(on_s, off_s, stagger_s), case | {"limit_bps": rng.choice([5_000_000, 20_000_000, 50_000_000])}


@pytest.mark.parametrize("seed", range(24))
def test_drawn_patterns_gain_a_tenth_at_most(seed):
    pattern, case = drawn(seed)
    time_s, bits = received_bits(pattern, ALGORITHMS[seed % len(ALGORITHMS)], seed=seed, **case)
    assert worst_gain(time_s, bits, case["limit_bps"]) <= allowed(case["senders"], case["limit_bps"])
