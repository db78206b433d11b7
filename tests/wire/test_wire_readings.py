"""Readings of queues by the real application: what software switches sent and dropped, interval by interval."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import numpy as np
import pytest
from support.wire import WireRun

from controller.config.loader import parse_config
from controller.fabric.vn_table import VnTable
from controller.whatif.recording import Interval, Start, decode
from controller.whatif.replay import replay

MACS = {1: 0x0200_0000_0001, 2: 0x0200_0000_0002}
QUEUE_BPS, LIMIT_BPS = 50e6, 400e6


def recorded(run: WireRun, seconds: float) -> list[Start | Interval]:
    """Record the application for a while."""
    run.app.request("POST", "/v1/recording", b'{"action": "start"}')
    time.sleep(seconds)
    status, _, answer = run.app.request("POST", "/v1/recording", b'{"action": "stop"}')
    assert status == 200, answer
    return list(decode(base64.b64decode(answer["records"])))


@pytest.mark.rates
def test_what_a_queue_drops_is_read_with_the_meters_and_replayed(tmp_path: Path) -> None:
    """A queue of 50 Mb/s where the limit is 400: 300 Mb/s pass the meter, and 250 of them are dropped behind it."""
    with WireRun(tmp_path, {1: [1, 2]}) as run:
        with run.fabric.locked():
            run.switch(1).ports[2].set_queue(10, QUEUE_BPS, QUEUE_BPS)
        for port, mac in MACS.items():
            run.introduce(1, port, mac)
        run.offer((1, 1), MACS[1], MACS[2], 300e6)
        run.app.wait_for(lambda: run.app.entry(1, 2, 10), "an entry")
        time.sleep(0.5)
        records = recorded(run, 1.5)
    row = VnTable.from_config(parse_config(run.app.config_path.read_text())).row_of(10, 1, 2)
    queues = [one.observed.queues for one in records if isinstance(one, Interval) and one.observed is not None]
    known = [one for one in queues if one.known[row]]
    assert len(known) >= len(queues) - 2 > 5
    elapsed_s = np.array([one.elapsed_s[row] for one in known])
    for name, expected_bps in (("served_bps", QUEUE_BPS), ("dropped_bps", 300e6 - QUEUE_BPS)):
        mean_bps = np.average([getattr(one, name)[row] for one in known], weights=elapsed_s)
        assert abs(mean_bps - expected_bps) < 0.1 * expected_bps, name
    for one in queues:
        assert not one.known[[number for number in range(len(one.known)) if number != row]].any()  # they have no queue
        assert np.isnan(one.dropped_packets[~one.known]).all()
    assert all(again.same for again in replay(records))
