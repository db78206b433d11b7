"""The metrics of a controller whose switches, tasks and requests have something to tell."""

from __future__ import annotations

from types import SimpleNamespace

from apps.metrics import Metrics
from apps.reload import Reloads
from apps.runtime.connection.connection_limits import ConnectionCounts, EvictionReason, MessageCounts
from apps.runtime.loop_stats import LoopStats
from apps.runtime.supervisor import LoopState, Supervisor
from controller.central.controller import CentralController
from controller.monitoring.observer import Observer


def metrics_of(central: CentralController) -> Metrics:
    """Return the metrics of a controller after 40 intervals in which its meters are as they are now."""
    shell = SimpleNamespace(
        central=central,
        times=LoopStats(0.055),
        counts={1: MessageCounts(sent=5, received=4, errors=1)},
        unmanaged={"somebody"},
        is_ready=lambda dpid: True,
    )
    queues, loops, peers = (
        SimpleNamespace(applied=3, failed=1),
        Supervisor(float, print, print, print),
        ConnectionCounts(),
    )
    loops.loops["audits"] = LoopState(failures=2)
    peers.cut_off[EvictionReason.UNREAD] += 4
    peers.dropped["type"] += 7
    observer = Observer(central)
    for step in range(40):
        observer.on_round_end(100.0 + 0.055 * step)
    metrics = Metrics(shell, loops, queues, peers, observer, Reloads(2, 1, 1.8e9, "abc"))
    metrics.requests.update({"200": 7, "429": 2})
    return metrics
