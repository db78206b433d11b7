"""What a running controller decided during a run, taken from its own recording over REST.

Nodes that share switches record nothing: they are asked now and then for the limits in force.
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
    """Return what takes the decisions of a controller, or of nodes of which one can be killed."""
    if isinstance(controller, ShardedNodes):
        return NodesDecisions(controller, fabric.pn(receivers_of(scenario)[0][1]).switch)
    return Decisions(controller)


class Decisions:
    """Records a controller; ``take`` has to be called every ``poll_interval_s`` or so, ``stop`` at the end."""

    poll_interval_s = POLL_INTERVAL_S

    def __init__(self, controller: ControllerProcess) -> None:
        self._controller = controller
        self._records: list[bytes] = []
        self._taken_s = time.monotonic()
        self._ask("start")

    def poll(self) -> None:
        """Take what was recorded, if it is time to."""
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
        """Write the recording to a file; one that is there is replaced."""
        with path.open("wb") as file:
            recording_files.write(file, self._records)

    def notes(self, begun_s: float) -> dict[str, Any]:
        """Return what a run notes of the controller."""
        return {}

    def granted_bps(self, scenario: Scenario, fabric: Fabric, begun_s: float, time_s: FloatArray) -> FloatArray:
        """Return the limits in force at the end of each interval, (intervals, pairs).

        ``begun_s`` is when the traffic began, in the time of CLOCK_MONOTONIC, which the controller counts in too.
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
    """Asks nodes for the limits in force; ``take`` and ``stop`` as in ``Decisions``. ``kill`` ends ``switch``'s owner.

    ``out_of_control_s`` is how long some switch was under nobody's control after that, as far as nodes told when they
    were asked; None before, and if nobody came.
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
        """How often ``take`` should be called: more often while a switch may be under nobody's control."""
        return FAST_POLL_S if self._awaits else POLL_INTERVAL_S

    def poll(self) -> None:
        """Ask for the limits, if it is time to, or whether all switches are under control again."""
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
        """Return the JSON of a REST resource. Raises ControllerError if nobody has taken over after a kill."""
        if self._awaits:
            raise ControllerError(f"after {self._kill['killed']} was killed, not every switch is under control again")
        return self._nodes.get(path)

    def stop(self) -> None:
        """Ask for the last time. Raises ControllerError if nobody has taken over after a kill."""
        self._taken_s = -math.inf
        self.poll()
        self.get("/v1/revision")

    def save(self, path: Path) -> None:
        """Write what was asked for to a file: times in seconds, entries."""
        path.write_text(json.dumps(self._samples))

    def notes(self, begun_s: float) -> dict[str, Any]:
        """Return what a run notes of the kill: when, whom, and the owners of the switches before and after."""
        if self._killed_s is None:
            return {}
        return {
            "killed_at_s": self._killed_s - begun_s,
            "out_of_control_s": self.out_of_control_s,
            "owners_after": None,
            **self._kill,
        }

    def granted_bps(self, scenario: Scenario, fabric: Fabric, begun_s: float, time_s: FloatArray) -> FloatArray:
        """Return the limits in force that were known at the end of each interval, (intervals, pairs)."""
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
    vns, entries = start.vns, start.state.entries
    keys = [(int(vns.vlan_vid[n]), int(vns.dpid[n]), int(vns.port_no[n])) for n in range(len(vns))]
    pairs = zip(entries.sender.tolist(), entries.receiver.tolist(), strict=True)
    return [(keys[sender], keys[receiver]) for sender, receiver in pairs]
