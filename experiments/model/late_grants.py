"""Grants that take effect some intervals after they are decided, as in a network whose control messages are slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.allocation import AlgorithmState, AllocationAlgorithm, FloatArray, Parameter, Requests


@dataclass(frozen=True, slots=True)
class LateGrants:
    """An algorithm whose grants are put in force ``intervals`` intervals late.

    The grants on their way stand in the state, one column for each interval. A sender for which none has arrived keeps
    the rate it has; one without a rate may send what it can.
    """

    algorithm: AllocationAlgorithm
    intervals: int

    @property
    def name(self) -> str:
        """The algorithm's name."""
        return self.algorithm.name

    @property
    def title(self) -> str:
        """The algorithm's title."""
        return f"{self.algorithm.title}, {self.intervals} intervals late"

    @property
    def parameters(self) -> Sequence[Parameter]:
        """The algorithm's parameters."""
        return self.algorithm.parameters

    @property
    def sums_within_limit(self) -> bool:
        """No: grants of different intervals add up to anything."""
        return False

    def initial_state(self, receivers: int, entries: int) -> AlgorithmState:
        """Return the algorithm's state, with nothing on its way."""
        state = self.algorithm.initial_state(receivers, entries)
        none = {name: np.full(entries, np.nan) for name in self._columns}
        return replace(state, entry_columns={**state.entry_columns, **none})

    def allocate(self, requests: Requests, state: AlgorithmState) -> tuple[FloatArray, AlgorithmState]:
        """Return the grants that arrive now (entries,), and the state with those that were decided now."""
        decided_bps, after = self.algorithm.allocate(requests, state)
        queue = [*(state.entry_columns[name] for name in self._columns), np.where(requests.active, decided_bps, np.nan)]
        arrived_bps = np.where(np.isnan(queue[0]), requests.granted_bps, queue[0])
        on_the_way = dict(zip(self._columns, queue[1:], strict=True))
        after = replace(after, entry_columns={**after.entry_columns, **on_the_way})
        return np.minimum(arrived_bps, requests.available_bps), after

    @property
    def _columns(self) -> list[str]:
        return [f"late.{number}" for number in range(self.intervals)]
