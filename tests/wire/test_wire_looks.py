"""Looks between two rounds, by the real application: what begins is met by rounds of its own, whatever switches do."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.wire import WireRun

from controller.loop.early_rounds import AT_ONCE, PER_S

SENDERS, RECEIVER, QUIET = (1, 2, 3), 4, 2
SENDER_MACS, RECEIVER_MAC = (0xA1, 0xA2, 0xA3), 0xB1
LITTLE_BPS, MUCH_BPS = 1e6, 300e6


class Looking:
    """Two switches that are looked at every 12 ms; three hosts of one send to a fourth one."""

    def __init__(self, run: WireRun) -> None:
        self.run = run
        run.introduce(1, RECEIVER, RECEIVER_MAC)
        for port, mac in zip(SENDERS, SENDER_MACS, strict=True):
            run.introduce(1, port, mac)
        pairs = zip(SENDERS, SENDER_MACS, strict=True)
        self.flows = [run.offer((1, port), mac, RECEIVER_MAC, LITTLE_BPS) for port, mac in pairs]
        known = "all pairs have a meter"
        run.app.wait_for(lambda: all(run.app.entry(port, RECEIVER, 10) for port in SENDERS), known, 10.0)

    def send(self, rate_bps: float) -> None:
        with self.run.fabric.locked():
            self.run.fabric.rates.set_rates(self.flows, rate_bps)

    def counts(self) -> tuple[int, int, int]:
        loop = self.run.app.get("/v1/loop")
        return loop["early_rounds"], loop["rounds"], loop["skipped_intervals"]

    def wait_calm(self) -> None:
        """Wait until the receiver is not congested any more, and its port may be a reason again."""
        self.send(LITTLE_BPS)
        self.run.app.wait_for(lambda: not self.run.app.get("/v1/vns/10/s1/4")["congested"], "calm", 10.0)
        time.sleep(1.2)


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looking]:
    folder = tmp_path_factory.mktemp("looks")
    edges, link = {1: [*SENDERS, RECEIVER], QUIET: [1]}, ((1, 9), (QUIET, 9))
    with WireRun(folder, edges, [link], control={"look_ms": 12}) as run:
        yield Looking(run)


def test_a_blast_is_met_by_rounds_of_its_own(looking: Looking) -> None:
    looking.wait_calm()
    before = looking.counts()[0]
    looking.send(MUCH_BPS)
    looking.run.app.wait_for(lambda: looking.counts()[0] >= before + 2, "two rounds before they are due", 5.0)
    looking.run.app.wait_for(lambda: looking.run.app.get("/v1/vns/10/s1/4")["congested"], "congested", 5.0)
    assert looking.run.app.metrics()["dets_loop_early_rounds_total",] >= before + 2


def test_while_nothing_begins_no_round_is_early(looking: Looking) -> None:
    looking.wait_calm()
    before = looking.counts()
    time.sleep(1.0)
    after = looking.counts()
    assert (after[0], after[1] > before[1]) == (before[0], True)


def test_hosts_that_begin_again_and_again_get_no_more_rounds_than_are_allowed(looking: Looking) -> None:
    looking.wait_calm()
    begun_s, before = time.monotonic(), looking.counts()[0]
    while time.monotonic() - begun_s < 3.0:
        looking.send(MUCH_BPS)
        time.sleep(0.03)
        looking.send(0.0)
        time.sleep(0.03)
    rounds = looking.counts()[0] - before
    assert 0 < rounds <= 2 * (AT_ONCE + PER_S * (time.monotonic() - begun_s))


def test_a_switch_that_does_not_answer_is_not_waited_for_and_the_others_are_looked_at(looking: Looking) -> None:
    run = looking.run
    looking.wait_calm()
    run.fabric.set_silent(QUIET, True)
    try:
        before = looking.counts()
        looking.send(MUCH_BPS)
        run.app.wait_for(lambda: looking.counts()[0] >= before[0] + 2, "rounds before they are due", 5.0)
        assert run.app.get("/v1/health")["loops"]["looks"]["failures"] == 0
    finally:
        run.fabric.set_silent(QUIET, False)
