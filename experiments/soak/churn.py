"""Actions of a soak on a running fabric; the ledger records each action, and the time after it that is not judged."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from experiments.machine.controller_process import ControllerProcess
from experiments.ovs.fabric import OvsFabric
from experiments.ovs.traffic import FIRST_PORT, Flow, Traffic
from experiments.soak.ledger import Ledger, Transient
from experiments.soak.schedule import Action, ActionKind

CONGESTION_CONTROL = "cubic"
CHURN_PORT = FIRST_PORT + 100
MAX_FLOWS = 6  # at once: two cores carry no more besides the judged flows
FLOW_GRACE_S = 8.0  # from a flow's last data until its processes are ended
# Allowed time of a violated guarantee after a change; docs/experiments.md has the reasons.
LIMIT_TRANSIENT_S = 3.0
ALGORITHM_TRANSIENT_S = 2.0
LINK_TRANSIENT_S = 5.0
CONTROLLER_TRANSIENT_S = 3.0


@dataclass(frozen=True, slots=True)
class TemporaryFlow:
    """A temporary flow."""

    flow: Flow
    traffic: Traffic
    until_s: float


class Churn:
    """``apply`` performs one action; ``tick`` ends expired flows and link failures; ``close`` ends all."""

    def __init__(self, ledger: Ledger, ovs: OvsFabric, controller: ControllerProcess, folder: Path) -> None:
        self._ledger, self._ovs, self._controller, self._folder = ledger, ovs, controller, folder
        self._flows: list[TemporaryFlow] = []
        self._link: tuple[str, float, float] | None = None  # interface, down since, until
        self._number = 0
        # Each returns whether it was done: excessive actions are skipped.
        self._do: dict[ActionKind, Callable[[Action], bool]] = {
            ActionKind.FLOW: self._start_flow,
            ActionKind.LIMIT: self._set_limit,
            ActionKind.ALGORITHM: self._set_algorithm,
            ActionKind.LINK: self._fail_link,
            ActionKind.CONTROLLER: self._restart,
        }

    def apply(self, action: Action) -> None:
        """Perform an action now."""
        if self._do[action.kind](action):
            self._ledger.done.append((time.monotonic(), action))

    def tick(self) -> None:
        """Bring the link up and end flows if their time is over."""
        now_s = time.monotonic()
        if self._link is not None and now_s >= self._link[2]:
            self._restore_link()
        for ended in [flow for flow in self._flows if now_s >= flow.until_s]:
            self._flows.remove(ended)
            ended.traffic.__exit__()

    def close(self) -> None:
        """End all flows and bring the link up."""
        for flow in self._flows:
            flow.traffic.__exit__()
        self._flows.clear()
        self._restore_link()

    def note_start(self) -> None:
        """Record the controller's start and the effective receive limits."""
        self._ledger.starts_s.append(time.monotonic())
        self._note_limits()

    def _note_limits(self) -> None:
        """Record the effective receive limits of all VNs."""
        name_of = {(vn.pn.switch, vn.pn.port_no, vn.vlan_vid): vn.name for vn in self._ovs.fabric.vns()}
        for view in self._controller.get("/v1/vns")["vns"]:
            name = name_of[view["switch"], view["port_no"], view["vlan_vid"]]
            self._ledger.note_limit(name, time.monotonic(), view["receive_limit_bps"])

    def _transient(
        self, start_s: float, lasts_s: float, vn: str | None = None, *, floor: bool = True, ceiling: bool = False
    ) -> None:
        """Record a transient from ``start_s`` until ``lasts_s`` from now; the other arguments are as in Transient."""
        self._ledger.transients.append(Transient(start_s, time.monotonic() + lasts_s, vn, floor, ceiling))

    def _start_flow(self, action: Action) -> bool:
        """Start a flow for some seconds; return False if there are too many, or one of its name."""
        fabric = self._ovs.fabric
        sender, receiver = (fabric.vn(action.vlan_vid, pn) for pn in (action.sender, action.receiver))
        self._number += 1
        tcp = CONGESTION_CONTROL if action.rate_bps is None else None
        flow = Flow(sender, receiver, CHURN_PORT + self._number % 1000, tcp, action.rate_bps)
        if len(self._flows) >= MAX_FLOWS or any(running.flow.name == flow.name for running in self._flows):
            return False
        traffic = Traffic(self._ovs, self._folder, action.lasts_s + 3 * FLOW_GRACE_S)
        self._flows.append(TemporaryFlow(flow, traffic, time.monotonic() + action.lasts_s + FLOW_GRACE_S))
        traffic.serve([flow])
        traffic.start([flow], action.lasts_s)
        return True

    def _set_limit(self, action: Action) -> bool:
        """Set a limit of a VN over REST; return True.

        A change at the judged VN may violate floor and ceiling for a time, of all VNs; a receive limit of another VN
        may violate its own ceiling alone, and a send limit of another VN nothing.
        """
        vn, judged = self._ovs.fabric.vn(action.vlan_vid, action.receiver), self._ledger.judged
        start_s = time.monotonic()
        path = f"/v1/vns/{vn.vlan_vid}/{vn.pn.switch}/{vn.pn.port_no}"
        self._controller.patch(path, **{action.what: action.rate_bps})
        self._note_limits()
        if vn == judged:
            self._transient(start_s, LIMIT_TRANSIENT_S, ceiling=True)
        elif action.what == "receive_limit_bps":
            self._transient(start_s, LIMIT_TRANSIENT_S, vn.name, floor=False, ceiling=True)
        return True

    def _set_algorithm(self, action: Action) -> bool:
        """Set the algorithm of a VLAN over REST; return True."""
        start_s = time.monotonic()
        self._controller.patch(f"/v1/vlans/{action.vlan_vid}", algorithm=action.what)
        self._transient(start_s, ALGORITHM_TRANSIENT_S)
        return True

    def _fail_link(self, action: Action) -> bool:
        """Take a link down for some seconds; return False if a link is down already."""
        if self._link is not None:
            return False
        now_s = time.monotonic()
        _set_link(action.what, "down")
        self._link = (action.what, now_s, now_s + action.lasts_s)
        self._transient(now_s, action.lasts_s + LINK_TRANSIENT_S)
        return True

    def _restore_link(self) -> None:
        """Bring the link up again, if one is down."""
        if self._link is not None:
            interface, since_s, _ = self._link
            _set_link(interface, "up")
            self._link = None
            self._transient(since_s, LINK_TRANSIENT_S)

    def _restart(self, action: Action) -> bool:
        """Stop or kill the controller, wait, and start the controller again; return True."""
        start_s = time.monotonic()
        status = self._controller.end(signal.Signals[action.what])
        expected = 0 if action.what == "SIGTERM" else -signal.SIGKILL
        if status != expected:
            raise RuntimeError(f"after {action.what} the controller ended with status {status}, not {expected}")
        time.sleep(action.lasts_s)
        self._controller.start()
        self._controller.wait_ready({switch.name for switch in self._ovs.fabric.switches})
        self.note_start()
        self._transient(start_s, CONTROLLER_TRANSIENT_S)
        return True


def _set_link(interface: str, state: str) -> None:
    """Set an interface up or down."""
    subprocess.run(["ip", "link", "set", interface, state], check=True, capture_output=True, timeout=10)
