"""The packet-level model against what is known of TCP, and the scenario that runs on it."""

from random import Random

import pytest

from controller.errors import InvalidValueError
from experiments.evaluation.run_matrix import scenario_runs
from experiments.model.packets import PacketLink, PacketNetwork, TcpFlow, UdpFlow, Unlimited
from experiments.runs.packet_run import run_packets
from experiments.scenarios import scenarios
from experiments.scenarios.hygenicc.packets import QUEUED, packets_name
from experiments.scenarios.scenario import Limits, Scenario, Source

LINK = PacketLink()


class Limiter:
    """A limiter that lets go what ``passes`` says; compiled classes have no subclasses."""

    hides_marks, queue_frames = False, 0

    def __init__(self, passes):
        self.consume = passes

    def feedback(self, now_s):
        pass


def network(flows, link=LINK, limiter=Unlimited):
    for flow in flows:
        flow.start(0)
    return PacketNetwork(link, [(limiter(), [flow]) for flow in flows], 1)


def parts(net, flows, begin_s, end_s):
    """The parts of the link that flows get, and the mean queue."""
    net.run(begin_s)
    before, queued = [flow.delivered for flow in flows], net.queued
    net.run(end_s)
    slots = (end_s - begin_s) / net.link.slot_s
    got = [(flow.delivered - then) / slots for flow, then in zip(flows, before, strict=True)]
    return got, (net.queued - queued) / slots


@pytest.mark.parametrize("loss", [0.01, 0.001])
def test_newreno_gets_what_random_losses_leave_it(loss):
    """Mathis et al., 1997: a window of sqrt(3 / 2p) frames a round trip, here of 10 ms."""
    flows = [TcpFlow("reno", False, LINK.slot_s)]
    random = Random(3)
    net = network(flows, PacketLink(round_trip_s=0.010), lambda: Limiter(lambda _s: random.random() >= loss))
    (got,), _ = parts(net, flows, 1.0, 31.0)
    assert got * 0.010 / LINK.slot_s == pytest.approx((1.5 / loss) ** 0.5, rel=0.15)


def test_newreno_alone_fills_the_link():
    flows = [TcpFlow("reno", False, LINK.slot_s)]
    (got,), _ = parts(network(flows), flows, 0.5, 1.0)
    assert got > 0.99


def test_the_queue_of_dctcp_stays_near_the_threshold():
    """Alizadeh et al., 2010: the queue swings around K, by little with few senders, and the link stays full."""
    flows = [TcpFlow("dctcp", True, LINK.slot_s) for _ in range(2)]
    got, queue = parts(network(flows), flows, 0.5, 1.5)
    assert sum(got) > 0.99
    assert got[0] == pytest.approx(got[1], rel=0.1)
    assert LINK.mark_frames - 4 < queue < LINK.mark_frames + 4
    assert not any(flow.lost for flow in flows)


def test_a_frame_without_ect_is_dropped_where_others_are_marked():
    flows = [TcpFlow("dctcp", True, LINK.slot_s), TcpFlow("reno", False, LINK.slot_s)]
    net = network(flows)
    (dctcp, reno), _ = parts(net, flows, 0.5, 1.0)
    assert dctcp > 0.95
    assert reno < 0.05
    assert flows[1].lost > 0 < net.dropped


def test_a_repeated_frame_that_is_lost_waits_for_the_time_out_of_200_ms():
    flows = [TcpFlow("reno", False, LINK.slot_s)]
    net = network(flows, limiter=lambda: Limiter(lambda now_s: not 0.010 <= now_s < 0.011))
    net.run(0.012)
    stopped = flows[0].delivered
    net.run(0.200)
    assert flows[0].delivered < stopped + 50
    net.run(0.300)
    assert flows[0].delivered > stopped + 1000


def test_udp_sends_at_the_rate_of_the_link():
    flows = [UdpFlow(), UdpFlow()]
    got, _ = parts(network(flows), flows, 0.1, 0.2)
    assert got[0] == pytest.approx(0.5, abs=0.03)
    assert flows[0].sent == round(0.2 / LINK.slot_s)


def short(competitor):
    span = ((0.0, 1.5),)
    rate_bps = 1_000_000_000 if competitor == "udp" else None
    sources = (Source(1, 1, 3, competitor, rate_bps, spans=span), Source(1, 2, 3, "tcp", spans=((0.0, 1.5),)))
    limits = {1: Limits(1_000_000_000, 1_000_000_000)}
    return Scenario("short", "two senders", limits, sources, 1.5, pns=3, conditions="packets")


def test_static_limits_give_halves_and_the_law_with_queues_too():
    for control, least in (("static", 0.49), (QUEUED, 0.38)):
        run = run_packets(short("udp"), control, 1, lambda _s: None)
        rates = run.delivered_bits[13:].sum(axis=0) / (run.time_s[-1] - run.time_s[13])
        assert (rates > least * 1e9).all(), (control, rates)
        assert (run.granted_bps <= 1e9).all()
        assert run.received_bits.sum() == pytest.approx(run.delivered_bits.sum())


def test_what_it_cannot_run_is_refused_by_name():
    with pytest.raises(InvalidValueError, match="hygenicc queue=N"):
        run_packets(short("tcp"), "fp", 1, lambda _s: None)
    with pytest.raises(InvalidValueError, match="needs the conditions 'packets'"):
        Scenario("short", "", {1: Limits(1, 1)}, (Source(1, 1, 2, "tcp", ecn=True),), 1.0).on("model")
    name = packets_name(2, "udp", ecn=True)
    assert scenario_runs(name, scenarios()[name], "ovs") == []
    with pytest.raises(InvalidValueError, match="conditions"):
        scenarios()[name].on("wire")
