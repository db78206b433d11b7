"""Figure 3: five map tasks of one unit and a reduce of ten, from ten PNs, over one link. A unit is 2 s of the link.

The reduce receives: its ten sources are ten entities. So equal shares of senders give the same result as TCP; the
paper's remedy is a weight of one over the fan-in (section 4.6).
"""

from experiments.scenarios.scenario import Scenario, Source
from experiments.scenarios.seawall import CONTROLS, entity, shared

UNIT_BYTES = 125_000_000
CORE_BPS = 500_000_000
MAPS, FAN_IN = 5, 10


def _tasks(name: str, title: str, reduce_weight: float, controls: tuple[str, ...]) -> Scenario:
    """Return the scenario of map and reduce tasks at two receivers."""
    senders = MAPS + FAN_IN
    maps_pn, reduce_pn = senders + 1, senders + 2
    sources = [Source(1, sender, maps_pn, "tcp", octets=UNIT_BYTES) for sender in range(1, MAPS + 1)]
    sources += [Source(1, sender, reduce_pn, "tcp", octets=UNIT_BYTES) for sender in range(MAPS + 1, senders + 1)]
    return shared(
        name,
        title,
        {1: None},
        topology="dumbbell",
        topology_options={"core_rate_bps": CORE_BPS, "receivers": 2},
        pns=senders + 2,
        sources=tuple(sources),
        vn_limits={(1, sender): entity(reduce_weight) for sender in range(MAPS + 1, senders + 1)},
        duration_s=45.0,
        phases={},
        controls=controls,
        seeds=3,
    )


scenarios = (
    _tasks(
        "seawall-fig3-equal",
        "maps and a reduce, every source an entity",
        1.0,
        CONTROLS,
    ),
    _tasks("seawall-fig3-tasks", "the same, every task an entity", 1.0 / FAN_IN, CONTROLS[1:]),
)
