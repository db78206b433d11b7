"""What a control step may know besides the senders' meters: readings of queues and links, one value an interval."""

from __future__ import annotations

from enum import Enum


class Reading(Enum):
    """What can be read for a policy; nothing is computed that none asks for."""

    LINKS = "links"
    """Paths and capacities of links."""
