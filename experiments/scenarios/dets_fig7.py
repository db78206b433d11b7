"""Figure 7: figure 5's run with the senders behind three edge switches, and the receiver behind a fourth."""

from experiments.scenarios.scenario import Limits, Scenario, Source

RECEIVER = 11
UDP_S, STOP_S, END_S = 6.0, 14.0, 18.0
SENDERS = range(1, RECEIVER)

scenario = Scenario(
    name="dets-fig7",
    title="senders behind several edge switches: TCP, joined by UDP of another VLAN",
    topology="dets-fig7",
    limits={1: Limits(400_000_000, 400_000_000), 2: Limits(500_000_000, 500_000_000)},
    sources=(
        *(Source(1, number, RECEIVER, "tcp") for number in SENDERS),
        *(Source(2, number, RECEIVER, "udp", 200_000_000, spans=((UDP_S, STOP_S),)) for number in SENDERS),
    ),
    duration_s=END_S,
    phases={"TCP alone": (3.0, UDP_S), "with UDP": (UDP_S, STOP_S), "TCP again": (STOP_S, END_S)},
    emulated_controls=("none", "fp", "level"),
    paper_controls=("fp", "level"),
    seeds=3,
)
