"""Faults of an active-standby deployment: the victim is the active node. Checks when the standby takes over."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from experiments.bench.cluster.fault_scenarios import FaultScenarios


class ActiveStandbyFaults(FaultScenarios):
    """Faults of two nodes, one of which controls all switches."""

    def faults(self) -> dict[str, Callable[[], None]]:  # noqa: D102
        return {
            **self.without_etcd(),
            "cut off from switches": partial(self._without_switches, True, True),
            "nothing from switches": partial(self._without_switches, True, False),
            "nothing to switches": partial(self._without_switches, False, True),
            "cut off from everything": self.without_link,
            "standby cut off from everything": self._standby_without_link,
            **self.disks_and_clocks(),
        }

    def ready(self) -> int:
        """Wait until one node is active and the other can take over; return the active node."""
        self.nodes.wait_ready()
        active = self.nodes.wait_controls()
        self._ends_before, self._generation_before = self._ends(active), self._generation(active)
        return active

    def others_control(self, victim: int) -> bool:  # noqa: D102
        return self.nodes.controls(1 - victim)

    def is_unchanged(self, victim: int) -> bool:
        """Whether the victim has been active under the same generation throughout, and the other node is not active."""
        victim_unchanged = (
            self._generation(victim) == self._generation_before and self._ends(victim) == self._ends_before
        )
        return victim_unchanged and self.nodes.role(1 - victim) != "active"

    def _without_switches(self, incoming: bool, outgoing: bool) -> None:
        """Cut the active node off from all switches, in one direction or both."""
        active = self.ready()
        port = self.nodes.openflow[active][1]
        with self.cut(active, f"tcp dport {port}" if incoming else "", f"tcp sport {port}" if outgoing else ""):
            self.nodes.wait(lambda: self._switches(active) == {"disconnected"}, "the switches are disconnected")
            self.assert_stable(active)

    def _standby_without_link(self) -> None:
        """Pull the cable of the standby: the active node must stay active."""
        active = self.ready()
        with self.unplugged(1 - active):
            self.assert_stable(active)

    def _ends(self, number: int) -> int:
        """Return how often a node has logged that it is no longer active."""
        return self.nodes.nodes[number].log_path.read_text().count("is no longer active")

    def _generation(self, number: int) -> int:
        """Return the generation id under which a node is active; 0 if it is not active."""
        return int(self.nodes.nodes[number].health()["cluster"]["generation"] or 0)

    def _switches(self, number: int) -> set[str]:
        """Return the set of states that a node reports of its switches."""
        return set(self.nodes.nodes[number].health().get("switches", {}).values())
