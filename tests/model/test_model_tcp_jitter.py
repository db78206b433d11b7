"""Acknowledgements that are late by chance: what a round trip through programs does to TCP behind a meter."""

from __future__ import annotations

from experiments.model.control.uncontrolled import install_metered_flow
from experiments.model.fabric import ModelFabric, ModelOptions
from experiments.model.tcp import TcpSource
from topologies.builders import fig1

RATE_KBPS, BURST_KBITS = 50_000, 2_500


def goodput_share(jitter_s: float, seed: int = 1) -> float:
    model = ModelFabric(fig1(pns=2), ModelOptions(slot_s=0.0001, seed=seed))
    sender, receiver = (model.fabric.vn(1, number) for number in (1, 2))
    install_metered_flow(model, sender, receiver, 1, RATE_KBPS, BURST_KBITS)
    source = TcpSource("cubic", model.slot_s, jitter_s=jitter_s, rng=model.rng)
    model.connect(source, sender, receiver)
    source.start(0)
    model.run(3.0)
    assert source.delivered >= source.acked, "nothing is acknowledged that has not arrived"
    return model.received[receiver].octets * 8 / 3.0 / (RATE_KBPS * 1000)


def test_a_longer_round_trip_lets_the_least_window_fit_the_meter() -> None:
    """Two segments in 0.49 ms are 50 Mb/s: below that round trip windows are lost whole, above it nothing is."""
    immediate, jittery, slow = (goodput_share(jitter_s) for jitter_s in (0.0, 0.0006, 0.003))
    assert immediate < 0.5
    assert immediate + 0.1 < jittery < slow
    assert slow > 0.9
    assert goodput_share(0.0006) == jittery, "the same seed gives the same bytes"
