"""Figure 11: a web server and a sender of UDP; the server's client and the UDP receiver share one PN.

Choice: requests load 30 % of the link; sizes are WebStone's mix (traffic.py).
"""

from experiments.scenarios.scenario import Scenario, Source, WebRequests
from experiments.scenarios.seawall import LINK_BPS, shared

SESSIONS_PER_S = 196.0
CONNECTIONS = 100


def _web(name: str, title: str, flood_bps: int | None) -> Scenario:
    """Return the scenario of web requests next to UDP of ``flood_bps``; None: alone."""
    web = Source(1, 1, 3, "tcp", flows=CONNECTIONS, requests=WebRequests(SESSIONS_PER_S))
    flood = () if flood_bps is None else (Source(2, 2, 3, "udp", flood_bps),)
    return shared(
        f"seawall-fig11-{name}",
        title,
        {1: None, 2: None},
        pns=3,
        sources=(web, *flood),
        duration_s=20.0,
        phases={"settled": (5.0, 20.0)},
        seeds=3,
    )


scenarios = (
    _web("alone", "web requests alone", None),
    _web("flood", "web requests next to UDP at full rate", LINK_BPS),
    _web("700", "web requests next to UDP of 700 Mb/s", 700_000_000),
)
