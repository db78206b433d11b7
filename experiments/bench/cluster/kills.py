"""Kills and stops in a row, at random: of both nodes and of etcd's members, while traffic is limited and limits change.

Two controllers, three members of etcd, two software switches. In each turn something is killed or paused, sometimes a
second thing with it, and comes back after a while. talking_pair.py judges.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from experiments.bench.cluster.talking_pair import Judgement, TalkingPair, document, talking_fabric
from experiments.machine.controller_pair import NAMES, ControllerPair, kill_machine_of

LONGEST_PAUSE_S, LONGEST_WAIT_S = 6.0, 4.0
BOTH_READY_SHARE = 0.8  # of the turns begin with a standby that can take over
SECOND_SHARE = 0.3  # of the turns have a second disturbance
SETTLE_S = 60.0


@dataclass
class KillsReport:
    """What came of it, and how often each was disturbed."""

    judgement: Judgement
    disturbances: dict[str, int] = field(default_factory=dict)


def run_kills(count: int, seed: int, folder: Path, tell: Callable[[str], None] = lambda _line: None) -> KillsReport:
    """Disturb a pair so many times, and return what came of it. Raises ControllerError if it does not come back."""
    with ControllerPair(document, folder) as pair, talking_fabric(pair) as fabric:
        run = _Run(TalkingPair(pair, fabric), random.Random(seed))
        run.talking.begin()
        for turn in range(count):
            told = run.turn()
            tell(f"{turn + 1:>3}: {told}")
        return KillsReport(run.talking.judge(), run.disturbances)


class _Run:
    def __init__(self, talking: TalkingPair, random_: random.Random) -> None:
        self.talking, self.disturbances = talking, dict[str, int]()
        self._pair, self._random = talking.pair, random_
        self._undo: list[Callable[[], None]] = []
        self._dead: set[int] = set()

    def turn(self) -> str:
        """Disturb, change a limit meanwhile and afterwards, and wait until a node controls the switches again."""
        if self._random.random() < BOTH_READY_SHARE:
            self._pair.wait_ready()
        names = [self._disturb()]
        if self._random.random() < SECOND_SHARE:
            names.append(self._disturb())
        self.talking.change_once()
        time.sleep(self._random.uniform(0.0, LONGEST_WAIT_S))
        self.talking.change_once()
        while self._undo:
            self._undo.pop()()
        begun_s = time.monotonic()
        active = self._pair.wait_controls()
        self._pair.wait(self.talking.change_once, "a change is kept", SETTLE_S)
        return f"{', '.join(names)}; {NAMES[active]} in control {time.monotonic() - begun_s:.1f} s after all were back"

    def _disturb(self) -> str:
        active = self._pair.active
        if active is None:
            active = self._random.randrange(len(NAMES))
        member = self._random.randrange(len(self._pair.etcd.members))
        pause_s = self._random.uniform(0.3, LONGEST_PAUSE_S)
        kinds: Mapping[str, Callable[[], None]] = {
            "active node killed": lambda: self._kill(active, signal.SIGKILL),
            "active node's machine dead": lambda: self._kill_machine(active),
            "active node stopped": lambda: self._kill(active, signal.SIGTERM),
            "active node paused": lambda: self._pause(active, pause_s),
            "standby killed": lambda: self._kill(1 - active, signal.SIGKILL),
            "standby paused": lambda: self._pause(1 - active, pause_s),
            "member of etcd killed": lambda: self._kill_member(member),
            "member of etcd paused": lambda: self._pause_member(member, pause_s),
        }
        name = self._random.choice(list(kinds))
        kinds[name]()
        self.disturbances[name] = self.disturbances.get(name, 0) + 1
        return name

    def _kill(self, number: int, what: signal.Signals) -> None:
        self._pair.resume(number)
        self._pair.nodes[number].end(what)
        if number not in self._dead:
            self._dead.add(number)
            self._undo.append(lambda: self._restart(number))

    def _kill_machine(self, number: int) -> None:
        if number not in self._dead:
            kill_machine_of(self._pair.nodes[number].pid)
            self._kill(number, signal.SIGKILL)

    def _restart(self, number: int) -> None:
        self._dead.discard(number)
        self._pair.nodes[number].start()

    def _pause(self, number: int, seconds: float) -> None:
        if number in self._dead:
            return
        self._pair.send_signal(number, signal.SIGSTOP)

        def resume() -> None:
            time.sleep(seconds)
            self._pair.resume(number)

        self._undo.append(resume)

    def _kill_member(self, number: int) -> None:
        member = self._pair.etcd.members[number]
        member.stop()

        def restart() -> None:
            member.stop()  # it may have been killed twice
            member.launch()
            member.wait_answers()

        self._undo.append(restart)

    def _pause_member(self, number: int, seconds: float) -> None:
        member = self._pair.etcd.members[number]
        member.send_signal(signal.SIGSTOP)

        def resume() -> None:
            time.sleep(seconds)
            member.send_signal(signal.SIGCONT)

        self._undo.append(resume)
