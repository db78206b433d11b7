"""Further readings of a control step, besides the senders' meters: of queues, links and marks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from controller.metering.mark_readings import MarkReadings
from controller.metering.port_readings import PortReadings
from controller.metering.queue_readings import QueueReadings


class ReadingKind(StrEnum):
    """What can be read for a policy; readings that no policy uses are not computed."""

    LINKS = "links"
    """Paths and capacities of links."""
    QUEUES = "queues"
    PORTS = "ports"
    MARKS = "marks"
    """Marks: the VLANs of the policy get meters for them."""


@dataclass(frozen=True)
class FabricReadings:
    """The readings of one interval; None where no policy uses them."""

    queues: QueueReadings | None = None
    ports: PortReadings | None = None
    marks: MarkReadings | None = None
