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

FETCH_INTERVAL_S, POLL_INTERVAL_S, FAST_POLL_S = 0.5, 0.25, 0.05
Controllers = ControllerProcess | ShardedNodes


def decisions_of(controller: Controllers, scenario: Scenario, fabric: Fabric) -> Decisions | NodesDecisions:
    """Return the recorder of a controller's decisions, or of those of nodes one of which can be killed."""
    if isinstance(controller, ShardedNodes):
        return NodesDecisions(controller, fabric.pn(receivers_of(scenario)[0][1]).switch)
    return Decisions(controller)


class Decisions:
    """Records the decisions of a controller through its REST API.

    ``poll`` must be called about every ``poll_interval_s``, ``stop`` at the end.
    """

    poll_interval_s = POLL_INTERVAL_S

    def __init__(self, controller: ControllerProcess) -> None:
        self._controller = controller
        self._records: list[bytes] = []
        self._fetched_s = time.monotonic()
        self._ask("start")

    def poll(self) -> None:
        """Fetch the recording so far, if due."""
        if time.monotonic() - self._fetched_s >= FETCH_INTERVAL_S:
            self._fetched_s = time.monotonic()
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
        column_of = {ends: number for number, ends in enumerate(_pair_ends(fabric, scenario.pairs))}
        rows: list[FloatArray] = [np.full(len(column_of), np.inf)]
        times = [-np.inf]
        columns: list[int | None] = []
        for record in (part for data in self._records for part in decode(data)):
            if isinstance(record, Start):
                columns = [column_of.get(ends) for ends in _recorded_ends(record)]
                continue
            row = np.full(len(column_of), np.inf)
            for column, limit_bps in zip(columns, record.limit_bps.tolist(), strict=True):
                if column is not None:
                    row[column] = limit_bps
            rows.append(row)
            times.append(record.now_s - begun_s)
        return _last_before_ends(times, rows, time_s)

    def _ask(self, action: str) -> None:
        """Send an action about the recording, and keep the records of the reply."""
        answer = self._controller.call("/v1/recording", "POST", {"action": action})
        self._records.append(base64.b64decode(answer["records"]))


class NodesDecisions:
    """Polls nodes for the effective limits; ``poll``, ``stop`` as in ``Decisions``. ``kill`` ends ``switch``'s owner.

    ``out_of_control_s`` is how long some switch had no controlling node after the kill, as polled; None before the
    kill, and without a takeover.
    """

    def __init__(self, nodes: ShardedNodes, switch: str) -> None:
        self._nodes, self._switch = nodes, switch
        self._fetched_s = -math.inf
        self._samples: list[tuple[float, list[dict[str, Any]]]] = []
        self._killed_s: float | None = None
        self._kill: dict[str, Any] = {}
        self.out_of_control_s: float | None = None
        self.poll()

    @property
    def poll_interval_s(self) -> float:
        """The interval of ``poll``: shorter while a switch may have no controlling node."""
        return FAST_POLL_S if self._awaits_takeover else POLL_INTERVAL_S

    def poll(self) -> None:
        """Poll the limits, if due, or whether all switches are under control again."""
        if self._awaits_takeover:
            if not self._nodes.check_recovered():
                return
            assert self._killed_s is not None
            self.out_of_control_s = time.monotonic() - self._killed_s
            self._kill["owners_after"] = self._nodes.owners()
        if time.monotonic() - self._fetched_s >= FETCH_INTERVAL_S:
            self._fetched_s = time.monotonic()
            answer = self._nodes.get("/v1/pairs")
            if "unreachable_nodes" not in answer:
                self._samples.append((self._fetched_s, answer["pairs"]))

    def kill(self) -> None:
        """Kill the switch's owner."""
        owners = self._nodes.owners()
        self._killed_s = time.monotonic()
        self._kill = {"killed": self._nodes.kill_owner(self._switch), "owners": owners}

    def get(self, path: str) -> Any:
        """Return the JSON of a REST resource. Raises ControllerError without a takeover after a kill."""
        if self._awaits_takeover:
            raise ControllerError(f"after {self._kill['killed']} was killed, not every switch is under control again")
        return self._nodes.get(path)

    def stop(self) -> None:
        """Poll for the last time. Raises ControllerError without a takeover after a kill."""
        self._fetched_s = -math.inf
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
            "owners_after": None,  # unless a takeover has set it in ``_kill``
            **self._kill,
        }

    def granted_bps(self, scenario: Scenario, fabric: Fabric, begun_s: float, time_s: FloatArray) -> FloatArray:
        """Return the last polled effective limits at the end of each interval, (intervals, pairs)."""
        column_of = {ends: number for number, ends in enumerate(_pair_ends(fabric, scenario.pairs))}
        rows = [np.full(len(column_of), np.inf)]
        for _, entries in self._samples:
            row = np.full(len(column_of), np.inf)
            for pair in entries:
                ends = tuple(
                    (pair["vlan_vid"], int(location["dpid"], 16), location["port_no"])
                    for location in (pair["sender"], pair["receiver"])
                )
                if ends in column_of:
                    row[column_of[ends]] = pair["limit_bps"]
            rows.append(row)
        return _last_before_ends([-np.inf, *(at_s - begun_s for at_s, _ in self._samples)], rows, time_s)

    @property
    def _awaits_takeover(self) -> bool:
        """Whether some switch may still have no controlling node after the kill."""
        return self._killed_s is not None and self.out_of_control_s is None


def _last_before_ends(times_s: Sequence[float], rows: Sequence[FloatArray], time_s: FloatArray) -> FloatArray:
    """Return for each interval the last of ``rows`` known at its end, (intervals, pairs).

    ``times_s`` (rows,) ascend.
    """
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


def _pair_ends(fabric: Fabric, pairs: Sequence[VnPair]) -> list[tuple[tuple[int, int, int], ...]]:
    """Return both ends of each pair, (sender, receiver), each as (VLAN, dpid, port_no)."""
    locations = {pn.number: (fabric.switch(pn.switch).dpid, pn.port_no) for pn in fabric.pns}
    return [tuple((vid, *locations[number]) for number in ends) for vid, *ends in pairs]


def _recorded_ends(start: Start) -> list[tuple[tuple[int, int, int], ...]]:
    """Return both ends of each recorded pair, (sender, receiver), each as (VLAN, dpid, port_no)."""
    vns, entries = start.vns, start.state.entries
    locations = [(int(vns.vlan_vid[row]), int(vns.dpid[row]), int(vns.port_no[row])) for row in range(len(vns))]
    pairs = zip(entries.sender.tolist(), entries.receiver.tolist(), strict=True)
    return [(locations[sender], locations[receiver]) for sender, receiver in pairs]
