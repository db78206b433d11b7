"""The agent's EDT build: departure times at the egress hook of a host's uplink, and ``fq`` behind it."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import time
from collections.abc import Iterator

import pytest
from support.agent_uplink import (
    NAMESPACE,
    RECEIVER,
    UPLINK,
    VNS,
    Controller,
    controller_end,
    frame,
    rates_bps,
    run,
    running,
    sending,
    uplink,
)

from controller.dets.control_frames import CONTROLLER_MAC, Opcode, ReportFlag, Speaker, encode, records

# Its one processor also offers the frames: the agent must not take a slow word for none.
EDT = ("--shaper", "edt", "--interval", "100")


@pytest.fixture
def controller() -> Iterator[Controller]:
    with uplink(), controller_end() as one:
        yield one


def test_a_pair_is_held_to_its_rate_and_reported(controller) -> None:
    with running(*EDT):
        controller.listen(0.2)
        controller.pair(10, Opcode.INITIALIZE)
        controller.pair(10, Opcode.SET_RATE, rate_kbps=[2000])
        rates = rates_bps(controller, 3.0, 1, frame(10), meanwhile=lambda: controller.keep_alive(10))
        report = controller.report(10)
    assert rates[10] == pytest.approx(2e6, rel=0.02)
    assert statistics.median(controller.measured_kbps) == pytest.approx(2000, rel=0.1)
    assert report["dropped_kbps"] > 500
    assert report["flags"] & ReportFlag.SHAPED_HERE


def test_setting_a_rate_gives_nothing_back(controller) -> None:
    """It is set many times a second, and to another twice a second; late, when the processor is taken away."""
    said: list[tuple[float, int]] = []

    def change() -> None:
        now_s = time.monotonic()
        said.append((now_s, (1400, 2600)[int(2 * now_s) % 2]))
        controller.pair(10, Opcode.SET_RATE, rate_kbps=[said[-1][1]])

    with running(*EDT):
        controller.listen(0.2)
        controller.pair(10, Opcode.INITIALIZE)
        rates = rates_bps(controller, 4.0, 1, frame(10), meanwhile=change)
    said = [one for one in said if one[0] >= said[-1][0] - 4.0]
    kbits = sum((then_s - now_s) * rate_kbps for (now_s, rate_kbps), (then_s, _) in itertools.pairwise(said))
    assert rates[10] == pytest.approx(kbits * 1e3 / (said[-1][0] - said[0][0]), rel=0.03)


def test_a_vn_cannot_take_what_another_on_its_host_may_send(controller) -> None:
    rates_kbps = {10: 2_500, 20: 1_500}
    with running(*EDT):
        controller.listen(0.2)
        for vid, rate_kbps in rates_kbps.items():
            controller.pair(vid, Opcode.INITIALIZE, VNS[vid])
            controller.pair(vid, Opcode.SET_RATE, VNS[vid], rate_kbps=[rate_kbps])
        frames = [frame(10, RECEIVER + number) for number in range(2)] + [frame(20)]

        def keep() -> None:
            for vid in VNS:
                controller.pair(vid, Opcode.KEEP_ALIVE, VNS[vid])

        rates = rates_bps(controller, 3.0, 1, *frames, meanwhile=keep)
    assert rates[10] == pytest.approx(2.5e6, rel=0.03)
    assert rates[20] == pytest.approx(1.5e6, rel=0.03)


def test_vns_cannot_speak_for_the_agent(controller) -> None:
    forged = Speaker(CONTROLLER_MAC, VNS[10], 10, 0xBAD)
    hello = records(Opcode.HELLO, features=[7], interval_ms=[55], most_classes=[9], link_rate_kbps=[9])
    (octets,) = encode(forged, Opcode.HELLO, hello, 1, 0)
    with running(*EDT):
        sending(0.3, 5, octets.hex(), octets[:12].hex() + octets[16:].hex()).wait(10)
        controller.listen(0.5)
    assert controller.last
    assert all(one.speaker.epoch != 0xBAD for one in controller.last.values())


def test_rates_outlive_an_agent_that_is_killed_and_another_build_cleans_up(controller) -> None:
    with running(*EDT) as process:
        controller.listen(0.2)
        controller.pair(10, Opcode.INITIALIZE)
        controller.pair(10, Opcode.SET_RATE, rate_kbps=[2000])
        controller.listen(0.3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        rates = rates_bps(controller, 2.0, 1, frame(10))
    assert rates[10] == pytest.approx(2e6, rel=0.03)
    with running():
        assert "htb de75:" in run("tc", "-n", NAMESPACE, "qdisc", "show", "dev", UPLINK)
        assert "dets_edt" not in run("tc", "-n", NAMESPACE, "filter", "show", "dev", UPLINK, "egress")
    assert "de75" not in run("tc", "-n", NAMESPACE, "qdisc", "show", "dev", UPLINK)
