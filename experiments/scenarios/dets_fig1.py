"""Figure 1: all PNs send TCP to all others, and later UDP: to one PN first, then to all. TCP must not suffer."""

from experiments.scenarios.scenario import Limits, Scenario, Source

PNS = range(1, 6)
ONE_S, ALL_S, END_S = 5.0, 10.0, 15.0


def _tcp(sender: int, receiver: int) -> Source:
    return Source(1, sender, receiver, "tcp")


def _udp(sender: int, receiver: int) -> Source:
    return Source(2, sender, receiver, "udp", 145_000_000, spans=((ONE_S if receiver == 5 else ALL_S, END_S),))


scenario = Scenario(
    name="dets-fig1",
    title="all PNs send to all; UDP floods PN 5, then every PN",
    topology="dets-fig1",
    pns=len(PNS),
    limits={1: Limits(400_000_000, 400_000_000), 2: Limits(590_000_000, 500_000_000)},
    sources=tuple(make(s, r) for make in (_tcp, _udp) for s in PNS for r in PNS if s != r),
    duration_s=END_S,
    phases={"TCP alone": (2.0, ONE_S), "one flooded": (ONE_S, ALL_S), "all flooded": (ALL_S, END_S)},
    emulated_controls=("none", "fp", "level"),
    paper_controls=("fp", "level"),
    seeds=3,
)
