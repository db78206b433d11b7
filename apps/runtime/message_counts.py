"""How many OpenFlow messages went to and came from a switch; apart from the seam, so that metrics import no Ryu."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class MessageCounts:
    """What went to and came from one switch, over all its connections, but for the echoes."""

    sent: int = 0
    received: int = 0
    errors: int = 0
