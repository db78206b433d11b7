"""Marks of a link between switches, end to end on the model: made in its queue, counted behind it, and never delivered.

Two senders behind one switch, each with a receiver of its own behind the other; the link between is the bottleneck, and
nobody told the controller what it carries. No receiver has too much, so phantom meters see nothing.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.model_plane import document_of, under_control

from controller.fabric.topology import PortId
from experiments.model.fabric import ModelOptions
from experiments.model.queues import QueueOptions
from experiments.model.sources import UdpSource
from experiments.model.tcp import TcpSource
from topologies.builders import FIRST_UPLINK_PORT_NO, fabrics

LINK_BPS, CORE_BPS = 100_000_000, 50_000_000
CORE_PACKETS, MARK_AT = 124, 25  # 30 ms, and 20 % of it (HyGenICC, section IV)
CUT_2 = {"cut": 2, "slow": 0.02, "fast": 0.2}


class Dumbbell:
    """``kinds``: udp, a law of TCP, or one with "+ecn"; ``marks``: what the configuration says."""

    def __init__(self, kinds, parameters, source="phantom+network", **ecn):
        count = len(kinds)
        self.fabric = fabrics["dumbbell"](
            pns=2 * count, link_rate_bps=LINK_BPS, vlans=(1,), core_rate_bps=CORE_BPS, receivers=count
        )
        document = document_of(self.fabric, {1: LINK_BPS}, "hygenicc", **parameters)
        core = QueueOptions(limit_packets=CORE_PACKETS, ecn_packets=MARK_AT)
        document["ecn"] = {"source": source, **ecn}
        self.model, self.plane = under_control(self.fabric, document, ModelOptions(seed=1, core_queues=core))
        self.sources = [self._source(number, kind) for number, kind in enumerate(kinds, start=1)]
        for source in self.sources:
            source.start(self.model.slot)

    def _source(self, number, kind):
        ends = self.fabric.vn(1, number), self.fabric.vn(1, len(self.fabric.pns) // 2 + number)
        law, _, ecn = kind.partition("+")
        if kind == "udp":
            source = UdpSource(0.9 * LINK_BPS, self.model.slot_s)
        else:
            return_s = self.model.round_trip_s(*ends) / 2
            source = TcpSource(law, self.model.slot_s, ecn=bool(ecn), return_s=return_s, rng=self.model.rng)
        self.model.connect(source, *ends)
        return source

    def rates(self, until_s):
        """Let time pass; return what each source delivered meanwhile, in bit/s, and what part the link lost."""
        began_s, before = self.model.now_s, [source.delivered for source in self.sources]
        lost = self.lost
        self.model.run(until_s)
        packets = np.array([source.delivered - was for source, was in zip(self.sources, before, strict=True)])
        bits = packets * [source.frame_bits for source in self.sources]
        return bits / (until_s - began_s), (self.lost - lost) / packets.sum()

    @property
    def lost(self):
        self.model.count_hits()
        port = self.model.ports[PortId(1, FIRST_UPLINK_PORT_NO)].port
        return port.counters["tx_dropped"]


def jain(rates_bps):
    return rates_bps.sum() ** 2 / (len(rates_bps) * (rates_bps**2).sum())


@pytest.mark.parametrize(
    ("kinds", "parameters", "fairness", "use"),
    [
        (("udp", "cubic"), {}, 0.98, 0.92),
        (("udp", "cubic"), CUT_2, 0.99, 0.95),
        (("udp", "cubic"), {**CUT_2, "scope": 1}, 0.98, 0.95),  # a rate for each pair
        (("udp", "udp", "cubic", "reno"), {}, 0.92, 0.80),
        (("udp", "udp", "cubic", "reno"), CUT_2, 0.98, 0.90),
    ],
    ids=str,
)
def test_senders_share_a_link_that_marks_and_that_nobody_named(kinds, parameters, fairness, use):
    """TCP's bursts through its meters mark as well: what is answered already takes no more off the rates."""
    run = Dumbbell(kinds, parameters)
    run.rates(3.0)
    rates_bps, _ = run.rates(7.0)
    assert jain(rates_bps) >= fairness
    assert rates_bps.sum() >= use * CORE_BPS
    assert not any(source.marked for source in run.sources)  # cleared before the host


def test_without_marks_udp_takes_it_all():
    run = Dumbbell(("udp", "cubic"), {}, source="phantom")
    run.rates(3.0)
    rates_bps, _ = run.rates(6.0)
    assert rates_bps[1] < 0.1 * CORE_BPS


def test_what_came_marked_is_read_by_pair():
    run = Dumbbell(("udp", "cubic"), CUT_2)
    most_bps, known = np.zeros(2), 0
    for number in range(1, 60):
        run.model.run(0.5 + number * 0.055)
        (marks,) = [one.view.marks for one in run.plane.central.state.allocators.decisions if one.view.marks]
        if len(marks.marked_bps) == 2 and not np.isnan(marks.marked_bps).any():
            known += 1
            most_bps = np.maximum(most_bps, marks.marked_bps)
            assert marks.marked_bps.sum() <= 1.05 * CORE_BPS
            assert not np.nan_to_num(marks.beyond_bps).any()
    assert known > 50
    assert (most_bps > 1e6).all()


@pytest.mark.parametrize("law", ["cubic+ecn", "dctcp"])
def test_guests_that_speak_ecn_are_unharmed(law):
    """Their marks are hidden, so they answer to losses and meters as any TCP, and have no less than one without ECN."""
    run = Dumbbell((law, "cubic"), CUT_2)
    run.rates(3.0)
    rates_bps, _ = run.rates(7.0)
    assert not any(source.marked for source in run.sources)
    assert rates_bps[0] >= 0.9 * rates_bps[1]
    assert rates_bps.sum() >= 0.90 * CORE_BPS


@pytest.mark.parametrize("expose_to_hosts", [False, True])
def test_hosts_see_marks_where_they_are_kept_and_lose_no_share_by_it(expose_to_hosts):
    run = Dumbbell(("cubic+ecn", "udp"), CUT_2, expose_to_hosts=expose_to_hosts)
    run.rates(3.0)
    rates_bps, _ = run.rates(6.0)
    assert (run.sources[0].marked > 0) == expose_to_hosts
    assert jain(rates_bps) >= 0.98
