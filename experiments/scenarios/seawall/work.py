"""Work conservation: three senders that share two links, and the on/off senders of DETS's figure 6."""

from experiments.scenarios.scenario import Source
from experiments.scenarios.seawall import LINK_BPS, shared

scenarios = (
    shared(
        "seawall-work-lot",
        "a parking lot: A over two links, B over the first, C over the second",
        {1: None, 2: None, 3: None},
        pns=4,
        sources=(Source(1, 1, 3, "tcp"), Source(2, 1, 4, "tcp"), Source(3, 2, 3, "tcp")),
    ),
    shared(
        "seawall-work-bursts",
        "ten senders of TCP and UDP bursts, as in DETS's figure 6",
        {1: None, 2: None},
        pns=11,
        sources=tuple(
            Source(1 + sender % 2, sender, 11, "udp" if sender % 2 else "tcp", LINK_BPS // 4, max_burst_s=2.0)
            for sender in range(1, 11)
        ),
        duration_s=60.0,
        phases={},
    ),
)
