"""Window laws: how TCP's window grows without losses and shrinks with them. Windows are segments, times seconds."""

from __future__ import annotations

from controller.errors import InvalidValueError

HYSTART_WINDOW = 16
HYSTART_MIN_S, HYSTART_MAX_S = 0.004, 0.016
CUBIC_C, CUBIC_BETA = 0.4, 0.7
DCTCP_GAIN = 1 / 16


class Reno:
    """RFC 5681: a segment more per round trip, half after a loss. Marks count as losses, once per window (RFC 3168)."""

    counts_marks = False

    def grown(self, window: float, acked: int, now_s: float, srtt_s: float) -> float:
        """Return the window in congestion avoidance after ``acked`` segments."""
        return window + acked / window

    def reduced(self, window: float, now_s: float) -> float:
        """Return the window after a loss."""
        return window / 2

    def marked(self, window: float, acked: int, marked: int, new_window: bool) -> float | None:
        """Return the window that ECN marks lead to, None for no change; ``new_window``: a round trip has passed."""
        return self.reduced(window, 0.0) if marked and new_window else None

    def leaves_slow_start(self, window: float, rtt_s: float, min_rtt_s: float) -> bool:
        """Whether slow start ends before a loss."""
        return False


class Cubic(Reno):
    """RFC 9438, with fast convergence and HyStart's delay criterion, as Linux has it."""

    def __init__(self) -> None:
        self._last_most = 0.0  # W_max of the RFC: the window at the last loss
        self._epoch_s: float | None = None  # when the present cubic began; None: with the next acknowledgement
        self._origin = self._k_s = 0.0  # the plateau of the cubic, and the time from its beginning to the plateau
        self._friendly = 0.0  # W_est of the RFC: the window that Reno would have

    def grown(self, window: float, acked: int, now_s: float, srtt_s: float) -> float:
        """Follow the cubic, but no slower than Reno with the same average would."""
        if self._epoch_s is None:
            self._epoch_s = now_s
            self._friendly = window
            self._origin = max(self._last_most, window)
            self._k_s = ((self._origin - window) / CUBIC_C) ** (1 / 3)
        wanted = self._origin + CUBIC_C * (now_s + srtt_s - self._epoch_s - self._k_s) ** 3
        self._friendly += 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA) * acked / window
        wanted = max(min(wanted, 1.5 * window), self._friendly)
        # A round trip acknowledges a window: the window reaches ``wanted``, or grows by a hundredth at least.
        return window + max(wanted - window, window / 100) * min(acked / window, 1.0)

    def reduced(self, window: float, now_s: float) -> float:
        """Begin a new cubic below the last maximum."""
        self._epoch_s = None
        self._last_most = window * (1 + CUBIC_BETA) / 2 if window < self._last_most else window
        return window * CUBIC_BETA

    def leaves_slow_start(self, window: float, rtt_s: float, min_rtt_s: float) -> bool:
        """HyStart: the round trip has grown by an eighth, at least 4 ms."""
        beyond_s = min(max(min_rtt_s / 8, HYSTART_MIN_S), HYSTART_MAX_S)
        return window >= HYSTART_WINDOW and rtt_s >= min_rtt_s + beyond_s


class Dctcp(Reno):
    """RFC 8257: the window shrinks by half the share of marked segments, once per window."""

    counts_marks = True

    def __init__(self) -> None:
        self.alpha = 1.0
        self._acked = self._marked = 0

    def marked(self, window: float, acked: int, marked: int, new_window: bool) -> float | None:
        """Count marks; at the end of a window update alpha, and reduce if any were marked."""
        self._acked += acked
        self._marked += marked
        if not new_window:
            return None
        share = self._marked / max(self._acked, 1)
        self.alpha += DCTCP_GAIN * (share - self.alpha)
        had_marks, self._acked, self._marked = self._marked > 0, 0, 0
        return window * (1 - self.alpha / 2) if had_marks else None


LAWS = {"reno": Reno, "cubic": Cubic, "dctcp": Dctcp}


def make_law(name: str) -> Reno:
    """Return a new law by name; raise InvalidValueError for an unknown one."""
    if name not in LAWS:
        raise InvalidValueError("congestion_control", name, f"is not one of {', '.join(LAWS)}")
    return LAWS[name]()
