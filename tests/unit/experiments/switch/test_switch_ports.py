"""What a port gives to its queues: the same as HTB in tests/fabric/test_fabric_queues.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.switch.ports import SwitchPort

MBPS = 1e6


def port_with(min_rates_bps, rate_bps=60 * MBPS) -> SwitchPort:
    port = SwitchPort(1, "s1-eth1", 1, rate_bps)
    for queue_id, min_rate_bps in enumerate(min_rates_bps, 1):
        port.set_queue(queue_id, min_rate_bps, rate_bps)
    return port


@pytest.mark.parametrize(
    ("min_rates_bps", "first_part"),
    [((2e6, 8e6), 0.2), ((18e6, 36e6), 0.5), ((8e6, 32e6), 1 / 3), ((0.0, 8e6), 0.01 / 1.01)],
    ids=["by min rate", "equally", "from 16 Mb/s on equally", "one without a min rate"],
)
def test_what_is_above_the_min_rates_is_shared_by_the_quantum(min_rates_bps, first_part) -> None:
    served = port_with(min_rates_bps).serve({1: 100 * MBPS, 2: 100 * MBPS})
    excess_bps = 60 * MBPS - sum(min_rates_bps)
    assert served[1] - min_rates_bps[0] == pytest.approx(first_part * excess_bps)
    assert sum(served.values()) == pytest.approx(60 * MBPS)


@given(st.lists(st.tuples(st.floats(0, 12e6), st.floats(0, 90e6)), min_size=1, max_size=5))
def test_nobody_gets_more_than_it_wants_nor_less_than_its_minimum_and_nothing_is_left_over(queues) -> None:
    port = port_with([least for least, _ in queues])
    wanted = {number: want for number, (_, want) in enumerate(queues, 1)}
    served = port.serve(wanted)
    for number, (least, want) in enumerate(queues, 1):
        assert min(least, want) - 1 <= served[number] <= want + 1
    assert sum(served.values()) == pytest.approx(min(60e6, sum(min(want, 60e6) for want in wanted.values())), abs=1)
