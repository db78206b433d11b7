"""Frames to agents: DETS's messages, chosen by the rates that each agent reports.

A pair that its agent does not report gets Initialize and Set Rate; a pair reported with another rate gets Set Rate; any
other pair gets Keep Alive. A reported pair that does not exist gets Deactivate. So a lost frame is repeated, although
neither end keeps a record of sent frames.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.agents.agent_port import AgentPort
from controller.agents.control_frames import (
    CONTROLLER_MAC,
    LAYOUTS,
    LONG_PARAMETER_BYTES,
    SHORT_PARAMETER_BYTES,
    Feature,
    FrameAddress,
    Opcode,
    encode,
    mac_octets,
    records,
)
from controller.columns import BoolArray, IntArray
from controller.fabric.agent_ports import AgentFrame
from controller.fabric.config_model import Config
from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable


class AgentRates(NamedTuple):
    """The rates that agents must apply, and those that they report; columns of shape (pairs,).

    ``sender`` is a row of the VN table. A VN's own limit is written as a pair with the sender's address at both ends.
    ``reported_mask`` is the mask of the pairs with a recent report.
    """

    sender: IntArray
    sender_mac: IntArray
    receiver_mac: IntArray
    desired_kbps: IntArray
    reported_kbps: IntArray
    reported_mask: BoolArray


class AgentOutbox:
    """Frames for the agents at ``ports``, until they are drained. ``epoch`` is the controller's."""

    def __init__(self, config: Config, vns: VnTable, ports: dict[PortId, AgentPort], epoch: int) -> None:
        self.epoch = epoch
        self._config, self._vns, self._ports = config, vns, ports
        self._frames: list[AgentFrame] = []

    def drain(self) -> list[AgentFrame]:
        """Return the queued frames, and clear them."""
        taken, self._frames = self._frames, []
        return taken

    def send_rates(self, own: AgentRates, pairs: AgentRates, now_s: float) -> None:
        """Queue rates that agents do not report yet: each VN's ``own`` limit, then those of its ``pairs``."""
        columns = [np.concatenate(both) for both in zip(own, pairs, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        sender, sender_mac, receiver_mac, meant, reported, heard = (column[order] for column in columns)
        said = {
            Opcode.INITIALIZE: ~heard,
            Opcode.SET_RATE: ~heard | (reported != meant),
            Opcode.KEEP_ALIVE: heard & (reported == meant),
        }
        for opcode, chosen in said.items():
            rows = np.flatnonzero(chosen)
            if not len(rows):
                continue
            entries = np.zeros(len(rows), dtype=LAYOUTS[opcode])
            entries["sender"], entries["receiver"] = mac_octets(sender_mac[rows]), mac_octets(receiver_mac[rows])
            if opcode is Opcode.SET_RATE:
                entries["rate_kbps"] = meant[rows]
            # The rows are ordered by sender: each sender's rows are one range.
            starts = np.flatnonzero(np.diff(sender[rows], prepend=-1))
            for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
                self._send(int(sender[rows[start]]), opcode, entries[start:end], now_s)

    def deactivate(self, pairs: Iterable[tuple[int, bytes, bytes]], now_s: float) -> None:
        """Queue Deactivate for pairs: the sender (a row of the VN table) and the addresses of both ends."""
        by_sender: dict[int, list[tuple[bytes, bytes]]] = {}
        for sender, *ends in pairs:
            by_sender.setdefault(sender, []).append((ends[0], ends[1]))
        for sender, known in by_sender.items():
            agent = self._agent_of(sender)
            if agent is None or not agent.present:
                continue
            octets = np.frombuffer(b"".join(one for ends in known for one in ends), dtype=np.uint8).reshape(-1, 2, 6)
            entries = np.zeros(len(known), dtype=LAYOUTS[Opcode.DEACTIVATE])
            entries["sender"], entries["receiver"] = octets[:, 0], octets[:, 1]
            self._send(sender, Opcode.DEACTIVATE, entries, now_s)

    def hello(self, port: PortId, agent: AgentPort, now_s: float) -> None:
        """Answer an agent's Hello."""
        features = Feature.REPORTS | (Feature.LONG_FRAMES if self._config.agent_long_frames else 0)
        entry = records(
            Opcode.HELLO,
            features=[int(features)],
            interval_ms=[self._config.interval_ms],
            most_classes=[0],
            link_rate_kbps=[min(agent.port.capacity_bps // 1000, 2**32 - 1)],
        )
        row = self._vns.row_of(agent.port.vlan_vids[0], *port)  # any VN of the port leads to the agent
        if row is not None:
            self._send(row, Opcode.HELLO, entry, now_s)

    def _agent_of(self, vn: int) -> AgentPort | None:
        _, dpid, port_no = self._vns.key(vn)
        return self._ports.get(PortId(dpid, port_no))

    def _send(self, sender: int, opcode: Opcode, entries: NDArray[np.void], now_s: float) -> None:
        """Queue frames to the agent of a VN (row)."""
        agent = self._agent_of(sender)
        assert agent is not None, "only VNs behind agents get frames"
        vid, dpid, port_no = self._vns.key(sender)
        tag = agent.port.tag_of(vid)
        speaker = FrameAddress(agent.address, CONTROLLER_MAC, tag, self.epoch, agent.ethertype)
        longest = (
            LONG_PARAMETER_BYTES if agent.long_frames and self._config.agent_long_frames else SHORT_PARAMETER_BYTES
        )
        sequence = agent.sequence.get(vid, 0)
        frames = encode(speaker, opcode, entries, sequence + 1, int(now_s * 1000), longest)
        agent.sequence[vid] = (sequence + len(frames)) % 2**16
        self._frames += [AgentFrame(PortId(dpid, port_no), frame) for frame in frames]
