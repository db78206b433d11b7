"""What a running controller decided during a run, taken from its own recording over REST."""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apps.cli.support import recordings
from controller.whatif.recording import Start, decode
from experiments.evaluation.configuration import fields_in_use
from experiments.evaluation.run import FloatArray, RunSettings
from experiments.machine.controller_pair import ControllerPair
from experiments.machine.controller_process import ControllerError, ControllerProcess
from experiments.scenarios.limits import AlgorithmChange, Event
from experiments.scenarios.scenario import BASELINES, Scenario, parse_control
from experiments.scenarios.traffic import VnPair
from topologies.fabric import Fabric

TAKE_EVERY_S = 0.5
Controllers = ControllerProcess | ControllerPair


class Decisions:
    """Records a controller; ``take`` has to be called now and then, ``stop`` at the end.

    ``out_of_control_s`` is how long nobody controlled the switches after ``kill``; None before, and if nobody came.
    """

    def __init__(self, controller: Controllers) -> None:
        self._controller = controller
        self._killed_s: float | None = None
        self.out_of_control_s: float | None = None
        self._records: list[bytes] = []
        self._taken_s = time.monotonic()
        self._ask("start")

    def take(self) -> None:
        """Take what was recorded, if it is time to."""
        if self._killed_s is not None:
            assert isinstance(self._controller, ControllerPair)
            if self._controller.recovered():
                self.out_of_control_s = time.monotonic() - self._killed_s
                self._killed_s = None
                self._ask("start")
            return
        if time.monotonic() - self._taken_s >= TAKE_EVERY_S:
            self._taken_s = time.monotonic()
            self._ask("take")

    def kill(self) -> None:
        """Kill the active controller of a pair, and record the other one as soon as it controls the switches."""
        assert isinstance(self._controller, ControllerPair)
        self._ask("take")
        self._killed_s = time.monotonic()
        self._controller.kill_in_charge()

    def get(self, path: str) -> Any:
        """Return the JSON of a REST resource. Raises ControllerError if nobody has taken over after a kill."""
        self._check()
        return self._controller.get(path)

    def stop(self) -> None:
        """End the recording. Raises ControllerError if nobody has taken over after a kill."""
        self._check()
        self._ask("stop")

    def save(self, path: Path) -> None:
        """Write the recording to a file; one that is there is replaced."""
        path.unlink(missing_ok=True)
        recordings.write(path, self._records)

    def _check(self) -> None:
        if self._killed_s is not None:
            passed_s = time.monotonic() - self._killed_s
            raise ControllerError(
                f"nobody controls the switches {passed_s:.0f} s after the active controller was killed"
            )

    def notes(self, settings: RunSettings) -> dict[str, Any]:
        """Return what a run notes of a kill, if there was one."""
        if settings.kill_at_s is None:
            return {}
        return {"killed_at_s": settings.kill_at_s, "out_of_control_s": self.out_of_control_s}

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
        found = np.searchsorted(np.array(times), time_s[1:], side="right") - 1
        return np.array(rows)[found]

    def _ask(self, action: str) -> None:
        answer = request(self._controller, "/v1/recording", "POST", {"action": action})
        self._records.append(base64.b64decode(answer["records"]))


def request(controller: Controllers, path: str, method: str, body: object) -> Any:
    """Return what the controller answers to a change."""
    asked = urllib.request.Request(
        f"{controller.rest_url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return json.load(answer)


def tell(controller: Controllers, fabric: Fabric, event: Event) -> None:
    """Make the change of an event in a running controller, over REST."""
    if isinstance(event, AlgorithmChange):
        name, parameters = parse_control(event.control)
        if name not in BASELINES:
            body = {"algorithm": name, "parameters": parameters}
            request(controller, f"/v1/vlans/{event.vlan_vid}", "PATCH", body)
        return
    pn = fabric.pn(event.pn)
    algorithm = controller.get(f"/v1/vlans/{event.vlan_vid}")["algorithm"]
    if fields := fields_in_use(event, algorithm):
        request(controller, f"/v1/vns/{event.vlan_vid}/{pn.switch}/{pn.port_no}", "PATCH", fields)


def _places(fabric: Fabric, pairs: Sequence[VnPair]) -> list[tuple[tuple[int, int, int], ...]]:
    """Return both ends of each pair as (VLAN, dpid, port_no)."""
    places = {pn.number: (fabric.switch(pn.switch).dpid, pn.port_no) for pn in fabric.pns}
    return [tuple((vid, *places[number]) for number in ends) for vid, *ends in pairs]


def _ends(start: Start) -> list[tuple[tuple[int, int, int], ...]]:
    vns, entries = start.vns, start.state.entries
    keys = [(int(vns.vlan_vid[n]), int(vns.dpid[n]), int(vns.port_no[n])) for n in range(len(vns))]
    pairs = zip(entries.sender.tolist(), entries.receiver.tolist(), strict=True)
    return [(keys[sender], keys[receiver]) for sender, receiver in pairs]
