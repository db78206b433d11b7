"""Why an entry has its limit: of a control loop in virtual time, in the words of operators."""

from __future__ import annotations

import re

import pytest
from support.configs import star
from support.fabrics import ControlLoop, Fabric

from controller.monitoring.pair_explanation import explain_pair, format_rate_text

M = 1e6


def loop_of(rates_mbit, algorithm="fs", **sections):
    """Hosts at ports 1, 2, ... send to the one at port 9, whose limit in VLAN 10 is 40 Mb/s."""
    net = Fabric(star(9, capacity="100M", limits={10: "40M", 20: "50M"}, algorithm=algorithm, **sections))
    net.start()
    loop = ControlLoop(net)
    for port, rate in enumerate(rates_mbit, start=1):
        loop.add((1, port), (1, 9), 10, rate * M)
    return loop


def explained(loop, port=1, receiver=9):
    central = loop.fabric.central
    entries = central.state.entries
    sender, receiver = central.vns.row_of(10, 1, port), central.vns.row_of(10, 1, receiver)
    (row,) = [r for r in range(len(entries)) if (entries.sender[r], entries.receiver[r]) == (sender, receiver)]
    return explain_pair(central.fabric, row)


def test_without_congestion_the_lower_limit_binds():
    loop = loop_of([10, 10])
    loop.fabric.operator.set_vn(loop.fabric.central.vns.row_of(10, 1, 9), 0.0, receive_limit_bps=30_000_000)
    loop.run(5)
    found = explained(loop)
    assert (found.limit_bps, found.constraint) == (30 * M, "s1:9's receive limit of VLAN 10")
    assert found.next_constraint.startswith("its own send limit")
    assert found.next_limit_bps == 40 * M
    assert found.sharers == 0


def test_a_share_of_a_congested_receiver_is_bound_by_its_limit():
    loop = loop_of([100, 100, 100, 100])
    loop.run(30)
    assert str(explained(loop, 2)) == (
        "VLAN 10, s1:2 to s1:9: 10.0 Mb/s; bound by s1:9's receive limit of VLAN 10, share 1 of 4; "
        "next bound: its own send limit at 40.0 Mb/s; "
        "s1:2's send limit drops 60.0 Mb/s of the 100.0 Mb/s that it sends in all"
    )


def test_a_sender_with_a_low_limit_is_bound_by_it():
    loop = loop_of([100, 100])
    central = loop.fabric.central
    loop.fabric.operator.set_vn(central.vns.row_of(10, 1, 1), 0.0, send_limit_bps=5_000_000)
    loop.run(60)
    found = explained(loop, 1)
    assert (found.limit_bps, found.constraint, found.sharers) == (5 * M, "its own send limit", 0)
    other = explained(loop, 2)
    assert other.constraint == "s1:9's receive limit of VLAN 10"
    assert (other.rank, other.sharers) == (1, 2)


def test_what_is_sent_elsewhere_is_told():
    loop = loop_of([20, 100, 100])
    loop.add((1, 1), (1, 8), 10, 16 * M)
    loop.run(60)
    found = explained(loop, 1)
    match = re.fullmatch(r"its own send limit, of which it sends (\d+\.\d) Mb/s elsewhere", found.next_constraint)
    assert match is not None
    assert float(match[1]) == pytest.approx(16.0, rel=0.1)
    assert found.next_limit_bps == pytest.approx(24 * M, rel=0.1)


def test_a_silent_sender_has_a_share_to_start_with():
    loop = loop_of([100, 100, 100])
    loop.run(20)
    loop.senders[0].rate_bps = 0.0
    loop.run(15)
    found = explained(loop, 1)
    assert "idle" in found.constraint
    assert found.limit_bps == pytest.approx(40 * M / 3, rel=0.01)


@pytest.mark.parametrize(
    ("rate_bps", "words"),
    [
        (0.0, "0 b/s"),
        (999.0, "999 b/s"),
        (37e6, "37.0 Mb/s"),
        (1.25e9, "1.2 Gb/s"),
        (3e12, "3.0 Tb/s"),
        (8e3, "8.0 kb/s"),
    ],
)
def test_rates_in_words(rate_bps, words):
    assert format_rate_text(rate_bps) == words
