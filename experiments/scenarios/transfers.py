"""Finite transfers beside UDP at full rate: how long ten files take while another VLAN sends to the same PN."""

from experiments.scenarios.scenario import Limits, Scenario, Source

RECEIVER = 11
SENDERS = range(1, RECEIVER)
END_S = 20.0
FILE_BYTES = 20_000_000  # 4 s at a tenth of the limit; faster once others have finished


def _file(number: int) -> Source:
    begin_s = 1.0 + 0.4 * (number - 1)
    return Source(1, number, RECEIVER, "tcp", spans=((begin_s, END_S),), octets=FILE_BYTES)


scenario = Scenario(
    name="transfers",
    title="ten files of 20 MB beside another VLAN's flood: completion times",
    limits={1: Limits(400_000_000, 400_000_000), 2: Limits(500_000_000, 500_000_000)},
    sources=(
        *(_file(number) for number in SENDERS),
        *(Source(2, number, RECEIVER, "udp", 200_000_000) for number in SENDERS),
    ),
    duration_s=END_S,
    emulated_controls=("static", "fp", "level"),
    seeds=3,
)
