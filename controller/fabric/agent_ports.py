"""What the controller and those who ask it say of agents on hosts: plain values, also where none is listened to."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from controller.fabric.config_model import AgentMode
from controller.fabric.topology import PortId


class AgentState(StrEnum):
    """How far the agent at a port is (``controller.agents.agent_port``)."""

    ABSENT = "absent"
    HELLO = "hello"
    TRUSTED = "trusted"
    MISTRUSTED = "mistrusted"


class Shaping(StrEnum):
    """Who shapes an entry."""

    METER = "meter"
    AGENT = "agent"
    BOTH = "both"


class AgentFrame(NamedTuple):
    """A frame for the agent behind an edge port."""

    port: PortId
    octets: bytes


class AgentSeen(NamedTuple):
    """The agent behind an edge port as it is shown.

    ``silent_s`` is since when it was not heard, as of the last interval; NaN: never heard. ``refused`` are the frames
    of it that were not listened to, by cause.
    """

    mode: AgentMode
    state: AgentState
    features: list[str]
    silent_s: float
    refused: dict[str, int]
