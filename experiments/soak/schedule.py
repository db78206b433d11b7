"""What happens in a soak, and when: a pure function of the fabric, the duration and the seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from topologies.fabric import Fabric

VICTIM_VLAN_INDEX = 0  # the VLAN of the TCP tenant that is judged; the other one blasts
ALGORITHMS = ("fs", "sp", "fp", "fe")
LEAST_S, MOST_S = 60.0, 86_400.0
CALM_START_S = 8.0  # the tenant's TCP alone, before the first action
CALM_END_S = 6.0  # after the last one
# In a long run the last third has no restarts, so that one life of the controller is long enough to see memory grow.
LONG_S, RESTARTS_SHARE = 900.0, 2 / 3
RECEIVE_LIMITS_BPS = (8_000_000, 12_000_000, 16_000_000, 20_000_000)
SEND_LIMITS_BPS = (12_000_000, 16_000_000, 20_000_000)
UDP_RATES_BPS = (2_000_000, 8_000_000, 15_000_000)


class ActionKind(StrEnum):
    """The kinds of actions."""

    FLOW = "flow"
    LIMIT = "limit"
    ALGORITHM = "algorithm"
    LINK = "link"
    CONTROLLER = "controller"


class ChurnPace(NamedTuple):
    """The least and most seconds from one action of a kind to the next."""

    least_s: float
    most_s: float


PACES = {
    ActionKind.FLOW: ChurnPace(1.5, 3.5),
    ActionKind.LIMIT: ChurnPace(6.0, 12.0),
    ActionKind.ALGORITHM: ChurnPace(14.0, 22.0),
    ActionKind.LINK: ChurnPace(20.0, 34.0),
    ActionKind.CONTROLLER: ChurnPace(34.0, 46.0),
}


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that is done at ``at_s`` after the begin. Which of the other fields mean something, the kind tells.

    FLOW: ``vlan_vid``, PNs ``sender`` and ``receiver``, ``rate_bps`` (None: TCP), for ``lasts_s``. LIMIT: of the VN of
    ``vlan_vid`` at PN ``receiver``; ``what`` is the REST field, ``rate_bps`` its value. ALGORITHM: ``what`` in
    ``vlan_vid``. LINK: the interface ``what`` goes down for ``lasts_s``. CONTROLLER: the signal ``what``; it is away
    for ``lasts_s``.
    """

    at_s: float
    kind: ActionKind
    what: str = ""
    vlan_vid: int = 0
    sender: int = 0
    receiver: int = 0
    rate_bps: int | None = None
    lasts_s: float = 0.0


def make_schedule(fabric: Fabric, duration_s: float, seed: int) -> list[Action]:
    """Return the actions in order of time. Every kind has its own pace and random stream, so that none starves another.

    The last PN of the fabric is the receiver that is judged: its own link stays up.
    """
    makers: dict[ActionKind, Callable[[random.Random, float, int], Action]] = {
        ActionKind.FLOW: lambda chance, at_s, number: _flow(fabric, chance, at_s, number),
        ActionKind.LIMIT: lambda chance, at_s, number: _limit(fabric, chance, at_s, number),
        ActionKind.ALGORITHM: lambda chance, at_s, _: _algorithm(fabric, chance, at_s),
        ActionKind.LINK: lambda chance, at_s, number: _link(fabric, chance, at_s, number),
        ActionKind.CONTROLLER: lambda chance, at_s, number: _controller(chance, at_s, number),
    }
    actions = []
    for kind, make in makers.items():
        chance = random.Random(f"{seed} {kind}")
        last_s = duration_s - CALM_END_S
        if kind == ActionKind.CONTROLLER and duration_s >= LONG_S:
            last_s = duration_s * RESTARTS_SHARE
        actions += [make(chance, at_s, number) for number, at_s in enumerate(_times(kind, chance, last_s))]
    return sorted(actions, key=lambda action: action.at_s)


def _times(kind: ActionKind, chance: random.Random, last_s: float) -> Iterator[float]:
    pace = PACES[kind]
    at_s = CALM_START_S + chance.uniform(0, pace.least_s)
    while at_s < last_s:
        yield round(at_s, 3)
        at_s += chance.uniform(*pace)


def _flow(fabric: Fabric, chance: random.Random, at_s: float, number: int) -> Action:
    """Every other flow is UDP towards the judged PN, in the other VLAN."""
    *others, judged = (pn.number for pn in fabric.pns)
    victim_vid, other_vid = fabric.vlans[VICTIM_VLAN_INDEX], fabric.vlans[1 - VICTIM_VLAN_INDEX]
    lasts_s = round(chance.uniform(3.0, 9.0))
    if number % 2 == 0:
        sender, udp_bps = chance.choice(others), chance.choice(UDP_RATES_BPS)
        return Action(at_s, ActionKind.FLOW, "", other_vid, sender, judged, udp_bps, lasts_s)
    vid = chance.choice([victim_vid, other_vid])
    sender, receiver = chance.sample([*others, judged] if vid == other_vid else others, 2)
    rate_bps = chance.choice([None, 2_000_000, 4_000_000])
    return Action(at_s, ActionKind.FLOW, "", vid, sender, receiver, rate_bps, lasts_s)


def _limit(fabric: Fabric, chance: random.Random, at_s: float, number: int) -> Action:
    """Every third change is of the judged VN's receive limit."""
    *others, judged = (pn.number for pn in fabric.pns)
    if number % 3 == 0:
        vid, receiver, what = fabric.vlans[VICTIM_VLAN_INDEX], judged, "receive_limit_bps"
    else:
        vid, receiver = chance.choice(fabric.vlans), chance.choice(others)
        what = chance.choice(["receive_limit_bps", "send_limit_bps"])
    rates = SEND_LIMITS_BPS if what == "send_limit_bps" else RECEIVE_LIMITS_BPS
    return Action(at_s, ActionKind.LIMIT, what, vid, 0, receiver, chance.choice(rates))


def _algorithm(fabric: Fabric, chance: random.Random, at_s: float) -> Action:
    return Action(at_s, ActionKind.ALGORITHM, chance.choice(ALGORITHMS), chance.choice(fabric.vlans))


def _link(fabric: Fabric, chance: random.Random, at_s: float, number: int) -> Action:
    """Core links and PNs' links in turn."""
    cores = [link.interfaces[0] for link in fabric.core_links]
    edges = [pn.trunk_interface for pn in fabric.pns[:-1]]
    names = edges if number % 2 or not cores else cores
    return Action(at_s, ActionKind.LINK, chance.choice(names), lasts_s=round(chance.uniform(2.0, 5.0), 3))


def _controller(chance: random.Random, at_s: float, number: int) -> Action:
    """A stop and a kill in turn."""
    what = "SIGKILL" if number % 2 else "SIGTERM"
    return Action(at_s, ActionKind.CONTROLLER, what, lasts_s=round(chance.uniform(0.5, 3.0), 3))
