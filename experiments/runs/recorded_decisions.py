"""The decisions of a running controller during a run, from its own recording over REST.

Sharded nodes record nothing: they are polled for the effective limits.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apps.cli.support import recording_files
from controller.whatif.recording import Start, decode
from experiments.machine.cluster_process import ShardedNodes
from experiments.machine.controller_process import ControllerProcess
from experiments.machine.process_runner import ControllerError
from experiments.runs.run_configuration import fields_in_use
from experiments.runs.scenario_run import FloatArray, receivers_of
from experiments.scenarios.limits import AlgorithmChange, Event
from experiments.scenarios.scenario import BASELINES, Scenario, parse_control
from experiments.scenarios.traffic import VnPair
from topologies.fabric import Fabric

TAKE_EVERY_S, POLL_INTERVAL_S, FAST_POLL_S = 0.5, 0.25, 0.05
Controllers = ControllerProcess | ShardedNodes


def decisions_of(controller: Controllers, scenario: Scenario, fabric: Fabric) -> Decisions | NodesDecisions:
    """Return the recorder of a controller's decisions, or of those of nodes one of which can be killed."""
    if isinstance(controller, ShardedNodes):
        return NodesDecisions(controller, fabric.pn(receivers_of(scenario)[0][1]).switch)
    return Decisions(controller)


class Decisions:
    """Records a controller; ``poll`` must be called about every ``poll_interval_s``, ``stop`` at the end."""

    poll_interval_s = POLL_INTERVAL_S

    def __init__(self, controller: ControllerProcess) -> None:
        self._controller = controller
        self._records: list[bytes] = []
        self._taken_s = time.monotonic()
        self._ask("start")

    def poll(self) -> None:
        """Fetch the recording so far, if due."""
        if time.monotonic() - self._taken_s >= TAKE_EVERY_S:
            self._taken_s = time.monotonic()
            self._ask("take")

    def get(self, path: str) -> Any:
        """Return the JSON of a REST resource."""
        return self._controller.get(path)

    def stop(self) -> None:
        """End the recording."""
        self._ask("stop")

    def save(self, path: Path) -> None:
        """Write the recording to a file, replacing it."""
        with path.open("wb") as file:
            recording_files.write(file, self._records)

    def notes(self, begun_s: float) -> dict[str, Any]:
        """Return a run's notes on the controller."""
        return {}

    def granted_bps(self, scenario: Scenario, fabric: Fabric, begun_s: float, time_s: FloatArray) -> FloatArray:
        """Return the effective limits at the end of each interval, (intervals, pairs).

        ``begun_s`` is the start of the traffic on CLOCK_MONOTONIC, which the controller uses too.
        """
        wanted = {ends: n for n, ends in enumerate(_places(fabric, scenario.pairs))}
        rows: list[FloatArray] = [np.full(len(wanted), np.inf)]
        times = [-np.inf]
        columns: list[int | None] = []
        for record in (one for data in self._records for one in decode(data)):
            if isinstance(record, Start):
                columns = [wanted.get(ends) for ends in _ends(record)]
                continue
            row = np.full(len(wanted), np.inf)
            for column, limit_bps in zip(columns, record.limit_bps.tolist(), strict=True):
                if column is not None:
                    row[column] = limit_bps
            rows.append(row)
            times.append(record.now_s - begun_s)
        return _at_ends(times, rows, time_s)

    def _ask(self, action: str) -> None:
        answer = self._controller.call("/v1/recording", "POST", {"action": action})
        self._records.append(base64.b64decode(answer["records"]))


class NodesDecisions:
    """Polls nodes for the effective limits; ``poll``, ``stop`` as in ``Decisions``. ``kill`` ends ``switch``'s owner.

    ``out_of_control_s`` is how long some switch had no controlling node after the kill, as polled; None before the
    kill, and without a takeover.
    """

    def __init__(self, nodes: ShardedNodes, switch: str) -> None:
        self._nodes, self._switch = nodes, switch
        self._taken_s = -math.inf
        self._samples: list[tuple[float, list[dict[str, Any]]]] = []
        self._killed_s: float | None = None
        self._kill: dict[str, Any] = {}
        self.out_of_control_s: float | None = None
        self.poll()

    @property
    def poll_interval_s(self) -> float:
        """The interval of ``poll``: shorter while a switch may have no controlling node."""
        return FAST_POLL_S if self._awaits else POLL_INTERVAL_S

    def poll(self) -> None:
        """Poll the limits, if due, or whether all switches are under control again."""
        if self._awaits:
            if not self._nodes.check_recovered():
                return
            assert self._killed_s is not None
            self.out_of_control_s = time.monotonic() - self._killed_s
            self._kill["owners_after"] = self._nodes.owners()
        if time.monotonic() - self._taken_s >= TAKE_EVERY_S:
            self._taken_s = time.monotonic()
            answer = self._nodes.get("/v1/pairs")
            if "unreachable_nodes" not in answer:
                self._samples.append((self._taken_s, answer["pairs"]))

    def kill(self) -> None:
        """Kill the switch's owner."""
        owners = self._nodes.owners()
        self._killed_s = time.monotonic()
        self._kill = {"killed": self._nodes.kill_owner(self._switch), "owners": owners}

    def get(self, path: str) -> Any:
        """Return the JSON of a REST resource. Raises ControllerError without a takeover after a kill."""
        if self._awaits:
            raise ControllerError(f"after {self._kill['killed']} was killed, not every switch is under control again")
        return self._nodes.get(path)

    def stop(self) -> None:
        """Poll for the last time. Raises ControllerError without a takeover after a kill."""
        self._taken_s = -math.inf
        self.poll()
        self.get("/v1/revision")

    def save(self, path: Path) -> None:
        """Write the polled values to a file: times in seconds, pairs."""
        path.write_text(json.dumps(self._samples))

    def notes(self, begun_s: float) -> dict[str, Any]:
        """Return a run's notes on the kill: its time, the node, and the owners of the switches before and after."""
        if self._killed_s is None:
            return {}
        return {
            "killed_at_s": self._killed_s - begun_s,
            "out_of_control_s": self.out_of_control_s,
            "owners_after": None,
            **self._kill,
        }

    def granted_bps(self, scenario: Scenario, fabric: Fabric, begun_s: float, time_s: FloatArray) -> FloatArray:
        """Return the last polled effective limits at the end of each interval, (intervals, pairs)."""
        wanted = {ends: n for n, ends in enumerate(_places(fabric, scenario.pairs))}
        rows = [np.full(len(wanted), np.inf)]
        for _, entries in self._samples:
            row = np.full(len(wanted), np.inf)
            for one in entries:
                ends = tuple(
                    (one["vlan_vid"], int(place["dpid"], 16), place["port_no"])
                    for place in (one["sender"], one["receiver"])
                )
                if ends in wanted:
                    row[wanted[ends]] = one["limit_bps"]
            rows.append(row)
        return _at_ends([-np.inf, *(at_s - begun_s for at_s, _ in self._samples)], rows, time_s)

    @property
    def _awaits(self) -> bool:
        return self._killed_s is not None and self.out_of_control_s is None


def _at_ends(times_s: Sequence[float], rows: Sequence[FloatArray], time_s: FloatArray) -> FloatArray:
    """Return the last row known at the end of each interval."""
    return np.array(rows)[np.searchsorted(np.array(times_s), time_s[1:], side="right") - 1]


def apply_event(controller: Controllers, fabric: Fabric, event: Event) -> None:
    """Make the change of an event in a running controller, over REST."""
    if isinstance(event, AlgorithmChange):
        name, parameters = parse_control(event.control)
        if name not in BASELINES:
            controller.patch(f"/v1/vlans/{event.vlan_vid}", algorithm=name, parameters=parameters)
        return
    pn = fabric.pn(event.pn)
    algorithm = controller.get(f"/v1/vlans/{event.vlan_vid}")["algorithm"]
    if fields := fields_in_use(event, algorithm):
        controller.patch(f"/v1/vns/{event.vlan_vid}/{pn.switch}/{pn.port_no}", **fields)


def _places(fabric: Fabric, pairs: Sequence[VnPair]) -> list[tuple[tuple[int, int, int], ...]]:
    """Return both ends of each pair as (VLAN, dpid, port_no)."""
    places = {pn.number: (fabric.switch(pn.switch).dpid, pn.port_no) for pn in fabric.pns}
    return [tuple((vid, *places[number]) for number in ends) for vid, *ends in pairs]


def _ends(start: Start) -> list[tuple[tuple[int, int, int], ...]]:
    """Return the pairs as ((VLAN id, dpid, port) of the sender, of the receiver)."""
    vns, entries = start.vns, start.state.entries
    keys = [(int(vns.vlan_vid[n]), int(vns.dpid[n]), int(vns.port_no[n])) for n in range(len(vns))]
    pairs = zip(entries.sender.tolist(), entries.receiver.tolist(), strict=True)
    return [(keys[sender], keys[receiver]) for sender, receiver in pairs]
