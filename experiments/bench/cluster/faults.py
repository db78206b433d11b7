"""Partitions, full disks and clocks that step, one after the other, on nodes whose switches limit traffic (root).

A pair, or three nodes that share the switches. After each fault it heals by itself, or by what docs/cluster.md says
that operators do; testbed judges what the switches and the history hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.bench.cluster.common_faults import Faults
from experiments.bench.cluster.pair_faults import PairFaults
from experiments.bench.cluster.shared_faults import SharedFaults
from experiments.bench.cluster.testbed.fault_ground import ground
from experiments.bench.cluster.testbed.talking_pair import (
    Judgement,
    TalkingPair,
    document,
    shared_document,
    talking_fabric,
)
from experiments.machine.controller_pair import ControllerPair, SharedNodes


@dataclass
class FaultsReport:
    """What came of it, and how long each fault took with what heals it."""

    judgement: Judgement
    took_s: dict[str, float] = field(default_factory=dict)


def run_faults(
    folder: Path, tell: Callable[[str], None] = lambda _line: None, names: Sequence[str] = (), *, shared: bool = False
) -> FaultsReport:
    """Have every fault once, or those with these names, on a pair or on nodes that share switches.

    Raises InvalidValueError without root or a program that is needed, ControllerError if the nodes do not come back.
    """
    with ground(folder, 3 if shared else 2) as made:
        kind, of = (SharedNodes, shared_document) if shared else (ControllerPair, document)
        with (
            kind(of, folder, made.places, made.network.host) as nodes,
            talking_fabric(nodes, made.sources) as fabric,
        ):
            talking = TalkingPair(nodes, fabric)
            if isinstance(nodes, SharedNodes):
                return _run(SharedFaults(talking, nodes, made), names, tell)
            return _run(PairFaults(talking, made), names, tell)


def _run(faults: Faults, names: Sequence[str], tell: Callable[[str], None]) -> FaultsReport:
    talking = faults.talking
    talking.begin()
    report = FaultsReport(talking.judgement)
    for name, fault in faults.faults().items():
        if not names or name in names:
            began_s, problems = time.monotonic(), len(talking.judgement.problems)
            fault()
            talking.pair.wait_ready()
            report.took_s[name] = time.monotonic() - began_s
            tell("; ".join([f"{name}: {report.took_s[name]:.1f} s", *talking.judgement.problems[problems:]]))
    talking.judge()
    return report
