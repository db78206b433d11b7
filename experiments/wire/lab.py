"""Software switches with the ports and links of a configuration, a host behind each VN, and traffic: for trials.

No root is needed. The switches connect to the controller of that configuration whenever it runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from controller.config.config_summary import shorten
from controller.errors import InvalidValueError
from controller.fabric.config_model import ANY_NAME, Config, EdgePort, Switch, Vn
from controller.openflow.ethernet import FrameHeader, build_frame
from controller.units import parse_rate
from experiments.wire.fabric import WireFabric

BROADCAST_INTERVAL_S = 2.0
POLL_INTERVAL_S = 0.1
NO_CONTROLLER_S = 3.0
"""after this time without a controller a message reports it"""
_ETH_TYPE = 0x88B5
_EVERYBODY = 2**48 - 1
_FIRST_MAC = 0x02_00_00_00_00_01


@dataclass(frozen=True, slots=True)
class Offer:
    """The traffic of one host to another of its VLAN, at the wire."""

    sender: Vn
    receiver: Vn
    rate_bps: int


def parse_offer(text: str, config: Config) -> Offer:
    """Return the offer of ``VID/SWITCH:PORT/SWITCH:PORT/RATE``; InvalidValueError unless it names a pair of VNs.

    VLAN and ports can be given by name.
    """
    words = text.split("/")
    if len(words) != 4:
        raise InvalidValueError("offer", text, "is not VID/SWITCH:PORT/SWITCH:PORT/RATE, such as 10/s1:1/s1:3/300M")
    named = [(config.vlans[vn.vlan_vid].name, vn) for vn in config.vns()]
    named += [(str(vn.vlan_vid), vn) for vn in config.vns()]  # digits are an id
    vns = {(vlan, place): vn for vlan, vn in named for place in _port_names(config, vn)}
    found = [vns.get((words[0], place)) for place in words[1:3]]
    if found[0] is None or found[1] is None:
        # The error names the sender's port, or the receiver's if the sender is found.
        place = words[1 + (found[0] is not None)]
        ports = [_port_names(config, vn)[0] for vlan, vn in named if vlan == words[0]]
        there = f"; its ports are {shorten(ports)}" if ports else f"; the VLANs are {shorten(map(str, config.vlans))}"
        reason = f"names {place}, which is no port of VLAN {words[0]} in the configuration{there}"
        raise InvalidValueError("offer", text, reason)
    if found[0] is found[1]:
        raise InvalidValueError("offer", text, f"has {words[1]} send to itself: the hosts must be at two ports")
    return Offer(found[0], found[1], parse_rate(words[3], "offer"))


def _port_names(config: Config, vn: Vn) -> tuple[str, ...]:
    """Return what an operator may call the port of a VN."""
    port = config.switches[vn.switch].ports[vn.port_no]
    return f"{vn.switch}:{port.label}", f"{vn.switch}:{port.name}", port.name


def _numbered(config: Config, switch: Switch) -> dict[int, EdgePort]:
    """Return the edge ports of a switch by their numbers there: one that is configured by name has a free number."""
    used = {end.port_no for link in config.links for end in link.ends if end.dpid == switch.dpid}
    used |= {port_no for port_no, port in switch.ports.items() if port.interface is None}
    free = (number for number in count(1) if number not in used)
    return {port_no if port.interface is None else next(free): port for port_no, port in switch.ports.items()}


class Lab:
    """The switches, hosts and traffic, for one ``with``; InvalidValueError if switches have to use TLS."""

    def __init__(self, config: Config, offers: Sequence[Offer]) -> None:
        if config.openflow_tls is not None:
            reason = "needs switches with TLS; the lab's switches have none"
            raise InvalidValueError("openflow.certificate", config.openflow_tls.certificate, reason)
        self._config = config
        listen = config.openflow_listen
        self.fabric = WireFabric((listen.host, listen.port), retry_s=0.5)
        capacity_of_end = {(end.dpid, end.port_no): link.capacity_bps for link in config.links for end in link.ends}
        self._number: dict[tuple[int, int], int] = {}  # of a port at its switch, by dpid and configured port_no
        for switch in config.switches.values():
            numbered = _numbered(config, switch)
            self._number |= {(switch.dpid, port.port_no): number for number, port in numbered.items()}
            rates_bps = {number: float(port.capacity_bps) for number, port in numbered.items()}
            rates_bps |= {
                port_no: float(bps) for (dpid, port_no), bps in capacity_of_end.items() if dpid == switch.dpid
            }
            names = {number: port.interface or port.expect for number, port in numbered.items()}
            given_names = {number: name for number, name in names.items() if name is not None and name != ANY_NAME}
            self.fabric.add_switch(switch.dpid, rates_bps, names=given_names)
        for link in config.links:
            one, other = link.ends
            self.fabric.link((one.dpid, one.port_no), (other.dpid, other.port_no))
        macs = {vn: _FIRST_MAC + index for index, vn in enumerate(config.vns())}
        for offer in offers:
            sender = offer.sender
            self.fabric.rates.offer(
                sender.dpid,
                self._number[sender.dpid, sender.port_no],
                float(offer.rate_bps),
                eth_src=macs[sender],
                eth_dst=macs[offer.receiver],
                vlan_vid=self._tag(sender),
            )
        self._frames = [
            (
                vn.dpid,
                self._number[vn.dpid, vn.port_no],
                build_frame(FrameHeader(_EVERYBODY, mac, self._tag(vn), _ETH_TYPE), b"").ljust(60, b"\0"),
            )
            for vn, mac in macs.items()
        ]

    def __enter__(self) -> Lab:
        self.fabric.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.fabric.stop(check=False)

    def run(self, report_progress: Callable[[str], None], duration_s: float | None = None) -> None:
        """Let the hosts send regularly, so that the controller learns them, for a time or until Ctrl-C.

        ``report_progress`` gets the names of switches that connect or are disconnected, and a line if none connects.
        """
        report_at_s = time.monotonic() + NO_CONTROLLER_S
        end_s = None if duration_s is None else time.monotonic() + duration_s
        connected: set[str] = set()
        broadcast_at_s, pause_s = 0.0, BROADCAST_INTERVAL_S
        while end_s is None or time.monotonic() < end_s:
            now_connected = {
                name for name, switch in self._config.switches.items() if self.fabric.connected(switch.dpid)
            }
            for name in sorted(now_connected ^ connected):
                report_progress(f"{name} {'is connected' if name in now_connected else 'is disconnected'}")
            if now_connected:
                report_at_s = math.inf
            elif time.monotonic() >= report_at_s:
                report_progress(
                    f"no controller accepts the switches at {self._config.openflow_listen}; they keep trying"
                )
                report_at_s = math.inf
            if now_connected > connected:  # repeat soon: the controller may not listen yet
                broadcast_at_s, pause_s = 0.0, POLL_INTERVAL_S
            if time.monotonic() >= broadcast_at_s:
                pause_s = min(2 * pause_s, BROADCAST_INTERVAL_S)
                broadcast_at_s = time.monotonic() + pause_s
                for dpid, port_no, frame in self._frames:
                    self.fabric.inject(dpid, port_no, frame)
            connected = now_connected
            time.sleep(POLL_INTERVAL_S)

    def _tag(self, vn: Vn) -> int | None:
        """Return the VLAN tag of a VN's frames at its port; None: untagged."""
        return self._config.switches[vn.switch].ports[vn.port_no].tag_of(vn.vlan_vid)
