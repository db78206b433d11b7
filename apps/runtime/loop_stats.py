"""Statistics of the control loop's rounds and missed deadlines: for operators, and for ``dets bench loop``."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

KEPT_ROUNDS = 1000
_ROUNDING = 1e-6  # in intervals: a delay that a rounding error makes a little shorter than an interval counts as one


@dataclass(slots=True)
class Round:
    """One round: counters are polled, the step is run, and the resulting messages are pushed to the switches' queues.

    ``number`` counts rounds from 1. ``timeouts`` is the number of switches that did not reply in time, ``skipped`` the
    number of due rounds between the start of the previous round and of this one that never began, for any reason: a
    long round, another task or a stopped process. Times are in milliseconds, except ``started_s``.
    """

    number: int
    started_s: float
    poll_ms: float
    step_ms: float
    push_ms: float
    pair_count: int
    read_meters: int
    modified_meters: int
    timeouts: int
    skipped: int

    @property
    def total_ms(self) -> float:
        """The whole round, including the wait for replies."""
        return self.poll_ms + self.step_ms + self.push_ms


class LoopStats:
    """The last KEPT_ROUNDS rounds of the loop, and the missed deadlines of all."""

    def __init__(self, interval_s: float) -> None:
        self.skipped_rounds = 0
        self.poll_timeouts = 0
        self.read_meters = 0
        self.modified_meters = 0
        self._interval_s = interval_s
        self._delay_intervals = 0.0  # accumulated delay of rounds; whole intervals become skipped rounds
        self._rounds: deque[Round] = deque(maxlen=KEPT_ROUNDS)
        self._number = 0

    def record_round(
        self, marks_s: tuple[float, float, float, float], *, pair_count: int, read: int, changed: int, timeouts: int
    ) -> None:
        """Record a round.

        ``marks_s`` are the times of its start and of the ends of polling, decision and sending, on one clock. ``read``
        and ``changed`` are numbers of meters, ``timeouts`` is the number of switches that did not reply in time.
        """
        started_s = marks_s[0]
        self._number += 1
        skipped = self._skipped_before(started_s)
        self.skipped_rounds += skipped
        self.poll_timeouts += timeouts
        self.read_meters += read
        self.modified_meters += changed
        started_ms, polled_ms, decided_ms, sent_ms = [1e3 * mark_s for mark_s in marks_s]
        times_ms = polled_ms - started_ms, decided_ms - polled_ms, sent_ms - decided_ms
        self._rounds.append(Round(self._number, started_s, *times_ms, pair_count, read, changed, timeouts, skipped))

    def _skipped_before(self, started_s: float) -> int:
        """Return the number of whole rounds that were skipped since the last round.

        Delays add up over rounds, because the loop never makes up for them: two delays of half an interval are one
        skipped round.
        """
        last = self.last
        if last is None:
            return 0
        delay_intervals = (started_s - last.started_s) / self._interval_s - 1.0
        self._delay_intervals = max(self._delay_intervals + delay_intervals, 0.0)
        skipped = int(self._delay_intervals + _ROUNDING)
        self._delay_intervals = max(self._delay_intervals - skipped, 0.0)
        return skipped

    def sent_after(self, time_s: float) -> float | None:
        """Return when the first round that started at ``time_s`` or later had sent its messages; None: not yet."""
        ends_s = (kept.started_s + kept.total_ms / 1e3 for kept in self._rounds if kept.started_s >= time_s)
        return next(ends_s, None)

    @property
    def last(self) -> Round | None:
        """The last round, None before the first."""
        return self._rounds[-1] if self._rounds else None

    def view(self, after: int = 0) -> dict[str, Any]:
        """Return statistics as JSON: counts since the start, and times of the kept rounds with numbers > ``after``."""
        rounds = [kept for kept in self._rounds if kept.number > after]
        return {
            "interval_ms": self._interval_s * 1e3,
            "rounds": self._number,
            "skipped_rounds": self.skipped_rounds,
            "poll_timeouts": self.poll_timeouts,
            "read_meters": self.read_meters,
            "modified_meters": self.modified_meters,
            "sampled_rounds": len(rounds),
            **{
                name: _spread(getattr(kept, name) for kept in rounds)
                for name in ("poll_ms", "step_ms", "push_ms", "total_ms")
            },
            "last": asdict(rounds[-1]) if rounds else None,
        }


def _spread(values: Iterable[float]) -> dict[str, float] | None:
    """Return the median, the 99th percentile and the maximum of values in ms; None without values."""
    column = np.fromiter(values, dtype=np.float64)
    if not len(column):
        return None
    p50, p99 = np.percentile(column, (50, 99))
    return {"p50": round(float(p50), 3), "p99": round(float(p99), 3), "max": round(float(column.max()), 3)}
