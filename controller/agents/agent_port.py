"""The agent at an edge port: its state, and whether it is trusted.

| state | means |
|---|---|
| ABSENT | no frame was received, or none for TIMEOUT_INTERVALS |
| HELLO | the agent sent Hello, and no report yet |
| TRUSTED | the agent reports, and applies the rates that it is sent |
| DISTRUSTED | meters count more than the agent reports, or it floods; its frames are dropped for DISTRUST_S |
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from controller.agents.control_frames import ControlFrame, Feature, FrameRejectCause, Opcode, SequenceWindow
from controller.central.no_agents import NO_AGENT
from controller.dets.send_rate_controller import KEEP_ALIVE_INTERVALS
from controller.fabric.agent_ports import AgentSeen, AgentState
from controller.fabric.config_model import AgentMode, EdgePort

TIMEOUT_INTERVALS = KEEP_ALIVE_INTERVALS
DISTRUST_S = 300.0
# Frames above the allowance, in excess of the allowance for the same time: a correct agent sends a quarter of it.
FLOOD_FRAMES = 500
REORDERED, FOREIGN_VLAN, TOO_MANY, NOT_TRUSTED = "order", "vlan", "budget", "distrusted"
"""Causes of rejected frames besides those of the codec."""
REFUSED_CAUSES = (*map(str, FrameRejectCause), REORDERED, FOREIGN_VLAN, TOO_MANY, NOT_TRUSTED, NO_AGENT)


@dataclass
class AgentPort:
    """The agent behind one edge port, by the frames received from it; ``refused`` counts rejected frames by cause.

    ``excess`` is the number of frames above twice the allowance (``exceeds_allowance``).
    """

    port: EdgePort
    state: AgentState = AgentState.ABSENT
    address: int = 0
    ethertype: int = 0
    features: int = 0
    epoch: int | None = None
    last_seen_s: float = -math.inf
    distrusted_s: float | None = None  # since when its switch drops its frames
    answer_hello: bool = False
    most_frames: int = 16  # in an interval
    allowance: int = 16  # the rest of them; below zero: the number of frames above
    excess: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    sequence: dict[int, int] = field(default_factory=dict)
    _order: dict[int, SequenceWindow] = field(default_factory=dict)

    @property
    def mode(self) -> AgentMode:
        """Return the mode that the configuration sets for the agent."""
        return self.port.agent

    @property
    def present(self) -> bool:
        """Return whether the agent is present and trusted."""
        return self.state in (AgentState.HELLO, AgentState.TRUSTED)

    @property
    def long_frames(self) -> bool:
        """Return whether the agent accepts frames with more than 44 bytes of parameters."""
        return bool(self.features & Feature.LONG_FRAMES)

    def status(self, now_s: float) -> AgentSeen:
        """Return the agent as REST shows it."""
        features = [feature.name.lower().replace("_", "-") for feature in Feature if self.features & feature]
        silent_s = math.nan if math.isinf(self.last_seen_s) else now_s - self.last_seen_s
        return AgentSeen(self.mode, self.state, features, silent_s, dict(self.refused))

    def accepts(self, frame: ControlFrame, now_s: float) -> int | None:
        """Return the VLAN that a new frame is about; None, after counting the cause, for a frame that is rejected."""
        tag = frame.speaker.vlan_vid
        vid = self.port.untagged_vid if tag is None else tag
        if vid is None or vid not in self.port.vlan_vids or self.port.tag_of(vid) != tag:
            self.refused[FOREIGN_VLAN] += 1
            return None
        if not self._order.setdefault(vid, SequenceWindow()).accept(frame):
            self.refused[REORDERED] += 1
            return None
        self.last_seen_s = now_s
        self.address, self.ethertype = frame.speaker.source, frame.speaker.ethertype
        if frame.opcode is Opcode.HELLO:
            self.features = int(frame.entries[0]["features"])
            self.answer_hello = True
        return vid

    def exceeds_allowance(self, elapsed_intervals: float) -> bool:
        """Return whether the agent sent far more frames than it may, the frames of the last interval included.

        Frames are compared with the time in which they arrived, because a controller that was stopped receives many at
        once.
        """
        beyond = max(-self.allowance, 0)
        self.excess = max(self.excess + beyond - self.most_frames * elapsed_intervals, 0.0)
        return self.excess > FLOOD_FRAMES

    def count_rejected(self, cause: FrameRejectCause | str) -> None:
        """Count a rejected frame."""
        self.refused[str(cause)] += 1
