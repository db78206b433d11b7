"""The main program of ``dets agent``: the shaper, the socket, signals; the probe and the dry run."""

from __future__ import annotations

import logging
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from apps.agent.agent import Agent, AgentOptions
from apps.agent.frame_socket import FrameSocket
from apps.agent.htb import HtbShaper
from apps.agent.root_qdisc import DIRECT_PRIORITY
from apps.agent.shaper import VN_AGGREGATE, PairCounters, ShapedPair, Shaper
from controller.agents.control_frames import CONTROLLER_MAC, Feature, FrameAddress, Opcode, encode, records
from controller.errors import InvalidValueError
from controller.openflow.ethernet import ETH_TYPE_LOCAL_EXPERIMENT, ETH_TYPE_MAC_CONTROL

PROBE_S, PROBES = 2.0, 4
MAX_VLAN_VID = 4094


def parse_vlans(text: str | None, *, access: bool) -> tuple[int, ...]:
    """Return the VLAN ids of ``10,20``, or 0 for an access port, which sends untagged frames."""
    if access == (text is not None):
        reason = "cannot be with --access" if access else "is needed, or --access"
        raise InvalidValueError("vlans", text, reason)
    if text is None:
        return (0,)
    vids = [int(word) if word.isdecimal() else 0 for word in text.split(",")]
    if len(set(vids)) != len(vids) or not all(1 <= vid <= MAX_VLAN_VID for vid in vids):
        raise InvalidValueError("vlans", text, f"must be different VLAN ids of 1 to {MAX_VLAN_VID}, as 10,20")
    return tuple(vids)


def check_interface(interface: str) -> None:
    """Raise InvalidValueError for an interface that this host does not have."""
    names = [name for _, name in socket.if_nameindex()]
    if interface not in names:
        raise InvalidValueError("interface", interface, f"is no interface of this host; there are {', '.join(names)}")


def link_rate_bps(interface: str, option_bps: int | None) -> int:
    """Return a link's rate: that of the option, otherwise the interface's speed. Raises InvalidValueError."""
    if option_bps is not None:
        return option_bps
    path = Path("/sys/class/net") / interface / "speed"
    try:
        mbps = int(path.read_text())
    except (OSError, ValueError):
        mbps = -1
    if mbps <= 0:
        raise InvalidValueError("link_rate", None, f"is needed: {interface} reports no speed")
    return mbps * 1_000_000


class DryShaper:
    """Prints what a shaper would do, and changes nothing."""

    most_pairs = HtbShaper.most_pairs

    def set_rates(self, rates: Sequence[tuple[ShapedPair, int]]) -> None:
        """Print the rates."""
        for pair, rate_bps in rates:
            print(f"would shape {_shown(pair)} to {rate_bps / 1e6:g} Mbit/s", flush=True)

    def remove(self, pairs: Sequence[ShapedPair]) -> None:
        """Print the removed pairs."""
        for pair in pairs:
            print(f"would remove {_shown(pair)}", flush=True)

    def counters(self, pairs: Sequence[ShapedPair]) -> PairCounters:
        """Return zero counts."""
        zeros = np.zeros(len(pairs), dtype=np.int64)
        return PairCounters(zeros, zeros, zeros)

    def close(self, *, keep: bool) -> None:
        """Do nothing: there is nothing to remove."""


def _shown(pair: ShapedPair) -> str:
    """Return a pair as text."""
    vlan = f"VLAN {pair.vlan_vid}" if pair.vlan_vid else "untagged frames"
    return f"all of {vlan}" if pair.destination == VN_AGGREGATE else f"{vlan} to {pair.destination.hex(':')}"


def run_agent(interface: str, options: AgentOptions, *, replace_root: bool, keep: bool, dry_run: bool) -> int:
    """Shape an interface until SIGTERM or SIGINT; return the exit status.

    ``keep`` leaves the rates on the interface.
    """
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stderr)
    with FrameSocket(interface, DIRECT_PRIORITY) as sock:
        shaper: Shaper
        if dry_run:
            vlans = ", ".join("untagged" if vid == 0 else str(vid) for vid in options.vlans)
            rate = f"{options.link_rate_bps / 1e6:g} Mbit/s"
            print(f"would give {interface} an HTB root of {rate}, VLANs {vlans}")
            shaper = DryShaper()
        else:
            shaper = HtbShaper(interface, options.vlans, options.link_rate_bps, replace=replace_root)
        agent = Agent(options, shaper, sock)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: agent.stop())
        print("ready", flush=True)
        try:
            agent.run()
        finally:
            shaper.close(keep=keep)
    return 0


def probe(interface: str, options: AgentOptions) -> int:
    """Print with which EtherTypes control frames reach the controller and return; return the exit status.

    Sends Hello with each EtherType PROBES times, within PROBE_S.
    """
    answered: set[int] = set()  # EtherTypes
    with FrameSocket(interface, 0) as sock:
        hello = records(
            Opcode.HELLO, features=[Feature.REPORTS], interval_ms=[55], most_classes=[0], link_rate_kbps=[0]
        )
        end_s = time.monotonic() + PROBE_S
        for number in range(PROBES):  # also the sequence number
            for ethertype in (ETH_TYPE_MAC_CONTROL, ETH_TYPE_LOCAL_EXPERIMENT):
                for vid in options.vlans:
                    speaker = FrameAddress(
                        CONTROLLER_MAC, sock.address, vid or None, int(time.time()) % 2**32, ethertype
                    )
                    sock.send(encode(speaker, Opcode.HELLO, hello, number, 0))
            next_probe_s = end_s - PROBE_S * (PROBES - 1 - number) / PROBES
            while (remaining_s := next_probe_s - time.monotonic()) > 0:
                if select.select([sock], [], [], remaining_s)[0]:
                    speakers = [frame.speaker for frame in sock.receive(100)]
                    answered |= {speaker.ethertype for speaker in speakers if speaker.source == CONTROLLER_MAC}
    for ethertype in (ETH_TYPE_MAC_CONTROL, ETH_TYPE_LOCAL_EXPERIMENT):
        print(f"{ethertype:#06x}: {'a controller answers' if ethertype in answered else 'no answer'}")
    if not answered:
        print("no controller hears this port: is its agent key set, and is the switch connected?")
        return 1
    best = ETH_TYPE_MAC_CONTROL if ETH_TYPE_MAC_CONTROL in answered else ETH_TYPE_LOCAL_EXPERIMENT
    print(f"use --ethertype {best:#06x}")
    return 0


def checked(options: AgentOptions) -> AgentOptions:
    """Return the options if they are valid; raise InvalidValueError naming the first invalid one."""
    if options.ethertype not in (ETH_TYPE_MAC_CONTROL, ETH_TYPE_LOCAL_EXPERIMENT):
        raise InvalidValueError("ethertype", f"{options.ethertype:#06x}", "is neither 0x8808 nor 0x88b5")
    if not 10 <= options.interval_ms <= 10_000:
        raise InvalidValueError("interval", options.interval_ms, "is outside 10 to 10000 milliseconds")
    return replace(options)
