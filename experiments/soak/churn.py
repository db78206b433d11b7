"""Does a soak's actions on a running fabric, and notes what they were and how long their transients last."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from experiments.machine.controller_process import ControllerProcess
from experiments.measure.series import Window
from experiments.ovs.fabric import OvsFabric
from experiments.ovs.traffic import FIRST_PORT, Flow, Traffic
from experiments.soak.judging import JudgedLimitChange, Transient
from experiments.soak.schedule import VICTIM_VLAN_INDEX, Action, ActionKind
from topologies.fabric import VirtualNode

CONGESTION_CONTROL = "cubic"
CHURN_PORT = FIRST_PORT + 100
MOST_FLOWS = 6  # at once: two cores carry no more in addition to the judged ones
FLOW_GRACE_S = 8.0
# How long a guarantee may be missed after a change is done; the reasons stand in docs/soak.md.
LIMIT_TRANSIENT_S = 3.0
ALGORITHM_TRANSIENT_S = 2.0
LINK_TRANSIENT_S = 5.0
CONTROLLER_TRANSIENT_S = 3.0


@dataclass
class Diary:
    """What has happened: changes of receive limits by VN's name, transients, lives of the controller, oddities."""

    limits: dict[str, list[JudgedLimitChange]] = field(default_factory=dict)
    transients: list[Transient] = field(default_factory=list)
    lives: list[tuple[float, int]] = field(default_factory=list)
    done: list[tuple[float, Action]] = field(default_factory=list)
    left_out: list[tuple[float, Action, str]] = field(default_factory=list)
    flows_without_report: int = 0

    def count(self, kind: ActionKind) -> int:
        """Return how many actions of a kind were done."""
        return sum(action.kind == kind for _, action in self.done)

    def in_transient(self, at_s: float) -> bool:
        """Whether a time lies in a transient."""
        return any(t.window.start_s <= at_s <= t.window.end_s for t in self.transients)


@dataclass(frozen=True, slots=True)
class _Passing:
    flow: Flow
    traffic: Traffic
    until_s: float


class Churn:
    """``apply`` does one action; ``tick`` ends what has lasted long enough; ``close`` ends all of it."""

    def __init__(self, ovs: OvsFabric, controller: ControllerProcess, folder: Path) -> None:
        self.diary = Diary()
        self._ovs = ovs
        self._controller = controller
        self._folder = folder
        self._flows: list[_Passing] = []
        self._links: list[tuple[str, float, float]] = []  # interface, down since, until
        self._number = 0
        self._do: dict[ActionKind, Callable[[Action], None]] = {
            ActionKind.FLOW: self._start_flow,
            ActionKind.LIMIT: self._set_limit,
            ActionKind.ALGORITHM: self._set_algorithm,
            ActionKind.LINK: self._take_link,
            ActionKind.CONTROLLER: self._restart,
        }

    def begin(self) -> None:
        """Note the first life of the controller and the limits that are in force."""
        self.diary.lives.append((time.monotonic(), self._controller.pid))
        self.note_limits()

    def apply(self, action: Action) -> None:
        """Do an action, now."""
        self._do[action.kind](action)

    def tick(self) -> None:
        """Bring links up and clear flows away whose time is over."""
        now_s = time.monotonic()
        for link in [link for link in self._links if now_s >= link[2]]:
            self._links.remove(link)
            self._set_link(link[0], "up")
            self._transient(ActionKind.LINK, link[1], LINK_TRANSIENT_S)
        for one in [one for one in self._flows if now_s >= one.until_s]:
            self._end_flow(one)

    def close(self) -> None:
        """End all flows and bring all links up."""
        for one in list(self._flows):
            self._end_flow(one)
        for name, _, _ in self._links:
            self._set_link(name, "up")
        self._links.clear()

    def note_limits(self) -> None:
        """Note the receive limits as the controller has them in force."""
        now_s = time.monotonic()
        by_place = {(vn.pn.switch, vn.pn.port_no, vn.vlan_vid): vn.name for vn in self._ovs.fabric.vns()}
        for view in self._controller.get("/v1/vns")["vns"]:
            name = by_place[view["switch"], view["port_no"], view["vlan_vid"]]
            changes = self.diary.limits.setdefault(name, [])
            if not changes or changes[-1].limit_bps != view["receive_limit_bps"]:
                changes.append(JudgedLimitChange(now_s, view["receive_limit_bps"]))

    def _done(self, action: Action) -> None:
        self.diary.done.append((time.monotonic(), action))

    def _leave_out(self, action: Action, reason: str) -> None:
        self.diary.left_out.append((time.monotonic(), action, reason))

    def _transient(self, kind: ActionKind, start_s: float, lasts_s: float, *, ceiling: bool = False) -> None:
        window = Window(start_s, time.monotonic() + lasts_s)
        self.diary.transients.append(Transient(window, str(kind), ceiling=ceiling))

    def _start_flow(self, action: Action) -> None:
        if len(self._flows) >= MOST_FLOWS:
            return self._leave_out(action, f"{MOST_FLOWS} flows run already")
        fabric = self._ovs.fabric
        sender, receiver = (fabric.vn(action.vlan_vid, pn) for pn in (action.sender, action.receiver))
        self._number += 1
        tcp = CONGESTION_CONTROL if action.rate_bps is None else None
        wanted = Flow(sender, receiver, CHURN_PORT + self._number % 1000, tcp, action.rate_bps)
        if any(one.flow.name == wanted.name for one in self._flows):
            return self._leave_out(action, "the same pair talks already")
        traffic = Traffic(self._ovs, self._folder, action.lasts_s + 3 * FLOW_GRACE_S)
        try:
            traffic.serve([wanted])
            traffic.start([wanted], action.lasts_s)
        except BaseException:
            traffic.__exit__()
            raise
        self._flows.append(_Passing(wanted, traffic, time.monotonic() + action.lasts_s + FLOW_GRACE_S))
        return self._done(action)

    def _end_flow(self, one: _Passing) -> None:
        self._flows.remove(one)
        one.traffic.__exit__()
        self.diary.flows_without_report += not one.traffic.report(one.flow.name)

    def _vn_path(self, vn: VirtualNode) -> str:
        return f"/v1/vns/{vn.vlan_vid}/{vn.pn.switch}/{vn.pn.port_no}"

    def _set_limit(self, action: Action) -> None:
        vn = self._ovs.fabric.vn(action.vlan_vid, action.receiver)
        start_s = time.monotonic()
        self._controller.patch(self._vn_path(vn), **{action.what: action.rate_bps})
        self.note_limits()
        if self._is_judged(vn):
            self._transient(ActionKind.LIMIT, start_s, LIMIT_TRANSIENT_S, ceiling=True)
        elif action.what == "receive_limit_bps":
            window = Window(start_s, time.monotonic() + LIMIT_TRANSIENT_S)
            self.diary.transients.append(Transient(window, f"{ActionKind.LIMIT} {vn.name}", floor=False, ceiling=True))
        self._done(action)

    def _is_judged(self, vn: VirtualNode) -> bool:
        fabric = self._ovs.fabric
        return vn == fabric.vn(fabric.vlans[VICTIM_VLAN_INDEX], fabric.pns[-1].number)

    def _set_algorithm(self, action: Action) -> None:
        start_s = time.monotonic()
        self._controller.patch(f"/v1/vlans/{action.vlan_vid}", algorithm=action.what)
        self._transient(ActionKind.ALGORITHM, start_s, ALGORITHM_TRANSIENT_S)
        self._done(action)

    def _take_link(self, action: Action) -> None:
        if self._links:
            return self._leave_out(action, "another link is down")
        now_s = time.monotonic()
        self._set_link(action.what, "down")
        self._links.append((action.what, now_s, now_s + action.lasts_s))
        self._transient(ActionKind.LINK, now_s, action.lasts_s + LINK_TRANSIENT_S)
        return self._done(action)

    def _set_link(self, interface: str, state: str) -> None:
        subprocess.run(["ip", "link", "set", interface, state], check=True, capture_output=True, timeout=10)

    def _restart(self, action: Action) -> None:
        start_s = time.monotonic()
        status = self._controller.end(signal.Signals[action.what])
        expected = 0 if action.what == "SIGTERM" else -signal.SIGKILL
        if status != expected:
            raise RuntimeError(f"after {action.what} the controller ended with status {status}, not {expected}")
        time.sleep(action.lasts_s)
        self._controller.start()
        self._controller.wait_ready({switch.name for switch in self._ovs.fabric.switches})
        self.diary.lives.append((time.monotonic(), self._controller.pid))
        self.note_limits()
        self._transient(ActionKind.CONTROLLER, start_s, CONTROLLER_TRANSIENT_S)
        self._done(action)
