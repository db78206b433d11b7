"""Two or three real controllers, a real etcd, and software switches that all controllers are connected to."""

from __future__ import annotations

import io
import json
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, Self

import pytest
from support.application import Application
from support.wire import EVERYBODY, LINK_BPS, configuration, frame

from apps import cli
from controller.forwarding.pipeline import Table
from controller.openflow.flows import Flow
from controller.openflow.match import Match
from experiments.bench.cluster.testbed.switch_logs import second_writer
from experiments.machine.cluster_process import Cluster
from experiments.machine.controller_process import ProcessLocation, free_ports
from experiments.machine.etcd_process import EtcdProcesses, EtcdTls
from experiments.wire.fabric import WireFabric

NAMES = ("n1", "n2", "n3")
End = tuple[int, int]
needs_etcd = pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd (Debian: etcd-server)")


def dets(*arguments: str) -> tuple[int, str]:
    """Run ``dets`` in this process; return its exit status and what it has said."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        status = cli.main([*arguments])
    return status, said.getvalue()


class ClusterNodes(Cluster):
    """Etcd and two nodes or three, for one ``with``, in which node 1 is active. ``openflow`` is where switches connect.

    Etcd has so many ``members``, which speak ``tls`` or not, and is full at ``quota_bytes``. ``relays`` are each node's
    ways to the members. With ``shared`` the switches are shared out over the nodes, which may be three.
    """

    nodes: list[Application]
    start_s = 60.0

    def __init__(
        self,
        folder: Path,
        edges: Mapping[int, Sequence[int]],
        *,
        members: int = 1,
        ttl_s: int = 2,
        tls: EtcdTls | None = None,
        quota_bytes: int | None = None,
        shared: bool = False,
        nodes: int = 2,
        **sections: dict[str, Any],
    ) -> None:
        self.relays: list[list[Relay]] = []
        self._ttl_s, self._is_shared = ttl_s, shared

        def document(openflow_port: int, rest_port: int) -> dict[str, Any]:
            rest = {"listen": f"127.0.0.1:{rest_port}", **sections.get("rest", {})}
            config = configuration(edges, **{**sections, "rest": rest})
            for switch in config["switches"].values() if shared else ():
                switch["ovsdb"] = "tcp:127.0.0.1:1"  # nobody is there: what queues do is not simulated
            return config

        etcd = EtcdProcesses(folder, members, tls, quota_bytes)
        super().__init__(document, folder, [ProcessLocation()] * nodes, etcd)

    def _cluster_section(self, place: ProcessLocation) -> dict[str, Any]:
        self.relays.append([Relay(member.port) for member in self.etcd.members])
        scheme, tls = "http" if self.etcd.tls is None else "https", self.etcd.tls
        etcd = [f"{scheme}://127.0.0.1:{relay.port}" for relay in self.relays[-1]]
        section: dict[str, Any] = {"etcd": etcd, "lease_ttl_s": self._ttl_s}
        if tls is not None:
            files = {"ca": tls.ca, "certificate": tls.client_certificate, "key": tls.client_key}
            section |= {key: str(path) for key, path in files.items()}
        if self._is_shared:
            section |= {"mode": "sharded", "peer_listen": f"{place.host}:{free_ports(1)[0]}"}
        return section

    def _node(self, config: Mapping[str, Any], folder: Path, place: ProcessLocation) -> Application:
        return Application(config, folder)

    def __enter__(self) -> Self:
        try:
            super().__enter__()
            self.connect_switches()
            self.wait_whole()
        except BaseException:
            self.__exit__(BaseException)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for node in self.nodes:
            if node.running:
                node.send_signal(signal.SIGCONT)
        super().__exit__(kind, *rest)
        for relay in [relay for relays in self.relays for relay in relays]:
            relay.close()

    def connect_switches(self) -> None:
        """Let the switches connect to all nodes."""

    def wait_whole(self) -> None:
        """Wait until both nodes are what they are to be."""
        self.wait_active(0)
        self.wait(lambda: self.health(1)["status"] == "ready", "the standby is ready")

    def cut_from_etcd(self, number: int) -> None:
        """Let nothing pass between a node and etcd."""
        for relay in self.relays[number]:
            relay.cut()

    def join_to_etcd(self, number: int) -> None:
        """Let everything pass again."""
        for relay in self.relays[number]:
            relay.heal()

    def health(self, number: int) -> dict[str, Any]:
        """Return what a node says of itself."""
        return dict(self.nodes[number].get("/v1/health"))

    def wait_active(self, number: int, timeout_s: float = 20.0) -> None:
        """Wait until a node is active, and has all switches under control."""
        self.wait(lambda: self.controls(number), f"{NAMES[number]} is active", timeout_s)

    def wait_connected(self) -> None:
        """Wait until etcd has all nodes as connected to all switches, so that each may take any of them."""
        config = str(self.nodes[0].config_path)

        def connected() -> bool:
            status, said = dets("cluster", "status", "--config", config, "--output", "json")
            if status != 0:
                return False
            row = json.loads(said)[0]
            return row["connected"] == {name: list(row["owners"]) for name in NAMES[: len(self.nodes)]}

        self.wait(connected, "all nodes are connected to all switches", 30.0)

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = 15.0) -> None:
        """Wait until a condition is true; a node that does not answer makes it false. Raises ControllerError."""
        super().wait(condition, what, timeout_s)


class ClusterRun(ClusterNodes):
    """The same with software switches."""

    def __init__(
        self, folder: Path, edges: Mapping[int, Sequence[int]], links: Sequence[tuple[End, End]] = (), **options: Any
    ) -> None:
        super().__init__(folder, edges, **options)
        self.fabric = WireFabric(self.openflow[0], standbys=self.openflow[1:], retry_s=0.1)
        for dpid, numbers in edges.items():
            more = [end[1] for link in links for end in link if end[0] == dpid]
            self.fabric.add_switch(dpid, dict.fromkeys([*numbers, *more], LINK_BPS))
        for one, other in links:
            self.fabric.link(one, other)

    def connect_switches(self) -> None:
        """Let the switches connect to all nodes."""
        self.fabric.start()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            super().__exit__(kind, *rest)
        finally:
            self.fabric.stop(check=kind is None)

    def blast(self, dpid: int, senders: Sequence[int], receiver: int, rate_bps: float) -> list[tuple[int, int]]:
        """Let hosts of VLAN 10 at one switch send to another one there; return (sender's, receiver's port) of each."""
        for port_no in (receiver, *senders):
            there = Match(vlan_vid=10, eth_dst=port_no)
            self.fabric.inject(dpid, port_no, frame(port_no, EVERYBODY, 10))
            self.wait(lambda there=there: any(flow.match == there for flow in self.flows(dpid)), "a host is known")
        with self.fabric.locked():
            for port_no in senders:
                self.fabric.rates.offer(dpid, port_no, rate_bps, eth_src=port_no, eth_dst=receiver, vlan_vid=10)
        return [(port_no, receiver) for port_no in senders]

    def flows(self, dpid: int) -> list[Flow]:
        """Return the entries of a switch that forward."""
        with self.fabric.locked():
            flows = self.fabric.switches[dpid].tables.flows()
            return [flow for flow in flows if flow.table_id == Table.FORWARD]

    def granted(self, number: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
        """Return what a node grants these pairs of ports in VLAN 10, bit/s."""
        entries = [self.nodes[number].entry(*pair, 10) for pair in pairs]
        return [entry["granted_bps"] or 0 for entry in entries if entry is not None]

    def meters(self, dpid: int) -> dict[int, tuple[int, int]]:
        """Return (rate in kb/s, burst in kb) of a switch's meters by id."""
        with self.fabric.locked():
            meters = self.fabric.switches[dpid].meters
            return {number: meters.setting(number) for number in meters.ids().tolist()}

    def writers(self, dpid: int) -> list[tuple[int, Any, int | None]]:
        """Return who has changed a switch so far: node, role, and generation id."""
        with self.fabric.locked():
            return list(self.fabric.switches[dpid].writers)


class ShardedRun(ClusterRun):
    """The same with the switches shared out over the nodes."""

    def __init__(self, folder: Path, edges: Mapping[int, Sequence[int]], **options: Any) -> None:
        super().__init__(folder, edges, shared=True, **options)

    def wait_whole(self) -> None:
        """Wait until every switch has an owner that controls it."""
        whole = range(len(self.nodes))
        self.wait(lambda: all(self.health(n)["status"] == "ready" for n in whole), "all nodes are ready", 30.0)

    def owners(self, number: int) -> dict[str, str | None]:
        """Return the node of each switch by the switch's name, as a node says."""
        return dict(self.health(number)["cluster"]["owners"])

    def balance(self, owners: Mapping[str, str | None]) -> None:
        """Ask that switches are shared out, once all nodes are connected to all of them; wait for it."""
        self.wait_connected()
        status, said = dets("cluster", "balance", "--config", str(self.nodes[0].config_path))
        assert status == 0, said
        whole = range(len(self.nodes))
        self.wait(lambda: all(self.owners(number) == owners for number in whole), "they are shared out", 20.0)


def check_one_writer(run: ClusterRun, dpids: Iterable[int]) -> None:
    """By the switches' own logs: masters only, and never an older generation after a newer one."""
    for dpid in dpids:
        writers = run.writers(dpid)
        assert writers
        assert second_writer(writers) == ""


class Relay:
    """Passes TCP connections on to a port of this machine, until it is cut; for partitions without root."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._cut = threading.Event()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def cut(self) -> None:
        """Pass nothing on any more; connections stand and stay silent, as in a partition."""
        self._cut.set()

    def heal(self) -> None:
        """Pass everything on again; connections of before are closed."""
        for sock in list(self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._cut.clear()

    def close(self) -> None:
        """End: listen no more."""
        self.heal()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not self._cut.is_set():
                    sink.sendall(data)
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        source.close()
