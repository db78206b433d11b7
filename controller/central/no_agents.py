"""Stand-in for agents in a fabric without them: meters alone shape. ``controller.agents`` has the real ones."""

from __future__ import annotations

from collections import Counter

from controller.central.fabric_state import FabricState
from controller.columns import BoolArray, FloatArray
from controller.fabric.agent_ports import AgentFrame, AgentSeen, AgentState, Shaping
from controller.fabric.topology import PortId
from controller.forwarding.pairs import Pair
from controller.metering.counters import Readings
from controller.rooms import room

NO_AGENT = "no-agent"
"""Cause of rejected frames from ports where the configuration has no agent."""


class NoAgents:
    """Does nothing for each method of ``AgentManager``. ``epoch`` is random at the controller's start."""

    def __init__(self, fabric: FabricState, epoch: int) -> None:
        self.epoch = epoch
        self._fabric = fabric
        self._refused_unconfigured = 0

    def inherit(self, before: NoAgents) -> None:
        """Do nothing: there is no state to take over."""
        self.epoch = before.epoch

    # -- what is known

    def agent_status(self, port: PortId) -> AgentSeen | None:
        """Return the agent behind an edge port, None where there is none."""

    def shaping(self) -> list[Shaping]:
        """Return who shapes each pair: meters alone."""
        return [Shaping.METER] * len(self._fabric.state.entries)

    def is_covered(self, sender: int) -> bool:
        """Return False: no VN has an agent."""
        return False

    def is_sole_shaper(self, sender: int) -> bool:
        """Return False: no VN has an agent."""
        return False

    def counts(self) -> dict[str, int]:
        """Return the number of agents in each state: none."""
        return dict.fromkeys(map(str, AgentState), 0)

    def refused(self) -> Counter[str]:
        """Return the number of rejected frames by cause: none."""
        return Counter({NO_AGENT: self._refused_unconfigured})

    # -- frames

    def receive_frame(self, port: PortId, octets: bytes, now_s: float) -> bool:
        """Ignore a frame that was received at an edge port.

        Return False: it was not processed.
        """
        self._refused_unconfigured += 1
        return False

    def drain_frames(self) -> list[AgentFrame]:
        """Return the frames to send: none."""
        return []

    # -- the interval

    def meter_changes(self) -> tuple[list[Pair], list[Pair]]:
        """Return the pairs that lose their meters, none, and the pairs that need one: an agent shaped them before."""
        entries = self._fabric.state.entries
        return [], [] if entries.all_metered else self._pairs(entries.meter_id == 0)

    def before_step(self, readings: Readings, now_s: float) -> tuple[Readings, BoolArray | None]:
        """Return the readings unchanged, and None: there are no agents."""
        return readings, None

    def after_step(self, rate_bps: FloatArray, now_s: float) -> None:
        """Do nothing: no agent needs the rates."""

    def _pairs(self, chosen: BoolArray) -> list[Pair]:
        entries = self._fabric.state.entries
        return list(map(Pair, entries.sender[chosen].tolist(), entries.receiver[chosen].tolist()))


def agents_of(fabric: FabricState, epoch: int) -> NoAgents:
    """Return the agent manager of a fabric."""
    if all(port.agent == "none" for _, port in fabric.config.ports()):
        return NoAgents(fabric, epoch)
    agents: NoAgents = room("agents").AgentManager(fabric, epoch)
    return agents
