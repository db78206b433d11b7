"""Token buckets that limit how much controller time each sending VN takes."""

from __future__ import annotations

import numpy as np

from controller.columns import FloatArray

# Burst of a VN's packet-ins at the switch, so that they arrive at once when many hosts start to send.
REPORT_BURST_S = 2.0
# Burst of an agent's frames, which it sends all at once, once in an interval.
AGENT_BURST_INTERVALS = 2
# A packet-in costs the controller some 0.1 ms, a host that moves some 0.1 ms and a flow-mod for each switch.
PACKET_INS_PER_S, PACKET_IN_BURST = 100.0, 200.0
MOVES_PER_S, MOVE_BURST = 5.0, 64.0


def packet_in_bursts(rate_bps: FloatArray, burst_s: float = REPORT_BURST_S) -> FloatArray:
    """Return the burst sizes in whole kb of the packet-in meters."""
    return np.ceil(rate_bps * burst_s / 1000.0) * 1000.0


class TokenBuckets:
    """A bucket for each of ``size`` rows, filled at ``per_s`` tokens per second, up to ``capacity``; full at first."""

    def __init__(self, size: int, per_s: float, capacity: float) -> None:
        self._per_s, self._most = per_s, capacity
        self._tokens = [capacity] * size
        self._filled_s = [0.0] * size

    def consume(self, row: int, now_s: float) -> bool:
        """Consume a token of a row; return whether there was one."""
        elapsed_s = max(now_s - self._filled_s[row], 0.0)
        tokens = min(self._tokens[row] + elapsed_s * self._per_s, self._most)
        self._filled_s[row] = now_s
        self._tokens[row] = tokens - 1.0 if tokens >= 1.0 else tokens
        return tokens >= 1.0
