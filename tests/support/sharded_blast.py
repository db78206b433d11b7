"""Three switches shared out over nodes, and three hosts that send more to a fourth one than that may get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest
from support.cluster import ShardedRun, check_one_writer
from support.wire import EVERYBODY, frame

from controller.openflow.match import Match
from experiments.bench.cluster.testbed.switch_logs import MeterLog

EDGES = {1: [11, 12], 2: [21], 3: [31]}
LINKS = [((1, 101), (2, 101)), ((2, 102), (3, 101))]
RECEIVER = (3, 31)
SENDERS = [(1, 11), (1, 12), (2, 21)]
LIMIT_BPS = 400e6


def offer(run: ShardedRun, rate_bps: float) -> None:
    """Let three hosts at two switches send at a rate to one at a third one."""
    for dpid, port_no in [RECEIVER, *SENDERS]:
        run.fabric.inject(dpid, port_no, frame(port_no, EVERYBODY, 10))
    there = Match(vlan_vid=10, eth_dst=RECEIVER[1])
    for dpid in EDGES:
        run.wait(lambda dpid=dpid: any(flow.match == there for flow in run.flows(dpid)), "all know the way")
    with run.fabric.locked():
        for dpid, port_no in SENDERS:
            run.fabric.rates.offer(dpid, port_no, rate_bps, eth_src=port_no, eth_dst=RECEIVER[1], vlan_vid=10)


def blast(run: ShardedRun) -> None:
    """Let them send more than it may get, until the limit is shared."""
    offer(run, 300e6)
    run.wait(lambda: is_shared(run, range(len(run.nodes))), "the limit is shared", 30.0)


def _meters_stand(meters: Iterable[Mapping[int, tuple[int, int]]]) -> bool:
    """Whether no meter stands below its sender's grant, as it does while it takes back what it let through before."""
    rates_bps = [1e3 * rate for of_switch in meters for rate, _ in of_switch.values()]
    return sum(rate_bps == pytest.approx(LIMIT_BPS / 3, rel=0.05) for rate_bps in rates_bps) == len(SENDERS)


def granted_bps(run: ShardedRun, nodes: Sequence[int]) -> dict[int, float]:
    """Return what is granted to each sending port, as its switch's node says."""
    found: dict[int, float] = {}
    for number in nodes:
        for _, port_no in SENDERS:
            entry = run.nodes[number].entry(port_no, RECEIVER[1], 10)
            if entry is not None:
                found[port_no] = float(entry["granted_bps"] or 0)
    return found


def is_shared(run: ShardedRun, nodes: Sequence[int] = (0, 1)) -> bool:
    """Whether the three senders are granted equal parts of the limit."""
    return granted_bps(run, nodes) == pytest.approx({port_no: LIMIT_BPS / 3 for _, port_no in SENDERS}, rel=0.05)


class InstalledMeters:
    """The meters of the switches as they stand, and what is done to them from now on.

    ``most_kbps`` is what they may be set to, by switch and meter. None: none may rise by a fifth, once those of the
    senders stand at their grants.
    """

    def __init__(self, run: ShardedRun, most_kbps: Mapping[tuple[int, int], float] | None = None) -> None:
        self._run = run

        def taken() -> bool:
            with run.fabric.locked():
                self._meters = {dpid: run.meters(dpid) for dpid in EDGES}
                if most_kbps is None and not _meters_stand(self._meters.values()):
                    return False
                self._logs = {dpid: MeterLog(run.fabric.switches[dpid]) for dpid in EDGES}
                return True

        run.wait(taken, "meters stand at the grants", 30.0)
        self._most_kbps = most_kbps or {
            (dpid, number): 1.2 * rate for dpid, meters in self._meters.items() for number, (rate, _) in meters.items()
        }

    def check(self) -> None:
        """No meter was deleted or filled again by a take-over, nobody was freed, and each switch had one writer."""
        with self._run.fabric.locked():
            for dpid, log in self._logs.items():
                assert self._meters[dpid].keys() & log.deleted == set()  # a switch is tested with a meter of its own
                assert not log.filled_again, f"switch {dpid}: filled again {log.filled_again}, of {log.set}"
                most = {number: rate for (at, number), rate in self._most_kbps.items() if at == dpid}
                above = [(number, rate) for number, rate in log.set if number in most and rate > most[number]]
                assert not above, f"switch {dpid}: set above {most}: {above}, of {log.set}"
        check_one_writer(self._run, EDGES)
