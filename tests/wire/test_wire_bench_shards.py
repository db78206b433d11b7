"""Delays between nodes are measured on the links that nodes use."""

from __future__ import annotations

from experiments.bench.shards.delays import measure


def test_every_message_of_every_speaker_arrives_and_took_its_time():
    took_ms = measure(20_000, speakers=3, turns=2)
    assert took_ms.shape == (6,)
    assert (took_ms > 0.0).all()
