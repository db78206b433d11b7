"""The example of section III.A: 80, 80, 20 and 20 Mb/s of 200; the first stops; later the last two offer more."""

from experiments.scenarios.scenario import Limits, Scenario, Source

STOP_S, MORE_S, END_S = 4.0, 8.0, 13.0


def _greedy(number: int, begin_s: float, end_s: float) -> Source:
    return Source(1, number, 5, "udp", 195_000_000, spans=((begin_s, end_s),))


def _little(number: int) -> Source:
    return Source(1, number, 5, "udp", 20_000_000, spans=((0.0, MORE_S),))


scenario = Scenario(
    name="dets-example",
    title="80, 80, 20, 20 Mb/s: who gets what the first leaves, and what if the last two want more",
    topology="dets-fig1",
    pns=5,
    limits={1: Limits(send_bps=200_000_000, receive_bps=200_000_000)},
    sources=(
        _greedy(1, 0.0, STOP_S),
        _greedy(2, 0.0, END_S),
        _little(3),
        _little(4),
        _greedy(3, MORE_S, END_S),
        _greedy(4, MORE_S, END_S),
    ),
    duration_s=END_S,
    phases={"four send": (0.0, STOP_S), "first stopped": (STOP_S, MORE_S), "others want more": (MORE_S, END_S)},
    emulated_controls=("static", "fs", "sp", "fp", "level"),
    paper_controls=("fs", "sp", "fp", "level"),
    seeds=3,
)
