"""The cases of ``dets bench enforcement``, the modes of enforcement, and which cases can run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.units import format_rate
from experiments.bench.enforcement.grant_schedules import PATTERNS
from experiments.bench.harness import check_known

# The modes of enforcement by name. None: the product's. A number: every meter is modified in every interval, to a burst
# of that many seconds of its rate.
ENFORCEMENT_MODES: dict[str, float | None] = {"dets": None, "naive-200ms": 0.200, "naive-20ms": 0.020}
GRANTS_BPS = (1_000_000, 5_000_000, 20_000_000, 50_000_000)
INTERVAL_MS = 55
WIRE_BITS = 8 * 1518  # a full frame with its VLAN tag
# Capacity of a receiver's port as a multiple of the grant: just above what the largest burst passes.
PORT_FACTOR = 5
# Packets per second that Open vSwitch forwards without loss on two cores, with the sources on the same machine.
MAX_PPS = {"user": 40_000, "kernel": 60_000}
MAX_SLOTS = 8  # cases side by side
UDP_DELIVERED_WITHIN, TCP_DELIVERED_WITHIN = 0.02, 0.05  # of the grant


@dataclass(frozen=True, slots=True)
class Traffic:
    """UDP at ``factor`` times the grant, or ``streams`` TCP flows with a congestion control."""

    factor: int = 0
    streams: int = 0
    congestion_control: str = ""

    @property
    def udp(self) -> bool:
        """Whether it is UDP."""
        return self.factor > 0

    @property
    def name(self) -> str:
        """The name in tables and options."""
        return f"udp-{self.factor}x" if self.udp else f"tcp-{self.streams}-{self.congestion_control}"

    @property
    def within(self) -> float:
        """The largest difference between delivered rate and grant, as a part of the grant."""
        return UDP_DELIVERED_WITHIN if self.udp else TCP_DELIVERED_WITHIN


TRAFFIC = {
    traffic.name: traffic
    for traffic in (
        Traffic(factor=2),
        Traffic(factor=10),
        *(Traffic(streams=n, congestion_control=cc) for cc in ("cubic", "reno", "bbr") for n in (1, 10)),
    )
}


@dataclass(frozen=True, slots=True)
class Case:
    """One sender and one receiver: the largest grant, how it changes, and the traffic."""

    grant_bps: int
    pattern: str
    traffic: Traffic

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"{format_rate(self.grant_bps)} {self.traffic.name} {self.pattern}"

    @property
    def most_pps(self) -> float:
        """The most packets per second that all switches together forward for this case, in any mode.

        The switches are the sender's vswitch, the edge switch and the receiver's vswitch. UDP above what the meter
        passes reaches only the first two.
        """
        passed_bps = PORT_FACTOR * self.grant_bps
        if not self.traffic.udp:
            return 3 * passed_bps / WIRE_BITS
        offered_bps = self.traffic.factor * self.grant_bps
        return (2 * offered_bps + min(passed_bps, offered_bps)) / WIRE_BITS


def default_cases() -> list[Case]:
    """Return the default subset, under five minutes: UDP and TCP under grants that stay, change and step down."""
    traffic = ("udp-2x", "udp-10x", "tcp-1-cubic", "tcp-10-cubic", "tcp-1-bbr")
    cases = chosen_cases((5_000_000,), traffic, ("constant", "walk-30"))
    return cases + chosen_cases((20_000_000,), ("udp-2x", "tcp-1-cubic"), ("step",))


def full_cases() -> list[Case]:
    """Return all cases."""
    return chosen_cases(GRANTS_BPS, tuple(TRAFFIC), tuple(PATTERNS))


def chosen_cases(grants_bps: Iterable[int], traffic: Sequence[str], patterns: Sequence[str]) -> list[Case]:
    """Return the cases with these grants, traffic and patterns; raise InvalidValueError for an unknown name."""
    check_known("traffic", traffic, list(TRAFFIC))
    check_known("pattern", patterns, list(PATTERNS))
    return [
        Case(grant_bps, pattern, TRAFFIC[name]) for grant_bps in grants_bps for name in traffic for pattern in patterns
    ]


def packed(cases: Iterable[Case], most_pps: float) -> list[list[Case]]:
    """Return the cases in batches that run side by side: at most ``most_pps`` and MAX_SLOTS cases of one grant each.

    Each case goes into the first batch with room, the heaviest case first. A case that is too heavy to run next to
    others, or for the machine, has a batch of its own.
    """
    batches: list[list[Case]] = []
    for case in sorted(cases, key=lambda candidate: (candidate.grant_bps, -candidate.most_pps)):
        for batch in batches:
            load_pps = sum(placed.most_pps for placed in batch) + case.most_pps
            if batch[0].grant_bps == case.grant_bps and len(batch) < MAX_SLOTS and load_pps <= most_pps:
                batch.append(case)
                break
        else:
            batches.append([case])
    return batches
