"""The digest by which an audit knows that a switch's entries are those of the last one."""

from __future__ import annotations

import pytest

from controller.errors import ProtocolError
from controller.openflow.actions import Output
from controller.openflow.constants import FlowModCommand
from controller.openflow.flows import Flow, digest_flow_stats, encode_flow_mods
from controller.openflow.match import Match
from experiments.wire.datapath import Datapath

FLOWS = [Flow(0, 5, Match(in_port=port), 7, actions=(Output(port + 1),)) for port in (1, 2, 3)]


def stats(flows: list[Flow], *, age_s: float = 0.0, hits: int = 0) -> bytes:
    datapath = Datapath(1)
    datapath.receive(encode_flow_mods([(FlowModCommand.ADD, flow) for flow in flows], 1), 0.0)
    for entry in datapath.tables._entries[0].values():
        for _ in range(hits):
            datapath.tables.hit(entry, 100, 0.0)
    reported = datapath.tables.counters
    return b"".join(datapath.tables.stats(entry, reported, age_s) for entry in datapath.tables._entries[0].values())


def test_ages_and_counters_do_not_matter() -> None:
    assert stats(FLOWS) != stats(FLOWS, age_s=9.5, hits=3)
    assert digest_flow_stats(stats(FLOWS)) == digest_flow_stats(stats(FLOWS, age_s=9.5, hits=3))


@pytest.mark.parametrize(
    "other",
    [
        FLOWS[:2],
        [*FLOWS[:2], Flow(0, 5, Match(in_port=3), 7, actions=(Output(9),))],
        [*FLOWS[:2], Flow(0, 6, Match(in_port=3), 7, actions=(Output(4),))],
        [*FLOWS[:2], Flow(0, 5, Match(in_port=3), 8, actions=(Output(4),))],
        [*FLOWS[:2], Flow(0, 5, Match(in_port=3), 7, 60, actions=(Output(4),))],
        [],
    ],
)
def test_anything_else_does(other: list[Flow]) -> None:
    assert digest_flow_stats(stats(other)) != digest_flow_stats(stats(FLOWS))


def test_a_wrong_length_is_refused() -> None:
    with pytest.raises(ProtocolError):
        digest_flow_stats(stats(FLOWS)[:-1])
