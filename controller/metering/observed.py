"""What a control step may know besides the senders' meters: readings of queues and links, one value an interval."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from controller.metering.port_readings import PortReadings
from controller.metering.queue_readings import QueueReadings


class Reading(Enum):
    """What can be read for a policy; nothing is computed that none asks for."""

    LINKS = "links"
    """Paths and capacities of links."""
    QUEUES = "queues"
    PORTS = "ports"


@dataclass(frozen=True)
class Observed:
    """The readings of one interval; None where nobody asked."""

    queues: QueueReadings | None = None
    ports: PortReadings | None = None
