"""The Seawall paper (NSDI 2011): its figures, and its other promises. All VNs share links of 1 Gb/s by ceilings.

Edge ports have one queue, as the paper's, so that only the senders' meters share a link. The first seconds are not
measured, because of TCP's slow start and the law's approach. Deviation: the paper has runs of two minutes, and 60
servers, of which a figure uses a few; here there are only these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.scenarios.scenario import Limits, Scenario

LINK_BPS = 1_000_000_000
GUARANTEED_BPS = 50_000_000  # limits do not bind here: ceilings and weights do
DURATION_S = 30.0
SETTLED = {"settled": (10.0, DURATION_S)}
PUBLISHED = "seawall-cubic path=1"
"""The paper's Class 3 inside its Class 2: on losses, with feedback of whole paths."""
CHANGES = {
    "feedback of each link (`path=0`)": "seawall-cubic",
    "marks as well as losses (`seawall-dctcp path=1`)": "seawall-dctcp path=1",
    "a rate in proportion to marks (`seawall path=1`)": "seawall path=1",
}
"""Controls by their difference to PUBLISHED."""
CONTROLS = ("none", "seawall", "seawall-exact", PUBLISHED, *CHANGES.values())
ALL_LAWS = (*CONTROLS, "seawall-dctcp", "seawall-strawman")
AT_METERS, AT_HOSTS = "seawall-", "seawall-hosts-"
"""How names of experiments begin, by where traffic is shaped."""


def entity(weight: float | None = None) -> Limits:
    """Return the limits of a VN that may use all of its link."""
    return Limits(GUARANTEED_BPS, GUARANTEED_BPS, LINK_BPS, LINK_BPS, weight)


def shared(name: str, title: str, vlans: Mapping[int, float | None], **more: Any) -> Scenario:
    """Return a scenario of VLANs with these weights whose VNs share links."""
    settings: dict[str, Any] = {
        "topology": "dets-fig1",
        "promise": "entities",
        "queues": False,
        "duration_s": DURATION_S,
        "phases": SETTLED,
        "controls": CONTROLS,
        "emulated_controls": ("none", "seawall"),
    }
    limits = {vid: entity(weight) for vid, weight in vlans.items()}
    return Scenario(name=name, title=title, limits=limits, **(settings | more))
