"""Hosts with VLAN sub-interfaces (8021q) at the trunk ports of one Open vSwitch bridge, without Mininet."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from apps.ovsdb.ovsdb_client import OvsdbQueueWriter
from experiments.machine.controller_process import OVSDB
from experiments.measure.frame_sizes import UDP_FRAME_BYTES, UDP_PAYLOAD_BYTES
from experiments.ovs.ovs_vsctl import vsctl

BRIDGE = "s1"
DPID = 1
INTERVAL_MS = 110  # user-mode-linux has one slow processor for everything

# Sends a few datagrams every tick, since a timer for each costs much where a system call is dear.
SEND = """
import socket, sys, time
address, rate_bps, seconds, payload, wire = sys.argv[1], *map(float, sys.argv[2:4]), *map(int, sys.argv[4:6])
sock, data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), bytes(payload)
begin, sent = time.monotonic(), 0
while (passed := time.monotonic() - begin) < seconds:
    due = int(passed * rate_bps / 8 / wire)
    sent = max(sent, due - 50)  # what a machine that stood still has missed is not made up for
    while sent < due:
        sock.sendto(data, (address, 9))
        sent += 1
    time.sleep(0.01)
"""
SINK = (
    "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 9)); print(1, flush=True)"
)
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 7), timeout=2); print('connected')"
SERVE = "import socket; s = socket.create_server(('', 7)); print('listening', flush=True); s.accept()"


@dataclass(frozen=True, slots=True)
class Received:
    """What an interface has received: bytes of tagged frames and packets, at a time in seconds."""

    time_s: float
    wire_bytes: int
    packets: int

    def rate_bps(self, since: Received) -> float:
        """The mean wire rate since an earlier reading."""
        return (self.wire_bytes - since.wire_bytes) * 8 / (self.time_s - since.time_s)


class VlanHosts:
    """Hosts h1 .. hN at the ports 1 .. N of a bridge, each with an interface in every VLAN; a context manager.

    The host's address in VLAN v is 10.v.0.N.
    """

    def __init__(self, count: int, vlans: Sequence[int], link_rate_bps: int) -> None:
        self.count, self.vlans, self.link_rate_bps = count, tuple(vlans), link_rate_bps

    def __enter__(self) -> VlanHosts:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _build(self) -> None:
        settings = ("fail_mode=secure", "protocols=OpenFlow13", f"other-config:datapath-id={DPID:016x}")
        ports: list[str] = []
        batch = []
        for number in range(1, self.count + 1):
            host, port = f"h{number}", f"{BRIDGE}-eth{number}"
            _run("ip", "netns", "add", host)
            batch += [f"link add {port} type veth peer name eth0 netns {host}", f"link set {port} up"]
            ports += ["--", "add-port", BRIDGE, port, "--", "set", "Interface", port, f"ofport_request={number}"]
        _run("ip", "-batch", "-", text="\n".join(batch) + "\n")
        vsctl("add-br", BRIDGE, "--", "set", "Bridge", BRIDGE, *settings, *ports)
        for number in range(1, self.count + 1):
            lines = ["link set lo up", "link set eth0 up"]
            for vid in self.vlans:
                lines += [f"link add link eth0 name eth0.{vid} type vlan id {vid}", f"link set eth0.{vid} up"]
                lines += [f"address add {self.address(vid, number)}/24 dev eth0.{vid}"]
            _run("ip", "-netns", f"h{number}", "-batch", "-", text="\n".join(lines) + "\n")
            _run(*self.inside(number, "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off", "gro", "off"))

    def close(self) -> None:
        """Take all of it away."""
        OvsdbQueueWriter(OVSDB).remove(DPID)
        vsctl("--if-exists", "del-br", BRIDGE)
        for number in range(1, self.count + 1):
            subprocess.run(["ip", "netns", "del", f"h{number}"], check=False, capture_output=True, timeout=20)

    def connect_to(self, target: str) -> None:
        """Let the switch connect to a controller."""
        vsctl("set-controller", BRIDGE, target, "--", "set", "Controller", BRIDGE, "max_backoff=1000")

    def configuration(self, limits_bps: dict[int, int], openflow_port: int, rest_port: int) -> dict[str, object]:
        """Return the controller's configuration for these hosts."""
        ports = {
            number: {"capacity": self.link_rate_bps, "trunk": list(self.vlans)} for number in range(1, self.count + 1)
        }
        return {
            "control": {"interval_ms": INTERVAL_MS, "mac_ageing_s": 3600},
            "openflow": {"listen": f"127.0.0.1:{openflow_port}"},
            "rest": {"listen": f"127.0.0.1:{rest_port}"},
            "vlans": {vid: {"send_limit": bps, "receive_limit": bps} for vid, bps in limits_bps.items()},
            "switches": {BRIDGE: {"dpid": f"{DPID:016x}", "ovsdb": OVSDB, "ports": ports}},
        }

    @staticmethod
    def address(vlan_vid: int, number: int) -> str:
        """Return a host's address in a VLAN."""
        return f"10.{vlan_vid}.0.{number}"

    @staticmethod
    def inside(number: int, *command: str) -> list[str]:
        """Return the command line of a command in a host's namespace."""
        return ["ip", "netns", "exec", f"h{number}", *command]

    def start(self, number: int, *command: str) -> subprocess.Popen[bytes]:
        """Start a command in a host's namespace; its caller ends it."""
        return subprocess.Popen(self.inside(number, *command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def sink(self, number: int) -> subprocess.Popen[bytes]:
        """Take UDP datagrams at a host for 15 minutes, so that it does not answer each with an ICMP message."""
        process = self.start(number, sys.executable, "-c", f"{SINK}; time.sleep(900)")
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        return process

    def send(self, vlan_vid: int, number: int, to: int, rate_bps: int, seconds: int) -> subprocess.Popen[bytes]:
        """Send UDP at a wire rate."""
        settings = (str(rate_bps), str(seconds), str(UDP_PAYLOAD_BYTES), str(UDP_FRAME_BYTES))
        return self.start(number, sys.executable, "-c", SEND, self.address(vlan_vid, to), *settings)

    def can_connect(self, number: int, to: int, address: str) -> bool:
        """Whether a host can open a TCP connection to an address of another."""
        server = self.start(to, sys.executable, "-c", SERVE)
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"listening\n"
            command = self.inside(number, sys.executable, "-c", CONNECT, address)
            done = subprocess.run(command, capture_output=True, check=False, timeout=30)
            return done.stdout == b"connected\n"
        finally:
            end(server)

    def received(self, vlan_vid: int, number: int) -> Received:
        """Read what a host has received in a VLAN. A VLAN interface counts frames without Ethernet header and tag."""
        folder = f"/sys/class/net/eth0.{vlan_vid}/statistics"
        done = _run(*self.inside(number, "cat", "/proc/uptime", f"{folder}/rx_bytes", f"{folder}/rx_packets"))
        uptime, payload_bytes, packets = re.match(r"(\S+) \S+\n(\d+)\n(\d+)", done).groups()  # type: ignore[union-attr]
        return Received(float(uptime), int(payload_bytes) + 18 * int(packets), int(packets))


def end(*processes: subprocess.Popen[bytes]) -> None:
    """End processes and wait for them."""
    for process in processes:
        process.kill()
    for process in processes:
        process.communicate(timeout=20)


def _run(*command: str, text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
