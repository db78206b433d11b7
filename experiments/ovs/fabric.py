"""A fabric built with Mininet and Open vSwitch from its description, and removed again completely.

    with OvsFabric(fig5(), OvsOptions(controller="tcp:127.0.0.1:6653")) as fabric:
        fabric.host("v1_1").cmd("ping -c 1 10.1.0.11")

Bridges and rows are marked with ``external_ids:dets-fabric``, interfaces outside of bridges with an alias of that name.
So what a killed run has left is found and removed at the next start, and nothing else ever is.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.machine.cpu_usage import disable_cpu_idle
from experiments.ovs.ovs_vsctl import OvsError, find_rows, ofctl, vsctl
from experiments.ovs.queue_classifier import QueueClassifier, leaf_packets, uplink_lines
from experiments.ovs.socket_buffers import large_receive_buffers, vswitchd_warnings
from topologies.fabric import Fabric

OWNER_KEY = "dets-fabric"
OWNER_PID_KEY = "dets-fabric-pid"
CONGESTION_CONTROLS = ("cubic", "reno", "bbr")
PN_CLASS_MIN_RATE_BPS = 1_000_000


@dataclass(frozen=True, slots=True)
class OvsOptions:
    """Options of a fabric on Open vSwitch.

    ``controller`` is an OVSDB target such as tcp:127.0.0.1:6653, or several with spaces between, or None: then edge and
    core switches learn and forward alone (fail_mode standalone), the fabric without control. ``edge_queues`` gives each
    edge port a single queue of its link's rate; use it only if the controller does not write the edge ports' queues.
    ``static_arp`` fills every VN's table. ``patch_links`` connects bridges by patch ports if the link between them is
    never full: a frame then costs ovs-vswitchd, which forwards for all bridges in one thread, as much as with one
    bridge.
    """

    controller: str | None = None
    datapath: str = "user"
    edge_queues: bool = False
    congestion_control: str = "cubic"
    static_arp: bool = False
    patch_links: bool = False

    def __post_init__(self) -> None:
        if self.datapath not in ("user", "kernel"):
            raise ValueError(f"datapath: {self.datapath!r} must be user or kernel")
        if self.congestion_control not in CONGESTION_CONTROLS:
            known = ", ".join(CONGESTION_CONTROLS)
            raise ValueError(f"congestion_control: {self.congestion_control!r} is not one of {known}")


class OvsFabric:
    """The realized fabric; a context manager. ``warnings`` are about this machine, for the user."""

    def __init__(self, fabric: Fabric, options: OvsOptions) -> None:
        fabric.check_emulable()
        self.fabric = fabric
        self.options = options
        self.classifier: QueueClassifier | None = None
        self.warnings: list[str] = []
        self._net: Any = None
        self._pn_bridges = False
        self._veth_links = fabric.core_links  # those that are no patch ports, and so have interfaces with rates
        self._awake = contextlib.ExitStack()

    def __enter__(self) -> OvsFabric:
        self.warnings = check_machine(self.options)
        remove_leftovers()
        try:
            if self.options.datapath == "user":
                self._awake.enter_context(disable_cpu_idle())
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def host(self, name: str) -> Any:
        """Return the Mininet host of a VN (``vn.name``): ``cmd`` and ``popen`` run in its namespace."""
        return self._net[name]

    def edge_interfaces(self) -> list[str]:
        """Return the edge switches' interfaces towards PNs."""
        return [pn.edge_interface for pn in self.fabric.pns]

    def shaped_interfaces(self) -> list[str]:
        """Return every interface that may have a QoS row, the controller's or the fabric's."""
        core = [interface for link in self._veth_links for interface in link.interfaces]
        trunks = [pn.trunk_interface for pn in self.fabric.pns] if self._pn_bridges else []
        return [*self.edge_interfaces(), *trunks, *core]

    def set_uplink_queues(self, pn_number: int, vlans: Mapping[int, tuple[int, int]]) -> None:
        """Configure a class per VLAN on a PN's uplink: (min, max) rates in bit/s by VLAN id; none: one FIFO.

        The classes stand for the scheduler on hosts that papers assume. Frames that wait in the queues now are dropped.
        Raises ValueError for a VLAN that the PN is not in, and OvsError if PNs' vswitches are bridges: then Open
        vSwitch shapes their trunks.
        """
        pn = self.fabric.pn(pn_number)
        for vid in vlans.keys() - set(pn.vlans):
            raise ValueError(f"vlan_vid: {vid!r} is not a VLAN of PN {pn_number} ({', '.join(map(str, pn.vlans))})")
        if self._pn_bridges:
            raise OvsError(f"{pn.trunk_interface}: has no classes, because PNs' vswitches are bridges here")
        rate_bps, name = pn.link_rate_bps, pn.trunk_interface
        delete = f"qdisc del dev {name} root"
        _batch("tc", [delete, *(uplink_lines(name, rate_bps, vlans) if vlans else _one_class(name, rate_bps))])

    def close(self) -> None:
        """Remove everything that this object created. Safe to call twice."""
        if self.classifier is not None:
            self.classifier.stop()
            self.classifier = None
        if self._net is not None:
            net, self._net = self._net, None
            # What Mininet leaves when it stops: the QoS rows of its ports, and the shells of its nodes.
            qos_rows = _qos_rows_of([*self.shaped_interfaces()])
            shells = [node.shell for node in [*net.hosts, *net.switches]]
            net.stop()
            _reap_shells(shells)
            _destroy_qos(qos_rows)
        self._awake.close()

    def _build(self) -> None:
        """Create the emulated network, with its hosts and shaped links."""
        from topologies.mininet_topo import FabricTopo, quiet_mininet

        quiet_mininet()
        from mininet.net import Mininet

        topo = FabricTopo(self.fabric, self.options.datapath, patch_links=self.options.patch_links)
        self._pn_bridges = topo.pn_bridges
        self._veth_links = tuple(link for link in self.fabric.core_links if link not in topo.patched)
        if topo.programs_refused:
            self.warnings.append(
                f"the kernel rejects eBPF programs ({topo.programs_refused}): PNs' vswitches are bridges of Open "
                "vSwitch, which lowers its capacity"
            )
        self._net = Mininet(topo=topo, controller=None, build=False)
        self._net.build()
        with large_receive_buffers():
            self._net.start()
            self._mark()
            self._check_ports()
        defaults = {_prepare_host(host, self.options.congestion_control) for host in self._net.hosts}
        if defaults != {self.options.congestion_control}:
            self.warnings.append(
                f"a VN's default congestion control stays {', '.join(sorted(defaults))}: this kernel allows "
                f"{self.options.congestion_control} on a socket that asks for it only (tcp_allowed_congestion_control)"
            )
        if self.options.static_arp:
            self._fill_arp()
        self._shape_links()
        if self.options.datapath == "user":
            self.classifier = QueueClassifier(self.shaped_interfaces())
            self.classifier.start()
            self.classifier.wait_ready()

    def _mark(self) -> None:
        """Mark bridges and interfaces as this fabric's; set the switches' controller, or else their fail mode."""
        bridges = [switch.name for switch in self.fabric.switches]
        if self._pn_bridges:
            bridges += [pn.name for pn in self.fabric.pns]
        else:
            bare_interfaces = [pn.trunk_interface for pn in self.fabric.pns]
            bare_interfaces += [vn.switch_interface for vn in self.fabric.vns()]
            _batch("ip", [f"link set dev {name} alias {OWNER_KEY}" for name in bare_interfaces])
        commands: list[str] = []
        for name in bridges:
            owner = f"external_ids:{OWNER_KEY}={self.fabric.name}"
            commands += ["--", "set", "Bridge", name, owner, f"external_ids:{OWNER_PID_KEY}={_process_id(os.getpid())}"]
        for switch in self.fabric.switches:
            if self.options.controller is None:
                commands += ["--", "set-fail-mode", switch.name, "standalone"]
            else:
                commands += ["--", "set-controller", switch.name, *self.options.controller.split()]
        vsctl(*commands[1:])  # "--" separates the commands, so none stands before the first
        if self.options.controller is not None:
            rows = find_rows("Controller", "_uuid,target")
            ids = [row["_uuid"] for row in rows if row["target"] in self.options.controller.split()]
            # At most a second between two attempts to connect; by default the wait grows to several.
            backoffs = [word for row_id in ids for word in ("--", "set", "Controller", row_id, "max_backoff=1000")]
            vsctl(*backoffs[1:])

    def _check_ports(self) -> None:
        """Check that every port exists with its number: Mininet ignores the answers of ovs-vsctl."""
        rows = {row["name"]: row for row in find_rows("Interface", "name,ofport,error")}
        expected = {pn.edge_interface: pn.port_no for pn in self.fabric.pns}
        for link in self.fabric.core_links:
            expected |= dict(zip(link.interfaces, (link.port_a, link.port_b), strict=True))
        for interface, port_no in expected.items():
            row = rows.get(interface)
            if row is None or row["ofport"] != port_no:
                found = "missing" if row is None else f"port {row['ofport']}, error {row['error']!r}"
                raise OvsError(f"{interface}: should be port {port_no} of its bridge, is {found}")

    def _fill_arp(self) -> None:
        """Write permanent ARP entries for all VNs of a VLAN into each VN's table."""
        for vid in self.fabric.vlans:
            vns = [vn for vn in self.fabric.vns() if vn.vlan_vid == vid]
            lines = "; ".join(f"ip neigh replace {vn.ip} lladdr {vn.mac} nud permanent dev DEV" for vn in vns)
            for vn in vns:
                self.host(vn.name).cmd(lines.replace("DEV", vn.host_interface))

    def _shape_links(self) -> None:
        """Set the rates of links: always those of PNs' uplinks and core links, edge ports only with ``edge_queues``.

        Choice: with QoS rows, not with Mininet's TCLink, whose HTB root on a switch's port would replace the root that
        holds OVS's queues.
        """
        rates = {pn.trunk_interface: pn.link_rate_bps for pn in self.fabric.pns}
        if not self._pn_bridges:  # the PNs' vswitches are eBPF programs, whose interfaces have no QoS rows
            _batch("tc", [line for name, rate_bps in rates.items() for line in _one_class(name, rate_bps)])
            rates = {}
        if self.options.edge_queues:
            rates |= {pn.edge_interface: pn.link_rate_bps for pn in self.fabric.pns}
        for link in self._veth_links:
            rates |= dict.fromkeys(link.interfaces, link.rate_bps)
        commands: list[str] = []
        for number, (interface, rate_bps) in enumerate(rates.items()):
            owner = f"external_ids:{OWNER_KEY}={self.fabric.name}"
            limits = [
                f"other_config:min-rate={min(PN_CLASS_MIN_RATE_BPS, rate_bps)}",
                f"other_config:max-rate={rate_bps}",
            ]
            commands += ["--", f"--id=@queue{number}", "create", "Queue", owner, *limits]
            commands += ["--", f"--id=@qos{number}", "create", "QoS", "type=linux-htb", owner, limits[1]]
            commands += [f"queues:0=@queue{number}", "--", "set", "Port", interface, f"qos=@qos{number}"]
        if commands:
            vsctl(*commands[1:])


def check_machine(options: OvsOptions) -> list[str]:
    """Return warnings about this machine; raise OvsError or PermissionError if an emulated fabric cannot run."""
    if os.geteuid() != 0:
        raise PermissionError("an Open vSwitch fabric needs root: it makes network namespaces and bridges")
    vsctl("get", "Open_vSwitch", ".", "_uuid")
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    if options.congestion_control not in available:
        raise ValueError(
            f"congestion_control: {options.congestion_control!r} is not in this kernel ({', '.join(available)})"
        )
    return vswitchd_warnings() if options.datapath == "user" else []


def remove_leftovers() -> None:
    """Remove bridges, interfaces and rows of killed runs; raise OvsError if such a run is still alive."""
    rows = [row for row in find_rows("Bridge", "name,external_ids,ports") if OWNER_KEY in row["external_ids"]]
    for row in rows:
        owner = str(row["external_ids"].get(OWNER_PID_KEY, ""))
        pid = owner.partition(".")[0]
        if pid and _process_id(int(pid)) == owner:
            raise OvsError(f"another fabric is running: bridge {row['name']} belongs to process {pid}")
    interfaces = [port for row in rows for port in vsctl("list-ports", row["name"]).split()]
    qos_rows = _qos_rows_of(interfaces)
    for row in rows:
        vsctl("--if-exists", "del-br", row["name"])
    for interface in [*interfaces, *_marked_interfaces()]:
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run(["ip", "link", "del", interface], capture_output=True, check=True, timeout=10)
    own = [row["_uuid"] for row in find_rows("QoS", "_uuid,external_ids") if OWNER_KEY in row["external_ids"]]
    _destroy_qos([*dict.fromkeys([*qos_rows, *own])])


def describe_switches(fabric: Fabric) -> dict[str, dict[str, str]]:
    """Return, per edge and core switch, its own report: meter features, meters, queues, ports."""
    commands = ("meter-features", "dump-meters", "queue-get-config", "dump-ports-desc", "dump-desc")
    return {switch.name: dict(_command_outputs(switch.name, commands)) for switch in fabric.switches}


def _one_class(interface: str, rate_bps: int) -> list[str]:
    """Return the lines for tc that give an interface a rate, with a queue like those of the bridges' ports."""
    leaf = f"qdisc add dev {interface} parent 1:1 pfifo_head_drop limit {leaf_packets(rate_bps)}"
    root = f"qdisc add dev {interface} root handle 1: htb default 1"
    return [root, f"class add dev {interface} parent 1: classid 1:1 htb rate {rate_bps}bit", leaf]


def _batch(tool: str, lines: list[str]) -> None:
    """Run lines with ip or tc; raise OvsError with the tool's error."""
    done = subprocess.run(
        [tool, "-batch", "-"], input="\n".join(lines), capture_output=True, text=True, timeout=20, check=False
    )
    if done.returncode:
        raise OvsError(f"{tool} -batch: {done.stderr.strip()}")


def _marked_interfaces() -> list[str]:
    """Return the interfaces whose alias says that a fabric created them."""
    links = json.loads(subprocess.run(["ip", "-json", "link"], capture_output=True, check=True, timeout=10).stdout)
    return [link["ifname"] for link in links if link.get("ifalias") == OWNER_KEY]


def _command_outputs(bridge: str, commands: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (command, output or error) of each ovs-ofctl command on a bridge."""
    for command in commands:
        try:
            yield command, ofctl(command, bridge)
        except OvsError as error:
            yield command, str(error)


def _prepare_host(host: Any, congestion_control: str) -> str:
    """Set a VN's default congestion control; TCP keeps no metrics, and there is no IPv6. Return the default now.

    The default may not be the requested one: in a namespace the kernel rejects a congestion control that is not in
    tcp_allowed_congestion_control, a setting of the whole machine, which stays unchanged. Sources therefore request
    theirs on each socket.
    """
    answer = host.cmd(
        f"sysctl -qw net.ipv4.tcp_congestion_control={congestion_control} 2>/dev/null;"
        "sysctl -qw net.ipv4.tcp_no_metrics_save=1 net.ipv6.conf.all.disable_ipv6=1;"
        "sysctl -n net.ipv4.tcp_congestion_control"
    )
    return str(answer).strip()


def _reap_shells(shells: list[subprocess.Popen[bytes]]) -> None:
    """Wait for the shells that Mininet has killed and close their files, which Mininet leaves open."""
    for shell in shells:
        shell.wait(timeout=10)
        for file in (shell.stdin, shell.stdout, shell.stderr):
            if file is not None:
                file.close()


def _qos_rows_of(interfaces: list[str]) -> list[str]:
    """Return the QoS rows of ports: without their ports nothing uses them, and OVSDB keeps them."""
    wanted = set(interfaces)
    return [row["qos"] for row in find_rows("Port", "name,qos") if row["name"] in wanted and row["qos"]]


def _destroy_qos(uuids: list[str]) -> None:
    """Destroy QoS rows without a port, and those of their queues that no other QoS row uses."""
    rows = {row["_uuid"]: set(row["queues"].values()) for row in find_rows("QoS", "_uuid,queues")}
    shared_queues = {queue for uuid, queues in rows.items() if uuid not in uuids for queue in queues}
    in_use = {row["qos"] for row in find_rows("Port", "qos") if row["qos"]}
    commands: list[str] = []
    for uuid in uuids:
        if uuid in rows and uuid not in in_use:
            commands += ["--", "destroy", "QoS", uuid]
            for queue in rows[uuid] - shared_queues:
                commands += ["--", "--if-exists", "destroy", "Queue", queue]
    if commands:
        vsctl(*commands[1:])


def _process_id(pid: int) -> str:
    """Return "pid.start time", a permanent name of a process; "" if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return f"{pid}.{stat.rpartition(')')[2].split()[19]}"
