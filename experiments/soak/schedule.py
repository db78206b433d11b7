"""The actions of a soak and their times: a pure function of the fabric, the duration and the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from topologies.fabric import Fabric

VICTIM_VLAN_INDEX = 0  # the VLAN of the judged TCP tenant; the other VLAN sends UDP blasts
ALGORITHMS = ("fs", "sp", "fp", "fe")
MIN_S, MAX_S = 30.0, 86_400.0
CALM_START_S = 8.0  # the tenant's TCP alone, before the first action
CALM_END_S = 6.0  # after the last one
# In a long run the last third has no restarts, so that one run of the controller is long enough to show memory growth.
LONG_S, RESTARTS_SHARE = 900.0, 2 / 3
RECEIVE_LIMITS_BPS = (8_000_000, 12_000_000, 16_000_000, 20_000_000)
SEND_LIMITS_BPS = (12_000_000, 16_000_000, 20_000_000)
UDP_RATES_BPS = (2_000_000, 8_000_000, 15_000_000)
RATES_BPS = {"receive_limit_bps": RECEIVE_LIMITS_BPS, "send_limit_bps": SEND_LIMITS_BPS}


class ActionKind(StrEnum):
    """The kinds of actions."""

    FLOW = "flow"
    LIMIT = "limit"
    ALGORITHM = "algorithm"
    LINK = "link"
    CONTROLLER = "controller"


# The minimum and maximum seconds from one action of a kind to the next.
PACES = {
    ActionKind.FLOW: (1.5, 3.5),
    ActionKind.LIMIT: (6.0, 12.0),
    ActionKind.ALGORITHM: (14.0, 22.0),
    ActionKind.LINK: (20.0, 34.0),
    ActionKind.CONTROLLER: (34.0, 46.0),
}


@dataclass(frozen=True, slots=True)
class Action:
    """One action at ``at_s`` after the beginning; its kind determines which other fields it uses.

    FLOW: ``vlan_vid``, PNs ``sender`` and ``receiver``, ``rate_bps`` (None: TCP), for ``lasts_s``. LIMIT: of the VN of
    ``vlan_vid`` at PN ``receiver``; ``what`` is the REST field, ``rate_bps`` its value. ALGORITHM: ``what`` in
    ``vlan_vid``. LINK: the interface ``what`` goes down for ``lasts_s``. CONTROLLER: the signal ``what``; the
    controller is down for ``lasts_s``.
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

    The last PN of the fabric is the judged receiver: its own link stays up.
    """
    actions = []
    for kind, (min_s, max_s) in PACES.items():
        rng = random.Random(f"{seed} {kind}")
        last_s = duration_s - CALM_END_S
        if kind == ActionKind.CONTROLLER and duration_s >= LONG_S:
            last_s = duration_s * RESTARTS_SHARE
        at_s, number = CALM_START_S + rng.uniform(0, min_s), 0
        while at_s < last_s:
            actions.append(Action(round(at_s, 3), kind, **_random_fields(kind, fabric, rng, number)))
            at_s, number = at_s + rng.uniform(min_s, max_s), number + 1
    return sorted(actions, key=lambda action: action.at_s)


def _random_fields(kind: ActionKind, fabric: Fabric, rng: random.Random, number: int) -> dict[str, Any]:
    """Return the fields of the action of a kind with this number, without its time."""
    *other_pns, judged_pn = (pn.number for pn in fabric.pns)
    victim_vid, other_vid = fabric.vlans[VICTIM_VLAN_INDEX], fabric.vlans[1 - VICTIM_VLAN_INDEX]
    match kind:
        case ActionKind.FLOW:
            lasts_s = round(rng.uniform(3.0, 9.0))
            if number % 2 == 0:  # UDP towards the judged PN, in the other VLAN
                ends = {"vlan_vid": other_vid, "sender": rng.choice(other_pns), "receiver": judged_pn}
                return {**ends, "rate_bps": rng.choice(UDP_RATES_BPS), "lasts_s": lasts_s}
            vid = rng.choice([victim_vid, other_vid])
            sender, receiver = rng.sample([*other_pns, judged_pn] if vid == other_vid else other_pns, 2)
            rate_bps = rng.choice([None, 2_000_000, 4_000_000])
            ends = {"vlan_vid": vid, "sender": sender, "receiver": receiver}
            return {**ends, "rate_bps": rate_bps, "lasts_s": lasts_s}
        case ActionKind.LIMIT:
            if number % 3 == 0:  # at the judged VN
                vid, receiver, what = victim_vid, judged_pn, "receive_limit_bps"
            else:
                vid, receiver, what = rng.choice(fabric.vlans), rng.choice(other_pns), rng.choice([*RATES_BPS])
            return {"what": what, "vlan_vid": vid, "receiver": receiver, "rate_bps": rng.choice(RATES_BPS[what])}
        case ActionKind.ALGORITHM:
            return {"what": rng.choice(ALGORITHMS), "vlan_vid": rng.choice(fabric.vlans)}
        case ActionKind.LINK:  # core links and PNs' links in turn
            cores = [link.interfaces[0] for link in fabric.core_links]
            edges = [pn.trunk_interface for pn in fabric.pns[:-1]]
            return {
                "what": rng.choice(edges if number % 2 or not cores else cores),
                "lasts_s": round(rng.uniform(2.0, 5.0), 3),
            }
        case ActionKind.CONTROLLER:  # a stop and a kill in turn
            return {"what": "SIGKILL" if number % 2 else "SIGTERM", "lasts_s": round(rng.uniform(0.5, 3.0), 3)}
