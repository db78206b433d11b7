"""The demonstration's traffic over kinds of switches that are emulated, over several at once, each in its own process.

A run mostly waits, for switches to be tested and for traffic. Receivers have no queues, so that meters alone hold what
is to be held.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Self

from support.application import spawn

from apps.cli.support.rest_client import Client
from experiments.machine.controller_process import ControllerProcess
from experiments.runs.scenario_run import RunSettings, ScenarioRun
from experiments.runs.wire_run import run_on_wire
from experiments.scenarios.dets_fig5 import joined_by_udp
from experiments.switch.datapath import Datapath
from experiments.switch.emulated import EMULATED

AT_ONCE = 2
M = 1_000_000
VICTIM_BPS, AGGRESSOR_BPS = 20 * M, 25 * M
WARM_UP_S, BLAST_S = 2.0, 3.0
SCENARIO = joined_by_udp(
    "emulated",
    "the demonstration's traffic",
    senders=3,
    link_rate_bps=50 * M,
    victim_limit_bps=VICTIM_BPS,
    aggressor_limit_bps=AGGRESSOR_BPS,
    udp_rate_bps=16 * M,
    warmup_s=WARM_UP_S,
    blast_s=BLAST_S,
    cooldown_s=0.5,
    queues=False,
)


def run_kind(name: str, folder: Path) -> tuple[ScenarioRun, str]:
    """Return the run over a kind, and what the controller said of health and ports in the end."""
    (kind,) = (kind for kind in EMULATED if kind.name == name)
    said: dict[str, str] = {}
    switches: list[Datapath] = []
    now_s = 0.0

    def make(datapath: Datapath) -> None:
        switches.append(datapath)
        kind.make(datapath)

    def ask(url: str) -> None:
        said["url"] = url

    def note(passed_s: float) -> None:
        nonlocal now_s
        now_s += passed_s
        if now_s >= WARM_UP_S + 0.5 and switches:
            kind.later(switches.pop())
        client = Client(said["url"], timeout_s=5)
        said["text"] = "".join(client.read(f"/v1/{path}").decode() for path in ("health", "ports"))

    run = run_on_wire(SCENARIO, "fp", 1, note, folder, RunSettings(make=make, announce=ask))
    return run, said["text"]


def fork_controllers() -> None:
    """Let this process fork its controllers, as tests do."""
    ControllerProcess._spawn = spawn  # type: ignore[method-assign]


class EmulatedRuns:
    """The runs over these kinds, inside a ``with``: while one is waited for, the next ones go on, AT_ONCE in all."""

    def __init__(self, kinds: Sequence[str], folder: Path) -> None:
        self._kinds, self._folder, self._number = kinds, folder, 0
        self._begun: dict[str, Future[tuple[ScenarioRun, str]]] = {}
        self._pool = ProcessPoolExecutor(AT_ONCE, get_context("spawn"), fork_controllers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def of(self, name: str) -> tuple[ScenarioRun, str]:
        """Return what ``run_kind`` does; a run that is asked for again, as by a repeated test, is made again."""
        at = self._kinds.index(name)
        for one in self._kinds[at : at + AT_ONCE]:
            if one not in self._begun:
                self._begun[one] = self._begin(one)
        return self._begun.pop(name).result()

    def _begin(self, name: str) -> Future[tuple[ScenarioRun, str]]:
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        return self._pool.submit(run_kind, name, folder)
