"""A job of map and reduce tasks on the model: reduce tasks fetch the output of map tasks over connections of PNs."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from experiments.model.tcp import TcpSource
from experiments.scenarios.traffic import Job

Ends = tuple[int, int]
"""(sending PN, receiving PN)"""


@dataclass(slots=True)
class _ReduceTask:
    """A reduce task of a PN.

    ``waiting`` are the PNs with output to fetch, one per map task; ``missing`` counts the outputs not fetched or begun
    yet; ``fetching`` are the start times of running fetches, by PN.
    """

    waiting: list[int]
    missing: int
    fetching: dict[int, float] = field(default_factory=dict)


class MapReduceJob:
    """Assigns reduce tasks to PNs as they come free, and lets each fetch from the map tasks that have ended.

    Choice: in a random order, as Hadoop does, so that not all fetch from one PN. ``connections`` are the sources by
    their ends. Times are the model's; the job begins at ``begin_s``.
    """

    def __init__(
        self, job: Job, connections: Mapping[Ends, TcpSource], begin_s: float, seed: int, slot_s: float
    ) -> None:
        self._job, self._connections, self._slot_s = job, connections, slot_s
        self._rng = Random(f"{seed}/fetches")
        pns = sorted({sender for sender, _ in connections})
        self._maps = deque((begin_s + end_s, pn) for end_s, pn in job.map_ends(seed, pns))
        self._outputs = len(self._maps)
        self._ended: list[int] = []  # the PN of each map task that has ended
        self._unassigned = job.reduces * len(pns)  # reduce tasks
        self._tasks: dict[int, _ReduceTask | None] = dict.fromkeys(pns)  # the running reduce task of each PN
        self._free_s = dict.fromkeys(pns, begin_s)  # when each PN can take its next reduce task
        self._expected = self._unassigned * job.maps * (len(pns) - 1)  # fetches over the network in all
        self._done: list[tuple[Ends, float, float]] = []

    def step(self, slot: int) -> None:
        """Assign tasks, collect complete fetches, and begin new ones; called once in every slot."""
        now_s = slot * self._slot_s
        newly_ended: list[int] = []
        while self._maps and self._maps[0][0] <= now_s:
            newly_ended.append(self._maps.popleft()[1])
        self._ended += newly_ended
        for pn, task in self._tasks.items():
            if task is None:
                if not self._unassigned or now_s < self._free_s[pn]:
                    continue
                self._unassigned -= 1
                task = _ReduceTask(self._rng.sample(self._ended, len(self._ended)), self._outputs)
            else:
                task.waiting += newly_ended
                if not self._collect(pn, task) and not newly_ended:
                    continue
            self._fetch(pn, task, now_s, slot)
            if not (task.missing or task.fetching):
                self._free_s[pn] = now_s + self._job.reduce_s
                task = None
            self._tasks[pn] = task

    def rows(self) -> list[tuple[Ends, float, float | None]]:
        """Return (ends, begun, ended) of every fetch over the network; None: not ended, or not begun either."""
        fetches: list[tuple[Ends, float, float | None]] = list(self._done)
        for pn, task in self._tasks.items():
            if task is not None:
                fetches += [((sender, pn), began_s, None) for sender, began_s in task.fetching.items()]
        # Fetches that have not begun are counted at any pair.
        any_pair = next(iter(self._connections))
        return fetches + [(any_pair, self._free_s[any_pair[1]], None)] * (self._expected - len(fetches))

    def _collect(self, pn: int, task: _ReduceTask) -> bool:
        """Collect the complete fetches of a task; return whether there are any."""
        ended = [sender for sender in task.fetching if not self._connections[sender, pn].transferring]
        for sender in ended:
            ended_s = self._connections[sender, pn].transfers[-1].ended_s
            assert ended_s is not None
            self._done.append(((sender, pn), task.fetching.pop(sender), ended_s))
        return bool(ended)

    def _fetch(self, pn: int, task: _ReduceTask, now_s: float, slot: int) -> None:
        """Begin fetches of a task, up to the maximum at once and one per PN; outputs of the task's own PN need none."""
        still_waiting = []
        for sender in task.waiting:
            if sender == pn:
                task.missing -= 1
            elif len(task.fetching) < self._job.fetches and sender not in task.fetching:
                task.missing -= 1
                task.fetching[sender] = now_s
                self._connections[sender, pn].transfer(self._job.fetch_bytes, slot)
            else:
                still_waiting.append(sender)
        task.waiting = still_waiting
