"""Partitions, full disks and clock steps, one after the other, on nodes whose switches limit traffic (root).

The nodes are active-standby, or three sharded nodes. Each fault is repaired automatically, or by the operator's steps
in docs/cluster.md; testbed checks the switches' state and the history.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from experiments.bench.cluster.active_standby_faults import ActiveStandbyFaults
from experiments.bench.cluster.fault_scenarios import FaultScenarios
from experiments.bench.cluster.sharded_faults import ShardedFaults
from experiments.bench.cluster.testbed.fault_environment import prepare_environment
from experiments.bench.cluster.testbed.loaded_cluster import (
    ClusterVerdict,
    LoadedCluster,
    document,
    row_of_switches,
    shared_document,
)
from experiments.machine.cluster_process import ETCD_MEMBERS, Cluster, ShardedNodes
from experiments.machine.etcd_process import EtcdProcesses


def run_faults(folder: Path, names: Sequence[str] = (), *, sharded: bool = False) -> ClusterVerdict:
    """Cause every fault once, or those with these names, on active-standby or sharded nodes; return the verdict.

    Raises InvalidValueError without root or a program that is needed, ControllerError if the nodes do not recover.
    """
    with prepare_environment(folder, 3 if sharded else 2) as environment:
        cluster_class, configuration = (ShardedNodes, shared_document) if sharded else (Cluster, document)
        with (
            cluster_class(
                configuration,
                folder,
                environment.places,
                EtcdProcesses(folder, ETCD_MEMBERS, host=environment.network.host),
            ) as nodes,
            row_of_switches(nodes, environment.sources) as fabric,
        ):
            loaded = LoadedCluster(nodes, fabric)
            if isinstance(nodes, ShardedNodes):
                return _run(ShardedFaults(loaded, nodes, environment), names)
            return _run(ActiveStandbyFaults(loaded, environment), names)


def _run(faults: FaultScenarios, names: Sequence[str]) -> ClusterVerdict:
    """Inject the named faults, all without names, one after the other; return what they took and broke."""
    loaded = faults.loaded
    loaded.begin()
    report = loaded.judgement
    for name, fault in faults.faults().items():
        if not names or name in names:
            began_s, problems = time.monotonic(), len(report.problems)
            fault()
            loaded.cluster.wait_ready()
            report.took_s[name] = time.monotonic() - began_s
            print("; ".join([f"{name}: {report.took_s[name]:.1f} s", *report.problems[problems:]]), flush=True)
    return loaded.judge()
