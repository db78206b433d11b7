"""Senders that burst towards one receiver on the model, without a receiving queue, seen every 5 ms."""

from __future__ import annotations

import numpy as np
from support.model_plane import document_of, under_control

from experiments.model.fabric import ModelOptions
from experiments.model.sources import UdpSource
from topologies.builders import fig5

SAMPLE_S = 0.005
SETTLE_S = 0.2
INTRODUCED_S, ASLEEP_S = 0.060, 1.3  # each sender is heard once, so that it has its meter, then all sleep


def received_bits(pattern, algorithm, *, senders, limit_bps, rate_factor, seed=1, seconds=4.0, slot_s=0.001):
    """Return sample times and the bits received up to each; each sender offers ``rate_factor`` times the limit."""
    fabric = fig5(pns=senders + 1, link_rate_bps=10 * limit_bps)
    _, vid = fabric.vlans
    document = document_of(fabric, dict.fromkeys(fabric.vlans, limit_bps), algorithm, queues=False)
    model, _ = under_control(fabric, document, ModelOptions(slot_s=slot_s, seed=seed))
    receiver = fabric.vn(vid, fabric.pns[-1].number)
    begin_s = SETTLE_S + senders * INTRODUCED_S + ASLEEP_S
    for number, pn in enumerate(fabric.pns[:-1]):
        source = UdpSource(rate_factor * limit_bps, slot_s, model.rng.random())
        model.connect(source, fabric.vn(vid, pn.number), receiver)
        spans = [(begin_s + start_s, begin_s + end_s) for start_s, end_s in pattern.spans(number, seconds)]
        for start_s, end_s in [(SETTLE_S + number * INTRODUCED_S, SETTLE_S + (number + 1) * INTRODUCED_S), *spans]:
            model.at(start_s, lambda source=source: source.start(model.slot))
            model.at(end_s, lambda source=source: source.stop(model.slot))
    model.run(begin_s)
    times_s, bits = [model.now_s], [model.received[receiver].octets * 8.0]
    while model.now_s < begin_s + seconds:
        model.run(model.now_s + SAMPLE_S)
        times_s.append(model.now_s)
        bits.append(model.received[receiver].octets * 8.0)
    return np.array(times_s), np.array(bits)
