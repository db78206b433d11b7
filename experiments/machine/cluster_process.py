"""Two or three real controllers of one fabric and their etcd, for the time of one experiment (Debian's etcd-server)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

from experiments.machine.controller_process import ControllerProcess, ProcessLocation, free_ports
from experiments.machine.etcd_process import EtcdProcesses
from experiments.machine.process_runner import ControllerError, wait_until

ETCD_MEMBERS = 3
START_S = 120.0
# Returns the configuration of a node for its OpenFlow port and its REST port.
Document = Callable[[int, int], Mapping[str, Any]]


def name_of(number: int) -> str:
    """Return the name of a node in configurations: ``n1`` is node 0."""
    return f"n{number + 1}"


def number_of(name: str) -> int:
    """Return the number of the node with a name."""
    return int(name.removeprefix("n")) - 1


def kill_machine_of(pid: int) -> None:
    """Kill a node and its lease watchdog, as if their machine had died."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for process_id in (*map(int, children), pid):
        os.kill(process_id, signal.SIGKILL)


class Cluster:
    """The nodes of a cluster and their etcd, running inside a ``with``; files go to ``folder``.

    At first the first node is active. ``document`` returns a node's configuration for its OpenFlow port and its REST
    port. ``openflow`` are the nodes' addresses for switches. Nodes are numbered from 0; each runs at one of
    ``locations``. ``in_charge`` is the node that was last seen in control. A request to a node that does not respond
    raises RequestError.
    """

    start_s = START_S

    def __init__(
        self,
        document: Document,
        folder: Path,
        locations: Sequence[ProcessLocation] = (ProcessLocation(), ProcessLocation()),
        etcd: EtcdProcesses | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.etcd = etcd or EtcdProcesses(folder, ETCD_MEMBERS)
        self.nodes: list[ControllerProcess] = []
        self.in_charge = 0
        self.openflow: list[tuple[str, int]] = []
        self.paused: set[int] = set()
        self._stack = ExitStack()
        for number, location in enumerate(locations):
            name = name_of(number)
            openflow_port, rest_port = free_ports(2)
            config = dict(document(openflow_port, rest_port))
            config["openflow"] = {**config.get("openflow", {}), "listen": f"{location.host}:{openflow_port}"}
            # The section ``cluster`` rejects ``on_stop: remove``.
            config["control"] = {key: value for key, value in config.get("control", {}).items() if key != "on_stop"}
            config["cluster"] = {"node": name, "etcd": self.etcd.urls, **self._cluster_section(location)}
            (folder / name).mkdir(exist_ok=True)
            self.nodes.append(self._node(config, folder / name, location))
            self.openflow.append((location.host, openflow_port))

    def __enter__(self) -> Self:
        with self._stack:
            self._stack.enter_context(self.etcd)
            for number, node in enumerate(self.nodes):
                self._stack.enter_context(node)
                self._stack.callback(self.resume, number)
                self.wait(partial(self._has_role, number), f"{name_of(number)} has a role", self.start_s)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _cluster_section(self, place: ProcessLocation) -> dict[str, Any]:
        """Return additional keys of the section ``cluster`` for the next node."""
        return {}

    def _node(self, config: Mapping[str, Any], folder: Path, place: ProcessLocation) -> ControllerProcess:
        """Return a node, not started."""
        return ControllerProcess(config, folder, location=place)

    @property
    def deciding(self) -> list[int]:
        """The nodes that decide about pairs."""
        return [] if self.active is None else [self.active]

    @property
    def url(self) -> str:
        """The REST interface of the node that was last in control."""
        return self.nodes[self.in_charge].url

    def get(self, path: str) -> Any:
        """Return the JSON of a REST resource of that node."""
        return self.nodes[self.in_charge].get(path)

    def patch(self, path: str, **fields: object) -> Any:
        """Change a REST resource of that node, and return its new state."""
        return self.nodes[self.in_charge].patch(path, **fields)

    def check_alive(self) -> None:
        """Raise ControllerError if that node has ended."""
        self.nodes[self.in_charge].check_alive()

    def check_recovered(self) -> bool:
        """Return whether a node controls every switch; that node then becomes the one in control."""
        in_control = [number for number in range(len(self.nodes)) if self.controls(number)]
        self.in_charge = in_control[0] if in_control else self.in_charge
        return bool(in_control)

    @property
    def active(self) -> int | None:
        """The node that reports that it may change switches; None without one."""
        return next((number for number in range(len(self.nodes)) if self.role(number) == "active"), None)

    def role(self, number: int) -> str | None:
        """Return the role that a node reports; None before etcd has answered it, or if it does not answer."""
        if number in self.paused:
            return None
        cluster = self.nodes[number].health().get("cluster")
        return None if cluster is None or cluster["lease_age_s"] is None else str(cluster["role"])

    def _has_role(self, number: int) -> bool:
        """Return whether a node reports a role; ControllerError if it has ended."""
        self.nodes[number].check_alive()
        return self.role(number) is not None

    def controls(self, number: int) -> bool:
        """Whether a node is active and has every switch of its configuration under control."""
        if number in self.paused:
            return False
        health = self.nodes[number].health()
        states = set(health.get("switches", {}).values())
        return health.get("cluster", {}).get("role") == "active" and states == {"ready"}

    def wait_controls(self, timeout_s: float = START_S) -> int:
        """Wait until a node controls every switch; return it. Raises ControllerError if none does."""
        self.wait(self.check_recovered, "a node controls every switch", timeout_s)
        return self.in_charge

    def wait_ready(self, switches: Iterable[str] = (), timeout_s: float = START_S) -> None:
        """Wait until one node controls every switch, these included, and the others are ready to take over."""
        number = self.wait_controls(timeout_s)
        missing = set(switches) - set(self.nodes[number].health().get("switches", {}))
        if missing:
            raise ControllerError(f"not in the configuration: {', '.join(sorted(missing))}")
        # A standby reports its switches as "standby": it is ready when it reports "ready" for itself.
        self.wait(
            lambda: all(node.health().get("status") == "ready" for node in self.nodes),
            "all nodes are ready",
            timeout_s,
        )

    def send_signal(self, number: int, what: signal.Signals) -> None:
        """Send a node a signal; SIGSTOP pauses it until ``resume``."""
        if what is signal.SIGSTOP:
            self.paused.add(number)
        self.nodes[number].send_signal(what)

    def resume(self, number: int) -> None:
        """Resume a node if it is paused."""
        if number in self.paused:
            self.paused.discard(number)
            self.nodes[number].send_signal(signal.SIGCONT)

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = START_S) -> None:
        """Wait until a condition is true; a node that does not answer makes it false. Raises ControllerError."""
        wait_until(condition, what, timeout_s, log=self._tails)

    def _tails(self) -> str:
        """Return the last lines of all nodes' logs."""
        return "\n".join(node.log_tail() for node in self.nodes if node.log_path.exists())


class ShardedNodes(Cluster):
    """Three sharded nodes; each decides about the pairs with senders behind its switches."""

    def __init__(
        self,
        document: Document,
        folder: Path,
        locations: Sequence[ProcessLocation] = (ProcessLocation(), ProcessLocation(), ProcessLocation()),
        etcd: EtcdProcesses | None = None,
    ) -> None:
        super().__init__(document, folder, locations, etcd)

    def _cluster_section(self, place: ProcessLocation) -> dict[str, Any]:
        return {"mode": "sharded", "peer_listen": f"{place.host}:{free_ports(1)[0]}"}

    @property
    def deciding(self) -> list[int]:
        """The nodes that are not paused."""
        return [number for number in range(len(self.nodes)) if number not in self.paused]

    @property
    def active(self) -> int | None:
        """The node that accepts changes, as a node reports; None without one."""
        for number in self.deciding:
            active = self.nodes[number].health().get("cluster", {}).get("active")
            if active is not None:
                return number_of(active)
        return None

    def owners(self) -> dict[str, str | None]:
        """Return the node of each switch, as reported by the first node that answers."""
        healths = (self.nodes[number].health().get("cluster", {}) for number in self.deciding)
        return next((dict(health["owners"]) for health in healths if "owners" in health), {})

    def kill_owner(self, switch: str) -> str:
        """Kill the node that owns a switch; return its name."""
        owner = self.owners()[switch]
        assert owner is not None
        self.nodes[number_of(owner)].end(signal.SIGKILL)
        return owner

    def check_recovered(self) -> bool:
        """Return whether all running nodes report that every switch is under its owner's control.

        One of the nodes must be active, and becomes the one in control.
        """
        healths = {number: self.nodes[number].health() for number in self.deciding}
        responding = {number: health for number, health in healths.items() if "cluster" in health}
        active = next((number for number in responding if _is_active(responding[number])), None)
        if active is None or not _is_shared_by(responding):
            return False
        self.in_charge = active
        return True

    def shared_by(self, numbers: Collection[int]) -> bool:
        """Whether all of these nodes report that every switch is under the control of one of them."""
        return _is_shared_by({number: self.nodes[number].health() for number in numbers})


def _is_active(health: Mapping[str, Any]) -> bool:
    """Whether a node reports that it accepts changes."""
    cluster = health["cluster"]
    return cluster["generation"] is not None and cluster["active"] == cluster["node"]


def _is_shared_by(healths: Mapping[int, Mapping[str, Any]]) -> bool:
    """Return whether all of these nodes report that each switch is under the control of one of them.

    ``healths`` are the nodes' healths by node number. All must report the same owners, only these nodes may own
    switches, and each owner must report its switches as ready.
    """
    # A node that reports no owners counts as one that reports a switch without an owner.
    owners = [health.get("cluster", {}).get("owners") or {"": None} for health in healths.values()]
    names = set(map(name_of, healths))
    if not owners or any(reported != owners[0] or not names >= set(reported.values()) for reported in owners):
        return False
    return all(
        health["switches"][name] == "ready"
        for number, health in healths.items()
        for name, owner in owners[0].items()
        if owner == name_of(number)
    )
