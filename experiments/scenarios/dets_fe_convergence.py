"""Section III.A: intervals until all have the fair rate, after five of ten greedy senders stop."""

from experiments.scenarios.scenario import CONTROLS, Limits, Scenario, Source

RECEIVER = 11
STOP_S, END_S = 4.0, 12.0


def _source(number: int) -> Source:
    return Source(1, number, RECEIVER, "udp", 390_000_000, spans=((0.0, STOP_S if number > 5 else END_S),))


scenario = Scenario(
    name="dets-fe-convergence",
    title="five of ten greedy senders stop: intervals until the rest has the fair rate",
    limits={1: Limits(send_bps=400_000_000, receive_bps=400_000_000)},
    sources=tuple(_source(number) for number in range(1, RECEIVER)),
    duration_s=END_S,
    phases={"ten send": (0.0, STOP_S), "five send": (STOP_S, END_S)},
    controls=(*CONTROLS, "fe k=0.2", "fe k=0.1", "fe k=0.07", "fe k=0.05"),
    emulated_controls=("static", "fp", "fe", "fe k=0.07", "level"),
    paper_controls=("fp", "fe", "fe k=0.07", "level"),
    seeds=3,
)
