"""How much of the controller's time a sending VN may take: token buckets, one for each VN."""

from __future__ import annotations

import numpy as np

from controller.columns import FloatArray

# What the switch lets through of a VN's frames, so that a burst of them comes up at once when many hosts start to talk.
REPORT_BURST_S = 2.0
# Of an agent's frames: it says all that it has to say at once, once in an interval.
AGENT_BURST_INTERVALS = 2
# A report costs the controller some 0.1 ms, a host that moves some 0.1 ms and a flow-mod for each switch.
PACKET_INS_PER_S, PACKET_IN_BURST = 100.0, 200.0
MOVES_PER_S, MOVE_BURST = 5.0, 64.0


def packet_in_bursts(rate_bps: FloatArray, burst_s: float = REPORT_BURST_S) -> FloatArray:
    """Return the burst sizes in whole kb of the meters that frames pass on their way to the controller."""
    return np.ceil(rate_bps * burst_s / 1000.0) * 1000.0


class TokenBuckets:
    """A bucket for each of ``size`` rows: filled with ``per_s`` tokens, holding ``most``; full at first."""

    def __init__(self, size: int, per_s: float, capacity: float) -> None:
        self._per_s, self._most = per_s, capacity
        self._tokens = [capacity] * size
        self._filled_s = [0.0] * size

    def consume(self, row: int, now_s: float) -> bool:
        """Take a token of a row; return whether there was one."""
        elapsed_s = max(now_s - self._filled_s[row], 0.0)
        tokens = min(self._tokens[row] + elapsed_s * self._per_s, self._most)
        self._filled_s[row] = now_s
        self._tokens[row] = tokens - 1.0 if tokens >= 1.0 else tokens
        return tokens >= 1.0
