"""HyGenICC's figure 2: two senders to one receiver; the tagged TCP sender joins at 5 s, the other leaves at 10 s.

The competitor is TCP or UDP. Deviation: the paper has DCTCP and ECN as well (figures 2b, 2d, 2f); here the link to the
receiver makes no ECN marks. Its queue holds 30 ms, for the paper's 100 packets. TCP is cubic by default, for the
paper's NewReno.
"""

from experiments.scenarios.scenario import Limits, Scenario, Source

LINK_BPS = 1_000_000_000
BEGIN_S, JOIN_S, LEAVE_S, END_S = 0.0, 5.0, 10.0, 15.0
ALONE, SECOND, BOTH, AFTER = "competitor alone", "from 1 s after it came", "both", "tagged alone"
PHASES = {ALONE: (2.0, 5.0), SECOND: (6.0, 7.0), BOTH: (7.0, 10.0), AFTER: (12.0, 15.0)}
CUTS = (
    "hygenicc",
    "hygenicc cut=1 beta=0.1 slow=0.06 fast=0.06",
    "hygenicc cut=2 slow=0.02 fast=0.2",
)
"""The paper's law, and the two that compute how far a rate falls."""
SOONER = "hygenicc timeout=2"
"""The paper's law with half the default's congestion time-out; the paper gives none."""


def published(senders: int) -> str:
    """Return the paper's law with its printed constants, for ``senders`` senders.

    C/1000 and C/100 in 0.5 ms are 0.11 C and 1.1 C in 55 ms. Rises are parts of an equal share, C/n, with a maximum of
    1. Limiters are of VNs, and begin at the whole Capacity Share.
    """
    return f"hygenicc slow={min(0.11 * senders, 1.0):g} fast=1 scope=0 start=0"


def in_real_time(controls: tuple[str, ...]) -> tuple[str, ...]:
    """Return the controls of a fabric in real time: cuts 0 and 2, without printed constants."""
    return tuple(control for control in controls if control != CUTS[1] and "start=0" not in control)


def competition(name: str, title: str, senders: int, competitor: str, controls: tuple[str, ...]) -> Scenario:
    """Return a run of ``senders`` senders: the last one is tagged, the others are all alike."""
    receiver = senders + 1
    rate_bps = LINK_BPS if competitor == "udp" else None
    competitors = (
        Source(1, number, receiver, competitor, rate_bps, spans=((BEGIN_S, LEAVE_S),)) for number in range(1, senders)
    )
    return Scenario(
        name,
        title,
        pns=receiver,
        limits={1: Limits(LINK_BPS, LINK_BPS)},
        sources=(*competitors, Source(1, senders, receiver, "tcp", spans=((JOIN_S, END_S),))),
        duration_s=END_S,
        phases=PHASES,
        controls=(*controls, SOONER, published(senders)),
        emulated_controls=in_real_time(controls),
        seeds=3,
        tagged=senders,
    )


scenarios = tuple(
    competition(
        f"hygenicc-fig2-{competitor}",
        f"a tagged TCP sender next to {competitor.upper()}",
        2,
        competitor,
        ("none", "static", *CUTS),
    )
    for competitor in ("tcp", "udp")
)
