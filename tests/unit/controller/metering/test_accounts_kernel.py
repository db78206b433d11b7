"""The compiled rooms of receivers against their numpy form: the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from controller.metering import measure_kernel
from controller.metering.receiver_accounts import REACTION_S, ReceiverAccounts

pytestmark = pytest.mark.skipif(measure_kernel.library is None, reason="the kernel was not built")


@pytest.mark.parametrize("vns", [1, 7, 256, 600])
@pytest.mark.parametrize("seed", range(4))
def test_rooms_have_the_bits_of_their_numpy_form(vns: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    accounts, now_s, limit_bps = ReceiverAccounts.unused(vns), 0.0, rng.uniform(1e6, 1e10, vns)
    limit_bps[rng.random(vns) < 0.2] = 1e15
    for _ in range(60):  # slots fill up, are old after a pause, and some are longer than others
        before_s, now_s = now_s, now_s + float(rng.choice([0.011, 0.055, 0.13, 1.4], p=[0.3, 0.5, 0.15, 0.05]))
        accounts = accounts.after(rng.uniform(0.0, 2.0, vns) * limit_bps * 0.055, limit_bps, now_s)
        horizon_s = min(now_s - before_s, 0.2) + REACTION_S
        compiled = accounts.rooms(limit_bps, horizon_s)
        with monkeypatch.context() as context:
            context.setattr(measure_kernel, "library", None)
            plain = accounts.rooms(limit_bps, horizon_s)
        for name in ("limit_bps", "ahead_s", "free_bits", "saved_bits"):
            assert getattr(compiled, name).tobytes() == getattr(plain, name).tobytes(), name
