"""Figure 10: a selfish sender with one TCP flow to each of n receivers, on the same PN as a well-behaved one.

The paper's placement needs responsive senders: a host's own uplink drops before any switch receives a frame. So the UDP
variant is between two PNs, over one core link.
"""

from experiments.scenarios.scenario import Scenario, Source
from experiments.scenarios.seawall import LINK_BPS, shared


def _one_pn(receivers: int) -> Scenario:
    return shared(
        f"seawall-fig10-{receivers}",
        f"two senders of one PN, TCP to one receiver and to {receivers}",
        {1: None, 2: None},
        pns=2 + receivers,
        sources=(Source(1, 1, 2, "tcp"), *(Source(2, 1, 3 + number, "tcp") for number in range(receivers))),
    )


scenarios = (
    *(_one_pn(receivers) for receivers in (1, 2, 4, 8)),
    shared(
        "seawall-fig10-udp",
        "TCP to one receiver against UDP to eight, over one core link",
        {1: None, 2: None},
        topology="dumbbell",
        topology_options={"core_rate_bps": LINK_BPS, "receivers": 9},
        pns=11,
        sources=(Source(1, 1, 3, "tcp"), *(Source(2, 2, 4 + number, "udp", LINK_BPS // 8) for number in range(8))),
    ),
)
