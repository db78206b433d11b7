"""A fabric without agents on hosts: meters alone shape. The room ``controller.agents`` has those that listen."""

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
"""Why frames are refused that come from ports where the configuration has no agent."""


class NoAgents:
    """Listens to nobody and tells nobody; ``Agents`` does. ``epoch`` is random at the controller's start."""

    def __init__(self, fabric: FabricState, epoch: int) -> None:
        self.epoch = epoch
        self._fabric = fabric
        self._refused_unconfigured = 0

    def inherit(self, before: NoAgents) -> None:
        """Know of the agents at the same ports what ``before`` knew."""
        self.epoch = before.epoch

    # -- what is known

    def seen(self, port: PortId) -> AgentSeen | None:
        """Return the agent behind an edge port, None where there is none."""

    def shaping(self) -> list[Shaping]:
        """Return who shapes each entry."""
        return [Shaping.METER] * len(self._fabric.state.entries)

    def is_covered(self, sender: int) -> bool:
        """Whether the agent of a VN (row) is there, so that a pair of it can do without a meter."""
        return False

    def is_sole_shaper(self, sender: int) -> bool:
        """Whether a new pair of a VN (row) takes no meter: its agent is there and trusted."""
        return False

    def counts(self) -> dict[str, int]:
        """Return how many agents are in each state."""
        return dict.fromkeys(map(str, AgentState), 0)

    def refused(self) -> Counter[str]:
        """Return how many frames were refused, by cause."""
        return Counter({NO_AGENT: self._refused_unconfigured})

    # -- frames

    def receive_frame(self, port: PortId, octets: bytes, now_s: float) -> bool:
        """Take a frame that came in by an edge port; it never raises, whatever the octets.

        Return whether it was looked at.
        """
        self._refused_unconfigured += 1
        return False

    def drain_frames(self) -> list[AgentFrame]:
        """Return the frames to send since the last call."""
        return []

    # -- the interval

    def meter_changes(self) -> tuple[list[Pair], list[Pair]]:
        """Return the pairs whose meters are of no use any more, and those without one that need one again."""
        entries = self._fabric.state.entries
        return [], [] if entries.all_metered else self._pairs(entries.meter_id == 0)

    def before_step(self, readings: Readings, now_s: float) -> tuple[Readings, BoolArray | None]:
        """Return readings with what agents report, and which entries they shape (None: there are no agents)."""
        return readings, None

    def after_step(self, limit_bps: FloatArray, now_s: float) -> None:
        """Say what follows from the limits in force, shape (entries,)."""

    def _pairs(self, chosen: BoolArray) -> list[Pair]:
        entries = self._fabric.state.entries
        return list(map(Pair, entries.sender[chosen].tolist(), entries.receiver[chosen].tolist()))


def agents_of(fabric: FabricState, epoch: int) -> NoAgents:
    """Return what listens to the agents of a fabric."""
    if all(port.agent == "none" for _, port in fabric.config.ports()):
        return NoAgents(fabric, epoch)
    agents: NoAgents = room("agents").AgentManager(fabric, epoch)
    return agents
