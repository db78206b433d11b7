"""HyGenICC's figures 2(a) to (f) and 3 as published: packet by packet, updates every 0.5 ms.

Links of 1 Gb/s, a round trip of 100 us, buffers of 100 frames, marks above 20 by the instantaneous queue. The tagged
sender is NewReno with SACK; with ``-ecn`` it reacts to marks: figures 2(b), (d), (f). Competitors are NewReno with
SACK, DCTCP or UDP. Controls are none (2(a), (b)), static (2(c), (d)) and the paper's law (2(e), (f), 3).
"""

from experiments.scenarios.hygenicc.fig2 import BEGIN_S, END_S, JOIN_S, LEAVE_S, LINK_BPS, PHASES
from experiments.scenarios.scenario import Limits, Scenario, Source

COMPETITORS = ("tcp", "dctcp", "udp")
QUEUED = "hygenicc queue=20 timeout=1"
"""The paper's law with limiters that keep 20 frames for later; the printed ones drop them.

Its congestion time-out, which the paper does not give, is 1 ms; with 20 ms such limiters use 87 % of the link.
"""


def packets_name(senders: int, competitor: str, ecn: bool) -> str:
    """Return the name of an experiment."""
    return f"hygenicc-packets-{senders}-{competitor}{'-ecn' if ecn else ''}"


def _competition(senders: int, competitor: str, ecn: bool) -> Scenario:
    """Return the scenario of a TCP flow that joins ``senders`` - 1 competitors at a packet-level bottleneck."""
    receiver = senders + 1
    span = ((BEGIN_S, LEAVE_S),)

    def competitor_source(number: int) -> Source:
        if competitor == "udp":
            return Source(1, number, receiver, "udp", LINK_BPS, spans=span)
        law = "dctcp" if competitor == "dctcp" else "reno"
        return Source(1, number, receiver, "tcp", spans=span, congestion_control=law, ecn=ecn)

    tagged = Source(1, senders, receiver, "tcp", spans=((JOIN_S, END_S),), congestion_control="reno", ecn=ecn)
    return Scenario(
        packets_name(senders, competitor, ecn),
        f"packet by packet: tagged TCP{' with ECN' if ecn else ''} next to {senders - 1} of {competitor.upper()}",
        pns=receiver,
        limits={1: Limits(LINK_BPS, LINK_BPS)},
        sources=(*(competitor_source(number) for number in range(1, senders)), tagged),
        duration_s=END_S,
        phases=PHASES,
        controls=("none", "static", "hygenicc", QUEUED) if senders == 2 else ("hygenicc", QUEUED),
        emulated_controls=(),
        conditions="packets",
        seeds=3,
        tagged=senders,
    )


scenarios = (
    *(_competition(2, competitor, ecn) for ecn in (False, True) for competitor in COMPETITORS),
    *(_competition(senders, competitor, False) for senders in (4, 8) for competitor in COMPETITORS),
)
