"""What a switch can do, by its own statements and by tests, and what can therefore be enforced at its edge ports.

A switch may lack meters, their counters or queues, or accept them without effect. ``profile`` in the configuration
names what a switch lacks; ``auto`` relies on what the switch states, on the tests of ``meter_probe`` (once, when it
connects), and on ``meter_monitor`` and ``queue_monitor`` (all the time, on its counters).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controller.fabric.config_model import EdgePort, MeterSettings, Profile
from controller.fabric.meter_bounds import UNBOUNDED, MeterBounds
from controller.fabric.vn_table import VnTable
from controller.limits.link_headroom import HeadroomShortage
from controller.openflow.constants import ControllerRole, MeterFlags
from controller.openflow.meters import MeterFeatures
from controller.openflow.multipart import SwitchDesc


class ProbeResult(StrEnum):
    """The result of testing one ability of a switch."""

    UNKNOWN = "unknown"
    ABSENT = "absent"
    WORKS = "works"
    FAILS = "fails"


MAX_ALIASES = 4096  # settings that a switch reports otherwise; the oldest are forgotten

UNUSABLE = frozenset({ProbeResult.ABSENT, ProbeResult.FAILS})


class Verdict(StrEnum):
    """Whether the limits of an edge port's VNs can be enforced."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Ability:
    """One ability: the result of its test, and why it is absent or has no effect."""

    finding: ProbeResult = ProbeResult.UNKNOWN
    why: str = ""

    @property
    def works(self) -> bool:
        """Return whether a test showed that the ability works."""
        return self.finding is ProbeResult.WORKS


UNKNOWN = Ability()


@dataclass(frozen=True, slots=True)
class Enforceability:
    """The verdict on an edge port, and the reasons why it is not ``yes``."""

    verdict: Verdict
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.verdict} ({'; '.join(self.why)})" if self.why else str(self.verdict)


PortVerdicts = dict[int, Enforceability]


@dataclass
class Verdicts:
    """The verdicts on the ports of each switch, by dpid.

    ``reported`` are those that the last event reported, ``seen`` the latest ones, with the time since which they hold.
    ``made`` has the evidence of the last computation, and its result. ``shaped`` are the verdicts that last decided
    whether queues hold receivers. ``short_of_headroom`` are the ports that lack headroom under the limits
    ``headroom_vns``.
    """

    reported: dict[int, PortVerdicts] = field(default_factory=dict)
    seen: dict[int, tuple[PortVerdicts, float]] = field(default_factory=dict)
    made: dict[int, tuple[tuple[object, ...], PortVerdicts]] = field(default_factory=dict)
    shaped: dict[int, PortVerdicts] = field(default_factory=dict)
    short_of_headroom: frozenset[HeadroomShortage] = frozenset()
    headroom_vns: VnTable | None = None


@dataclass
class Capabilities:
    """What is known of one switch.

    ``meters`` says whether meters limit, ``counters`` whether they count, ``set_queue`` whether entries may have that
    action at all, ``ecn`` whether they may match on congestion marks and clear them, and ``queues`` whether the queues
    of an edge port, by its number, take effect. ``queues_set`` says which edge ports have the queues that the limits
    want: None, or the reason why not; a port that is absent here gets no queues. ``meters_unused`` is the reason why no
    pair gets a meter, "" if pairs do. ``passive`` is what the counters of ordinary traffic show of meters. ``classes``:
    edge ports have a queue for each VLAN, not one. ``bounds`` are the bounds of a meter: ``configured_bounds`` from the
    configuration, otherwise by tests and error replies. ``aliases`` maps settings to the different values that the
    switch reports for them. ``lacking`` lists the meters that it rejected, and what has no meter because of that.
    """

    profile: Profile = "auto"
    configured_bounds: MeterSettings = field(default_factory=MeterSettings)
    features: MeterFeatures | None = None
    description: SwitchDesc | None = None
    role: ControllerRole | None = None
    tables: frozenset[int] = frozenset()
    meters: Ability = UNKNOWN
    counters: Ability = UNKNOWN
    set_queue: Ability = UNKNOWN
    ecn: Ability = UNKNOWN
    queues: dict[int, Ability] = field(default_factory=dict)
    queues_set: dict[int, str | None] = field(default_factory=dict)
    meters_unused: str = ""
    passive: Ability = UNKNOWN
    short_of_meters: bool = False
    refuses_meters: bool = False  # it did recently, in spite of a good test
    classes: bool = True
    lacking: tuple[str, ...] = ()
    aliases: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    bounds: MeterBounds = UNBOUNDED
    uses_meters: bool = field(init=False)

    def __post_init__(self) -> None:
        self.set_meters_unused(self.meters_unused)
        self.learn_bounds(self.bounds)

    def learn_bounds(self, bounds: MeterBounds) -> None:
        """Store the bounds that tests found; bounds from the configuration take precedence."""
        self.bounds = bounds._replace(**self.configured_bounds.bounds())

    def is_alias(self, requested: tuple[int, int], found: tuple[int, int]) -> bool:
        """Return whether a meter that reads ``found``, (kb/s, kb), may be the switch's rounding of ``requested``."""
        return requested == found or self.aliases.get(requested) == found

    def record_alias(self, requested: tuple[int, int], found: tuple[int, int]) -> None:
        """Record that the switch repeatedly accepts a setting and reports another one."""
        while len(self.aliases) >= MAX_ALIASES:
            del self.aliases[next(iter(self.aliases))]
        self.aliases[requested] = found

    def set_meters_unused(self, why: str) -> None:
        """Give no pair a meter, for this reason; "" gives pairs meters again. ``uses_meters`` is read in every round.

        Meters are not used either where they are absent, have no effect, or would stop all traffic.
        """
        self.meters_unused = why
        self.uses_meters = self.profile != "no-meters" and not why

    @property
    def uses_ecn(self) -> bool:
        """Return whether congestion marks are counted and cleared at this switch."""
        return self.uses_meters and self.ecn.finding not in UNUSABLE

    @property
    def counts_meters(self) -> bool:
        """Return whether rates are read from meters; otherwise from flow entries."""
        return self.profile != "no-meter-counters" and self.counters.finding not in (
            ProbeResult.ABSENT,
            ProbeResult.FAILS,
        )

    @property
    def sets_queues(self) -> bool:
        """Whether queues are set on edge ports."""
        return self.profile != "no-queues" and not (self.classes and self.set_queue.finding is ProbeResult.FAILS)

    @property
    def uses_queues(self) -> bool:
        """Return whether queues are set, and flow entries name them."""
        return self.classes and self.sets_queues

    @property
    def tested(self) -> bool:
        """Return whether meters need no further test: they limit and count, or the profile settles it."""
        return self.profile in ("full", "no-meters") or (self.meters.works and self.counters.works)

    def discard_tests(self) -> None:
        """Discard test results: another switch has connected. What the switch itself states stays."""
        self.meters = self.counters = self.set_queue = self.ecn = UNKNOWN
        self.set_meters_unused("")
        self.aliases = {}
        self.learn_bounds(UNBOUNDED)

    def note_features(self, features: MeterFeatures) -> None:
        """Record the meter features that the switch states."""
        self.features = features
        self.passive = UNKNOWN
        if not features.can_drop:
            self.disable_meters("the switch has no meters that drop")
        elif not features.capabilities & MeterFlags.STATS:
            self.counters = Ability(ProbeResult.ABSENT, "the switch states that its meters do not count")

    def disable_meters(self, why: str) -> None:
        """Record that meters are unusable, and why; pairs then have no meters."""
        self.meters = Ability(ProbeResult.ABSENT, why)
        self.counters = Ability(ProbeResult.ABSENT, why)
        if self.profile != "full":
            self.set_meters_unused(why)

    @property
    def evidence(self) -> tuple[object, ...]:
        """Return all values that verdicts on the switch's ports depend on.

        ``queues`` and ``queues_set`` are replaced, never changed.
        """
        known = (self.limits, self.counters, self.set_queue, self.role, self.short_of_meters, self.meters_unused)
        return (*known, self.refuses_meters, self.lacking, self.classes, self.queues, self.queues_set)

    @property
    def limits(self) -> Ability:
        """Return whether meters limit senders, by all evidence."""
        if self.profile == "no-meters":
            return Ability(ProbeResult.ABSENT, "its profile is no-meters")
        if self.meters_unused:
            return Ability(ProbeResult.ABSENT, self.meters_unused)
        # Present evidence from traffic overrides an earlier test.
        return self.passive if self.passive.finding is not ProbeResult.UNKNOWN else self.meters

    def shapes(self, port_no: int, *, sets_queues: bool) -> bool:
        """Return whether queues alone may hold the receivers behind a port; ``sets_queues``: there is an OVSDB address.

        Queues that are about to be set, or are not proven yet, are trusted.
        """
        if not self.uses_queues:
            return False
        if port_no in self.queues_set:
            return self.queue(port_no).finding not in UNUSABLE
        return sets_queues or self.queues.get(port_no, UNKNOWN).works

    def queue(self, port_no: int) -> Ability:
        """Return whether the receivers behind a port have queues that hold them to their limits."""
        if self.profile == "no-queues":
            return Ability(ProbeResult.ABSENT, "its profile is no-queues")
        if not self.classes:
            return Ability(ProbeResult.ABSENT, "queues.mode is single, so that its port has one queue for all VLANs")
        if not self.uses_queues:
            return self.set_queue
        effect = self.queues.get(port_no, UNKNOWN)
        if port_no not in self.queues_set:
            if effect.works:
                return Ability(ProbeResult.UNKNOWN, "its queues were not set by the controller (no ovsdb address)")
            return Ability(ProbeResult.ABSENT, "the switch has no ovsdb address to set queues with")
        problem = self.queues_set[port_no]
        return effect if problem is None else Ability(ProbeResult.ABSENT, problem)


NOT_CONNECTED = Enforceability(Verdict.NO, ("the switch is not connected; its last settings remain",))
UNTESTED = "has not been tested"


def enforceability(
    can: Capabilities, port_no: int, unlimited: Iterable[str] = (), *, agent: bool = False
) -> Enforceability:
    """Return what can be enforced at an edge port of a connected switch.

    ``unlimited`` names other switches with VNs of the port's VLANs whose senders cannot be limited. ``agent``: the
    agent on the host behind the port limits its senders.

    1) Senders behind the port are limited by its switch's meters.
    2) Receivers behind the port are protected by its queues at once, and by the senders' meters an interval later.
    3) Rates are known in time where meters count.
    """
    if can.role is ControllerRole.SLAVE:
        return Enforceability(Verdict.NO, ("the controller's role is slave: it cannot change the switch",))
    limits, queue = can.limits, can.queue(port_no)
    why = []
    # 1
    if agent and not limits.works:
        why.append("the agent of its host is trusted, and limits senders without meters")
    elif limits.finding is ProbeResult.UNKNOWN:
        why.append(f"that meters limit senders {UNTESTED}" + (f": {limits.why}" if limits.why else ""))
    elif not limits.works:
        why.append(f"senders are not limited: {limits.why}")
    elif can.lacking:
        why += (f"some senders are not limited: {one}" for one in can.lacking)
    elif can.refuses_meters:
        why.append("some senders are not limited: the switch rejects meters")
    elif can.short_of_meters:
        why.append("some senders are not limited: all meters are in use")
    # 2
    if queue.finding is ProbeResult.UNKNOWN:
        why.append(queue.why or f"that queues take effect {UNTESTED}")
    elif not queue.works:
        why.append(f"receivers have no queue: {queue.why}")
    others = sorted(unlimited)
    if others and not queue.works:
        why.append(f"senders at {', '.join(others)} are not limited, and no queue protects the receivers")
    # 3
    if can.uses_meters and not can.counts_meters:
        cause = can.counters.why or "its profile is no-meter-counters"
        why.append(f"rates are up to 500 ms stale: {cause}")
    if limits.finding in UNUSABLE and not agent and queue.finding in UNUSABLE:
        return Enforceability(Verdict.NO, tuple(why))
    return Enforceability(Verdict.PARTLY if why else Verdict.YES, tuple(why))


def group_by_verdict(verdicts: Mapping[int, Enforceability]) -> list[tuple[Enforceability, list[int]]]:
    """Return the verdicts of a switch's ports, each once, with the ports that have it in ascending order."""
    ports: dict[Enforceability, list[int]] = {}
    for port_no in sorted(verdicts):
        ports.setdefault(verdicts[port_no], []).append(port_no)
    return list(ports.items())


def format_port_ranges(port_nos: Iterable[int], ports: Mapping[int, EdgePort]) -> str:
    """Return ports of a switch, by ascending numbers, as people write them: ``1-4, 7, eth3``."""
    named = {port_no: port.interface for port_no, port in ports.items() if port.interface is not None}
    shown, runs = list(port_nos), list[list[int]]()
    for port_no in (one for one in shown if one not in named):
        if runs and runs[-1][1] == port_no - 1:
            runs[-1][1] = port_no
        else:
            runs.append([port_no, port_no])
    ranges = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return ", ".join([*ranges, *(named[one] for one in shown if one in named)])


def faults(can: Capabilities, ports: Mapping[int, EdgePort]) -> list[str]:
    """Return what must work and does not; what a profile or the configuration excludes is no fault."""
    reasons = []
    if can.profile != "no-meters" and can.limits.finding in UNUSABLE:
        reasons.append(f"senders are not limited: {can.limits.why}")
    reasons += can.lacking
    failing: dict[str, list[int]] = {}
    for port_no in sorted(ports):
        ability = can.queue(port_no)
        if can.profile != "no-queues" and port_no in can.queues_set and ability.finding is ProbeResult.FAILS:
            failing.setdefault(ability.why, []).append(port_no)
    for why, without in failing.items():
        reasons.append(f"receivers at port {format_port_ranges(without, ports)} have no queue: {why}")
    return reasons
