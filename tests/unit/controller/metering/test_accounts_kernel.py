"""The compiled accounts of VNs against their numpy form: the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.native_comparison import numpy_alone, same

from controller.metering import measurement_native
from controller.metering.guarantees import Guarantees
from controller.metering.receive_budgets import ReceiveBudgets

pytestmark = pytest.mark.skipif(measurement_native.library is None, reason="the kernel was not built")


@pytest.mark.parametrize("vns", [1, 7, 256, 600])
@pytest.mark.parametrize("seed", range(4))
def test_rooms_have_the_bits_of_their_numpy_form(vns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    accounts, now_s, limit_bps = ReceiveBudgets.initial(vns), 0.0, rng.uniform(1e6, 1e10, vns)
    limit_bps[rng.random(vns) < 0.2] = 1e15
    for _ in range(60):  # slots fill up, are old after a pause, and some are longer than others
        now_s += float(rng.choice([0.011, 0.055, 0.13, 1.4], p=[0.3, 0.5, 0.15, 0.05]))
        received_bits, counted_bps = rng.uniform(0.0, 2.0, vns) * limit_bps * 0.055, limit_bps * (rng.random(vns) < 0.9)
        dropped_bps = rng.uniform(0.0, 1.5, vns) * limit_bps
        said = received_bits, dropped_bps, counted_bps, limit_bps, now_s
        after, compiled = accounts.received(*said)
        with numpy_alone():
            accounts, plain = accounts.received(*said)
        for name in ("limit_bps", "ahead_s", "free_bits", "saved_bits", "lasting_bits"):
            assert getattr(compiled, name).tobytes() == getattr(plain, name).tobytes(), name
        for name in ("slot_bits", "slot_start_s", "updated_s", "pressed_s", "excess_bits"):
            assert getattr(after, name).tobytes() == getattr(accounts, name).tobytes(), name


@given(seed=st.integers(0, 2**32 - 1), vns=st.integers(0, 600))
def test_how_vns_fare_has_the_bits_of_its_numpy_form(seed: int, vns: int) -> None:
    rng = np.random.default_rng(seed)
    state, limit_bps = Guarantees.initial(vns), rng.uniform(1e6, 1e9, vns)
    for _ in range(30):
        offered_bps = rng.choice([0.0, 500.0, 1e6, 1e9], vns)
        received_bps = offered_bps * rng.choice([0.5, 0.96, 1.0], vns)
        said = offered_bps, received_bps, limit_bps, 0.5
        compiled = state.updated(*said)
        assert (compiled.violated is state.violated) == np.array_equal(compiled.violated, state.violated)
        with numpy_alone():
            state = state.updated(*said)
        same(compiled, state)
