"""A Mininet Topo made from a fabric's description.

Edge and core switches are Open vSwitch bridges that wait for the controller (fail_mode secure, OpenFlow 1.3). A PN's
vswitch has an access port per VN. Next to bridges of the userspace datapath, which one thread forwards for, it is two
programs in the kernel (ebpf_vlan_switch.py), to leave this thread to the controlled switches; otherwise, and if such
programs may not be loaded, it is a learning bridge (fail_mode standalone, no controller).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from topologies import ebpf_vlan_switch
from topologies._mininet_import import ensure_mininet
from topologies.fabric import TRUNK_PORT_NO, Fabric

ensure_mininet()

from mininet.link import OVSLink  # noqa: E402
from mininet.node import Host, OVSSwitch, Switch  # noqa: E402
from mininet.topo import Topo  # noqa: E402

PN_DPID_BASE = 0x10000
QUEUE_CLASSIFIER = Path(__file__).resolve().parent.parent / "experiments" / "ovs" / "queue_classifier.py"


class _Bridge(OVSSwitch):  # type: ignore[misc]  # Mininet has no types
    """An Open vSwitch bridge of a present version."""

    @classmethod
    def isOldOVS(cls) -> bool:  # noqa: N802 - overrides Mininet's name
        """Return False: Mininet checks for versions before 1.10 with a deprecated class of distutils."""
        return False


class FabricSwitch(_Bridge):
    """An edge or core switch. With ``emulate_queues`` a process next to it makes its queues real."""

    def __init__(self, name: str, datapath: str = "user", emulate_queues: bool = False, **params: Any) -> None:
        super().__init__(name, datapath=datapath, failMode="secure", protocols="OpenFlow13", **params)
        self.emulate_queues = emulate_queues and datapath == "user"
        self._queue_process: subprocess.Popen[bytes] | None = None

    def start(self, controllers: list[Any]) -> None:
        """Start the bridge, and the process that makes its queues real, which ends on its own if Mininet is killed."""
        super().start(controllers)
        if self.emulate_queues:
            interfaces = [str(intf) for intf in self.intfList() if self.ports[intf]]
            self._queue_process = subprocess.Popen([sys.executable, str(QUEUE_CLASSIFIER), *interfaces])

    def stop(self, *arguments: Any, **options: Any) -> None:
        """Stop the process of the queues, and the bridge."""
        if self._queue_process is not None:
            self._queue_process.terminate()
            self._queue_process.wait(timeout=10)
            self._queue_process = None
        super().stop(*arguments, **options)


class EbpfPnSwitch(Switch):  # type: ignore[misc]  # Mininet has no types
    """A PN's vswitch in the kernel; ``tags`` maps its access ports to their VLAN."""

    def __init__(self, name: str, tags: dict[int, int], **params: Any) -> None:
        super().__init__(name, **params)
        self.tags = tags

    def start(self, controllers: list[Any]) -> None:
        """Attach the programs to the PN's interfaces; raise OSError if the kernel refuses them."""
        del controllers
        names = {port_no: str(intf) for intf, port_no in self.ports.items() if port_no}
        access = {names[port_no]: vid for port_no, vid in self.tags.items()}
        for name in names.values():
            disable_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
            if disable_ipv6.exists():
                disable_ipv6.write_text("1")  # the machine itself must not send frames on this interface
        ebpf_vlan_switch.attach(names[TRUNK_PORT_NO], access)


class PnBridge(_Bridge):
    """A PN's vswitch as a bridge; ``tags`` maps its access ports to their VLAN."""

    def __init__(self, name: str, tags: dict[int, int], datapath: str = "user", **params: Any) -> None:
        super().__init__(name, datapath=datapath, failMode="standalone", protocols="OpenFlow13", **params)
        self.tags = tags

    def start(self, controllers: list[Any]) -> None:
        """Start without a controller, whatever the network has: a PN's vswitch is no part of the controlled fabric."""
        del controllers
        self.listenPort = None
        super().start([])

    def intfOpts(self, intf: Any) -> str:  # noqa: N802 - overrides Mininet's name
        """Return OVS options of an interface: the port number, and the VLAN tag of an access port."""
        options = str(super().intfOpts(intf))
        tag = self.tags.get(self.ports[intf])
        return options if tag is None else f"{options} -- set Port {intf} tag={tag} vlan_mode=access"


class VnHost(Host):  # type: ignore[misc]  # Mininet has no types
    """A VN that sends frames as they are on a wire: checksummed, and no larger than the MTU.

    Bridges of the userspace datapath forward frames without hardware offloads: with offloads ping would work, TCP not.
    """

    def config(self, **params: Any) -> Any:
        """Configure the interface, and turn off its offloads."""
        configured = super().config(**params)
        self.cmd(f"ethtool -K {self.defaultIntf()} tx off tso off gso off gro off >/dev/null")
        return configured


class FabricTopo(Topo):  # type: ignore[misc]  # Mininet has no types
    """The Topo of a fabric. ``datapath`` is Mininet's word: user or kernel; ``emulate_queues`` as in FabricSwitch.

    With ``patch_links`` core links that are never full (``patched``) are patch ports: bridges exchange frames without
    an interface between them.

    ``chosen`` is the argument of ``mn --topo`` for this process's topology.

    ``pn_bridges`` is whether PNs' vswitches are bridges, and ``programs_refused`` the reason, if they could be
    programs.
    """

    chosen = ""

    def __init__(
        self, fabric: Fabric, datapath: str = "user", emulate_queues: bool = False, patch_links: bool = False
    ) -> None:
        if datapath not in ("user", "kernel"):
            raise ValueError(f"datapath: {datapath!r} must be user or kernel")
        fabric.check_emulable()
        self.fabric = fabric
        self.datapath = datapath
        self.emulate_queues = emulate_queues
        self.patched = fabric.uncongested_links() if patch_links else ()
        self.programs_refused = ebpf_vlan_switch.unsupported_reason() if datapath == "user" else ""
        self.pn_bridges = datapath == "kernel" or bool(self.programs_refused)
        super().__init__()

    def build(self) -> None:
        """Add switches, PNs with their VNs, and links; every port number is the description's."""
        for switch in self.fabric.switches:
            options = {"datapath": self.datapath, "emulate_queues": self.emulate_queues}
            self.addSwitch(switch.name, cls=FabricSwitch, dpid=f"{switch.dpid:016x}", **options)
        for pn in self.fabric.pns:
            vns = [self.fabric.vn(vid, pn.number) for vid in pn.vlans]
            tags = {vn.pn_port_no: vn.vlan_vid for vn in vns}
            dpid = f"{PN_DPID_BASE + pn.number:016x}"
            if self.pn_bridges:
                self.addSwitch(pn.name, cls=PnBridge, dpid=dpid, datapath=self.datapath, tags=tags)
            else:
                self.addSwitch(pn.name, cls=EbpfPnSwitch, dpid=dpid, tags=tags)
            self.addLink(pn.name, pn.switch, port1=TRUNK_PORT_NO, port2=pn.port_no)
            for vn in vns:
                self.addHost(vn.name, cls=VnHost, ip=f"{vn.ip}/16", mac=vn.mac)
                self.addLink(vn.name, pn.name, port1=0, port2=vn.pn_port_no)
        for link in self.fabric.core_links:
            kind = {"cls": OVSLink} if link in self.patched else {}
            self.addLink(link.switch_a, link.switch_b, port1=link.port_a, port2=link.port_b, **kind)


def quiet_mininet() -> None:
    """Silence Mininet's progress lines; its errors stay."""
    from mininet.log import setLogLevel

    setLogLevel("error")
