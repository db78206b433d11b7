"""Which edge port has which agent, and how far it is trusted.

| state | means |
|---|---|
| ABSENT | nothing was heard, or not for LOST_INTERVALS |
| HELLO | it has said Hello, and reports nothing yet |
| TRUSTED | it reports, and shapes what it has been asked to |
| MISTRUSTED | meters count what it denies (``verification``), or floods; for MISTRUST_S its switch drops its frames |
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
MISTRUST_S = 300.0
# So many frames more than it may say, over what it may say in the same time: an honest agent says a quarter of that.
FLOOD_FRAMES = 500
REORDERED, FOREIGN_VLAN, TOO_MANY, NOT_TRUSTED = "order", "vlan", "budget", "mistrusted"
"""Causes to refuse a frame besides those of the codec."""
REFUSED_CAUSES = (*map(str, FrameRejectCause), REORDERED, FOREIGN_VLAN, TOO_MANY, NOT_TRUSTED, NO_AGENT)


@dataclass
class AgentPort:
    """The agent behind one edge port, as far as it has been heard; ``refused`` counts frames by cause.

    ``excess`` is by how many frames it has said more than twice what it may (``floods``).
    """

    port: EdgePort
    state: AgentState = AgentState.ABSENT
    address: int = 0
    ethertype: int = 0
    features: int = 0
    epoch: int | None = None
    last_seen_s: float = -math.inf
    mistrusted_s: float | None = None  # since when its switch drops what it says
    answer_hello: bool = False
    most_frames: int = 16  # in an interval
    allowance: int = 16  # what is left of them; below zero: how many have come beyond
    excess: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    sequence: dict[int, int] = field(default_factory=dict)
    _order: dict[int, SequenceWindow] = field(default_factory=dict)

    @property
    def mode(self) -> AgentMode:
        """What the configuration says of it."""
        return self.port.agent

    @property
    def present(self) -> bool:
        """Whether it is there and is believed."""
        return self.state in (AgentState.HELLO, AgentState.TRUSTED)

    @property
    def long_frames(self) -> bool:
        """Whether it takes frames of more than 44 octets of parameters."""
        return bool(self.features & Feature.LONG_FRAMES)

    def seen(self, now_s: float) -> AgentSeen:
        """Return the agent as it is shown."""
        features = [feature.name.lower().replace("_", "-") for feature in Feature if self.features & feature]
        silent_s = math.nan if math.isinf(self.last_seen_s) else now_s - self.last_seen_s
        return AgentSeen(self.mode, self.state, features, silent_s, dict(self.refused))

    def accepts(self, frame: ControlFrame, now_s: float) -> int | None:
        """Return the VLAN that a frame is about if it is news to listen to, None after counting why not."""
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
        """Whether far more frames come than it may say, those of an interval that is over included.

        What came is compared with the time in which it came: a controller that has stood still finds many at once.
        """
        beyond = max(-self.allowance, 0)
        self.excess = max(self.excess + beyond - self.most_frames * elapsed_intervals, 0.0)
        return self.excess > FLOOD_FRAMES

    def count_rejected(self, cause: FrameRejectCause | str) -> None:
        """Count a frame that is not listened to."""
        self.refused[str(cause)] += 1
