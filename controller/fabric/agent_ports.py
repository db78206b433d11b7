"""Host agents at edge ports as values, for code that does not need the agent manager."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from controller.fabric.config_model import AgentMode
from controller.fabric.topology import PortId


class AgentState(StrEnum):
    """The state of the agent at a port (``controller.agents.agent_port``)."""

    ABSENT = "absent"
    HELLO = "hello"
    TRUSTED = "trusted"
    DISTRUSTED = "distrusted"


class Shaping(StrEnum):
    """Who shapes a pair."""

    METER = "meter"
    AGENT = "agent"
    BOTH = "both"


class AgentFrame(NamedTuple):
    """A frame for the agent behind an edge port."""

    port: PortId
    octets: bytes


class AgentSeen(NamedTuple):
    """The agent behind an edge port, as REST shows it.

    ``silent_s`` is the time since the agent's last frame, as of the last interval; NaN: no frame yet. ``refused``
    counts the agent's rejected frames by cause.
    """

    mode: AgentMode
    state: AgentState
    features: list[str]
    silent_s: float
    refused: dict[str, int]
