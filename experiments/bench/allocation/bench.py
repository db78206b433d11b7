"""``dets bench allocation``: speed of the allocation algorithms.

Everything is measured in one run, on one core. A time is the best of several calls, since longer times measure what
else the machine does. All rows differ, 70 % of the senders fully use their limit and no rate is settled: this is the
case with most work.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from controller.allocation import AllocationInput, native
from controller.allocation.max_min import FlowPaths, max_min
from controller.policy.per_receiver import PerReceiverPolicy
from controller.policy.registry import policies
from experiments.bench.harness import Target, best_s, finished, resident_bytes

SIZES = (1_000, 10_000, 100_000, 1_000_000)
SENDERS = (2, 10, 100, 1_000)
NOMINAL_SENDERS = 100
TARGET_ENTRIES_PER_S = 50e6
TARGET_CALL_US = 1.0
TARGET_FLATNESS = 1.5
TARGET_BYTES_PER_PAIR = 200
TARGET_STAR_MS = {1_000: 55.0, 10_000: 100.0}
algorithms = {name: policy() for name, policy in policies.items() if issubclass(policy, PerReceiverPolicy)}
STAR_FLOWS, LINK_BPS = 100_000, 1e9


def requests(pairs: int, senders: int, seed: int = 1) -> AllocationInput:
    """Return a random table of about ``pairs`` pairs: ``senders`` of each receiver, grants around 10 Mb/s.

    Every receiver receives exactly its limit. 70 % of the senders fully use their grants.
    """
    rng = np.random.default_rng(seed)
    receivers = max(pairs // senders, 1)
    pairs = receivers * senders
    granted_bps = rng.exponential(1e7, pairs)
    fully_used = rng.random(pairs) < 0.7
    return AllocationInput(
        offsets=np.arange(0, pairs + 1, senders),
        limit_bps=np.full(receivers, 1e7 * senders),
        received_bps=np.full(receivers, 1e7 * senders),
        measured_bps=granted_bps * np.where(fully_used, rng.uniform(0.95, 1.0, pairs), rng.uniform(0.0, 0.9, pairs)),
        granted_bps=granted_bps,
        available_bps=granted_bps * rng.uniform(1.0, 4.0, pairs),
        drops=fully_used,
        weight=rng.uniform(0.5, 2.0, pairs),
        active=np.ones(pairs, dtype=np.bool_),
    )


def allocation_call(algorithm: PerReceiverPolicy, table: AllocationInput) -> Callable[[], object]:
    """Return a call of the algorithm on the table, with a state that is past its start."""
    _, state = algorithm.allocate(table, algorithm.first_state(table.receivers))
    return lambda: algorithm.allocate(table, state)


def call_us(budget_s: float) -> dict[str, float]:
    """Return, per algorithm, the fixed cost of a call: that of a table of one pair, us."""
    table, repeats = requests(1, 1), 100

    def calls(algorithm: PerReceiverPolicy) -> Callable[[], object]:
        call = allocation_call(algorithm, table)
        return lambda: [call() for _ in range(repeats)]

    return {name: best_s(calls(function), budget_s) / repeats * 1e6 for name, function in algorithms.items()}


def bench_receivers(sizes: Sequence[int], senders: Sequence[int], budget_s: float) -> list[dict[str, Any]]:
    """Return a row per algorithm, number of pairs and number of senders per receiver.

    A call runs over so many tables that all sizes have as many pairs as the largest, all different. A small table that
    is allocated repeatedly would stay in the caches, and its branches would be predicted.
    """
    rows = []
    for pairs in sizes:
        for senders_each in senders:
            tables = [requests(pairs, senders_each, seed) for seed in range(max(sizes) // pairs)]
            for name in algorithms:
                best = best_s(_run_over(tables, algorithms[name]), budget_s)
                total_pairs = sum(table.entries for table in tables)
                rows.append(
                    {
                        "algorithm": name,
                        "pairs": tables[0].entries,
                        "senders_per_receiver": senders_each,
                        "ns_per_pair": best / total_pairs * 1e9,
                        "pairs_per_s": total_pairs / best,
                    }
                )
    return rows


def _run_over(tables: Sequence[AllocationInput], algorithm: PerReceiverPolicy) -> Callable[[], object]:
    """Return a call that runs the algorithm over all tables."""
    calls = [allocation_call(algorithm, table) for table in tables]

    def run() -> None:
        for call in calls:
            call()

    return run


def bytes_per_pair(pairs: int) -> float | None:
    """Return the peak memory per pair, in bytes, of a table and of all ``algorithms`` on it; None if Linux hides it."""
    reset = Path("/proc/self/clear_refs")
    try:
        reset.write_text("5")  # sets the peak to what is resident now (proc(5))
        before = resident_bytes(os.getpid())
        table = requests(pairs, NOMINAL_SENDERS)
        reset.write_text("5")  # memory used to make the random table does not count
    except (OSError, StopIteration):
        return None
    for name in algorithms:
        allocation_call(algorithms[name], table)()
    return (resident_bytes(os.getpid(), "VmHWM") - before) / pairs


def bench_star(hosts: int, budget_s: float) -> dict[str, Any]:
    """Return the time of max-min in ms on random flows between hosts at one switch, in at most ``budget_s`` seconds.

    Constraints are the hosts' uplinks, then their downlinks.
    """
    rng = np.random.default_rng(1)
    sender = rng.integers(0, hosts, STAR_FLOWS)
    receiver = (sender + rng.integers(1, hosts, STAR_FLOWS)) % hosts
    uses = np.column_stack([sender, hosts + receiver]).ravel()
    paths = FlowPaths(np.arange(0, 2 * STAR_FLOWS + 1, 2), uses, 2 * hosts)
    capacity_bps = np.full(2 * hosts, LINK_BPS)
    greedy = np.full(STAR_FLOWS, np.inf), np.ones(STAR_FLOWS)
    return {"hosts": hosts, "ms": best_s(lambda: max_min(paths, capacity_bps, *greedy), budget_s, 20) * 1e3}


def targets(
    receivers: list[dict[str, Any]], calls: dict[str, float], fabrics: list[dict[str, Any]], memory: float | None
) -> list[Target]:
    """Return the targets with the measured values."""
    rows = []
    for name in algorithms:
        own_rows = [row for row in receivers if row["algorithm"] == name]
        nominal_rows = [row for row in own_rows if row["senders_per_receiver"] == NOMINAL_SENDERS]
        slowest_usual = min(row["pairs_per_s"] for row in nominal_rows)
        slowest = min(own_rows, key=lambda row: row["pairs_per_s"])
        case = f"{slowest['pairs']} pairs, {slowest['senders_per_receiver']} per receiver"
        # In ns per pair, without the fixed cost of a call (``calls`` is in us).
        costs = [row["ns_per_pair"] - calls[name] * 1e3 / row["pairs"] for row in nominal_rows]
        speed, flatness = TARGET_ENTRIES_PER_S, max(costs) / min(costs)
        rows += [
            Target(f"{name}, {NOMINAL_SENDERS} senders per receiver", slowest_usual, "pairs/s", speed, least=True),
            Target(f"{name}, slowest size ({case})", slowest["pairs_per_s"], "pairs/s", speed, least=True),
            Target(f"{name}, one call", calls[name], "us", TARGET_CALL_US),
            Target(f"{name}, one more pair, most expensive to cheapest size", flatness, "ratio", TARGET_FLATNESS),
        ]
    if memory is not None:
        rows.append(Target("memory", memory, "bytes/pair", TARGET_BYTES_PER_PAIR))
    for row in fabrics:
        label = f"max-min, star of {row['hosts']} hosts, {STAR_FLOWS} flows"
        rows.append(Target(label, row["ms"], "ms", TARGET_STAR_MS[row["hosts"]]))
    return rows


def run(quick: Annotated[bool, "Fewer and smaller cases."] = False) -> dict[str, Any]:
    """Speed of the rate allocation algorithms, pairs per second."""
    sizes, senders = (SIZES[:2], (10, NOMINAL_SENDERS)) if quick else (SIZES, SENDERS)
    budget_s = 0.02 if quick else 0.15
    memory = bytes_per_pair(sizes[-1])
    receivers = bench_receivers(sizes, senders, budget_s)
    calls = call_us(budget_s)
    fabrics = [bench_star(hosts, budget_s * 4) for hosts in TARGET_STAR_MS]
    figures = {
        "call_us": calls,
        "receivers": receivers,
        "bytes_per_pair": memory,
        "max_min": fabrics,
    }
    form = "compiled" if native.library is not None else "numpy"
    settings = {"kernel": form, "python": platform.python_version(), "numpy": np.__version__, "quick": quick}
    return finished("allocation", figures, targets(receivers, calls, fabrics, memory), settings)
