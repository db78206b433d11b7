"""The path of one frame: tables, meters, actions (OpenFlow 1.3.5, sections 5.1 to 5.12).

The same walk serves packets, which are counted and policed, and traces, which only record where a frame would go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from controller.errors import ProtocolError
from controller.openflow import constants as ofp
from controller.openflow.actions import (
    ETH_TYPE_VLAN,
    Action,
    Output,
    PopVlan,
    PushVlan,
    SetIpEcn,
    SetQueue,
    SetVlanVid,
)
from controller.openflow.ethernet import ip_ecn_of, parse_frame, with_ip_ecn
from experiments.switch.flow_tables import FlowTableEntry, FlowTables

_ADDRESSES = 12  # bytes of both MAC addresses, in front of a tag
_TAG = 4  # bytes
_TAG_TYPE = ETH_TYPE_VLAN.to_bytes(2)


class Visitor(Protocol):
    """Observer of every step of the walk."""

    def hit(self, entry: FlowTableEntry, octets: int) -> None:
        """The frame matched this entry."""

    def police(self, meter_id: int, octets: int) -> bool:
        """The frame passes through this meter; False drops it."""
        ...

    def output(self, port_no: int, queue_id: int | None, frame: bytes) -> None:
        """The frame goes to this port, which exists."""

    def to_controller(
        self, entry: FlowTableEntry | None, in_port: int, frame: bytes, max_len: int, metadata: int
    ) -> None:
        """The frame goes to the controller; ``entry`` is None for a frame of a packet-out."""


class _FrameState(NamedTuple):
    """The state of a frame: its input port, the matching entry (None: in a packet-out), and its metadata."""

    in_port: int
    entry: FlowTableEntry | None
    metadata: int


class Pipeline:
    """The walk through the tables of one switch with the ports ``ports``.

    With ``ignores_set_queue`` every frame goes to the default queue, as on Open vSwitch's userspace datapath.
    """

    def __init__(self, tables: FlowTables, ports: Mapping[int, object], ignores_set_queue: bool = False) -> None:
        self._ignores_set_queue = ignores_set_queue
        self._tables = tables
        self._ports = ports

    def run(self, in_port: int, frame: bytes, visitor: Visitor) -> None:
        """Process ``frame`` from table 0 on; a frame without a whole Ethernet header is dropped."""
        table_id: int | None = 0
        queue_id: int | None = None
        metadata = 0
        while table_id is not None:
            try:
                header = parse_frame(frame)
            except ProtocolError:
                return
            entry = self._tables.lookup(table_id, in_port, header, metadata, ip_ecn_of(frame, header))
            if entry is None:
                return
            flow = entry.flow
            visitor.hit(entry, len(frame))
            if flow.meter_id is not None and not visitor.police(flow.meter_id, len(frame)):
                return
            state = _FrameState(in_port, entry, metadata)
            frame, queue_id = self._apply(flow.actions, state, frame, queue_id, visitor)
            if flow.write_metadata is not None:
                metadata = metadata & ~flow.write_metadata.mask | flow.write_metadata.value
            table_id = flow.goto_table

    def act(self, actions: tuple[Action, ...], in_port: int, frame: bytes, visitor: Visitor) -> None:
        """Perform the actions of a packet-out."""
        self._apply(actions, _FrameState(in_port, None, 0), frame, None, visitor)

    def _apply(
        self,
        actions: tuple[Action, ...],
        state: _FrameState,
        frame: bytes,
        queue_id: int | None,
        visitor: Visitor,
    ) -> tuple[bytes, int | None]:
        """Return (frame, queue id) after the actions; outputs go to ``visitor``."""
        for action in actions:
            match action:
                case Output(port_no, max_len):
                    self._output(port_no, max_len, state, frame, queue_id, visitor)
                case SetQueue(number):
                    queue_id = None if self._ignores_set_queue else number
                case PushVlan():
                    frame = frame[:_ADDRESSES] + _TAG_TYPE + b"\0\0" + frame[_ADDRESSES:]
                case SetVlanVid(vlan_vid) if frame[_ADDRESSES : _ADDRESSES + 2] == _TAG_TYPE:
                    priority = frame[_ADDRESSES + 2] & 0xF0  # priority and drop eligible indicator stay
                    tci = (vlan_vid | priority << 8).to_bytes(2)
                    frame = frame[: _ADDRESSES + 2] + tci + frame[_ADDRESSES + _TAG :]
                case PopVlan() if frame[_ADDRESSES : _ADDRESSES + 2] == _TAG_TYPE:
                    frame = frame[:_ADDRESSES] + frame[_ADDRESSES + _TAG :]
                case SetIpEcn(ip_ecn):
                    frame = with_ip_ecn(frame, ip_ecn)
        return frame, queue_id

    def _output(
        self,
        port_no: int,
        max_len: int,
        state: _FrameState,
        frame: bytes,
        queue_id: int | None,
        visitor: Visitor,
    ) -> None:
        """Send a frame to a port, or to the ports that a reserved port number stands for."""
        in_port, entry, metadata = state
        if port_no == ofp.PORT_CONTROLLER:
            visitor.to_controller(entry, in_port, frame, max_len, metadata)
        elif port_no == ofp.PORT_TABLE and entry is None:
            self.run(in_port, frame, visitor)
        elif port_no in (ofp.PORT_ALL, ofp.PORT_FLOOD):
            for number in self._ports:
                if number != in_port:
                    visitor.output(number, queue_id, frame)
        elif port_no == ofp.PORT_IN_PORT:
            visitor.output(in_port, queue_id, frame)
        elif port_no != in_port:  # a packet goes back only by IN_PORT (section 7.2.5)
            visitor.output(port_no, queue_id, frame)
