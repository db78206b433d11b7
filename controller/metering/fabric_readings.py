"""What a control step may know besides the senders' meters: readings of queues, links and marks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from controller.metering.mark_readings import MarkReadings
from controller.metering.port_readings import PortReadings
from controller.metering.queue_readings import QueueReadings


class ReadingKind(StrEnum):
    """What can be read for a policy; nothing is computed that none asks for."""

    LINKS = "links"
    """Paths and capacities of links."""
    QUEUES = "queues"
    PORTS = "ports"
    MARKS = "marks"
    """Meters for marks are given to the VLANs of the policy."""


@dataclass(frozen=True)
class FabricReadings:
    """The readings of one interval; None where nobody asked."""

    queues: QueueReadings | None = None
    ports: PortReadings | None = None
    marks: MarkReadings | None = None
