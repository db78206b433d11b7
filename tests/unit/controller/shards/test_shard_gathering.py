"""What peers report is gathered alike, whether limits are put together or are the grants of before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from controller.dets.messages import TrafficReport
from controller.node_protocol.message_types import GrantRecord, OmittedColumns, ReportMessage
from controller.shards.merged_reports import MergedReports
from controller.shards.receiver_table import ReceiverTable

ROWS = 60
NOBODY = np.empty(0, dtype=np.int64)


def gathered(rng: np.random.Generator, change: str) -> tuple[MergedReports, np.ndarray, np.ndarray]:
    """Return what is gathered of one's own and two peers' entries, what was granted, and the limits in force."""
    sender, receiver, part = np.arange(ROWS) % 10, np.arange(ROWS) // 10, rng.integers(0, 3, ROWS)
    pairs = [(sender[part == one], receiver[part == one]) for one in range(3)]
    table, granted_bps = ReceiverTable.from_parts(pairs), rng.random(ROWS)
    limit_bps = granted_bps.copy()
    if change == "own":  # one of one's own has got another limit since
        limit_bps[table.part_rows[0][1]] = 7.0
    own, (measured, refused, available) = np.arange(len(pairs[0][0])), rng.random((3, ROWS))
    drops, here_at = rng.random(ROWS) < 0.5, table.part_rows[0]
    columns = measured, refused, drops, limit_bps, available, drops | True
    here = TrafficReport(own, *(one[here_at] for one in columns))
    said = []
    for number, place in enumerate(table.part_rows[1:]):
        limits: Any = GrantRecord(NOBODY, granted_bps, place)
        if change == "said" and number:
            limits = granted_bps[place]
        if change == "earlier" and number:  # this peer's limits are of another interval
            limit_bps[place] = 9.0
            limits = GrantRecord(NOBODY, limit_bps, place)
        rates = (one[place] for one in (measured, refused))
        left = np.zeros(1), np.zeros(1, np.int64), np.ones(1, np.bool_)
        last, unread, active = (np.ndarray(len(place), one.dtype, one, strides=(0,)) for one in left)
        others = last, unread, drops[place], active
        ends = table.entries.sender[place], table.entries.receiver[place]
        said.append(ReportMessage(NOBODY, *(np.empty(0),) * 3, *ends, *rates, limits, available[place], *others))
    seen = SimpleNamespace(measured=SimpleNamespace(passed_bps=own * 0.0), unread_intervals=own)
    left_out = OmittedColumns.AMOUNTS | OmittedColumns.UNREAD | OmittedColumns.ACTIVE
    found = MergedReports.build(table, own, SimpleNamespace(seen=seen), here, said, left_out)  # type: ignore[arg-type]
    assert found.measured_bps.tolist() == measured.tolist()
    assert found.available_bps.tolist() == available.tolist()
    assert found.refused_bps.tolist() == refused.tolist()
    assert found.drops.tolist() == drops.tolist()
    return found, granted_bps, limit_bps


def test_grants_that_are_in_force_everywhere_are_the_limits() -> None:
    found, granted_bps, _ = gathered(np.random.default_rng(1), "")
    assert found.limit_bps is granted_bps


@pytest.mark.parametrize("change", ["own", "said", "earlier"])
def test_limits_are_put_together_where_some_are_others(change: str) -> None:
    found, granted_bps, limit_bps = gathered(np.random.default_rng(2), change)
    assert found.limit_bps is not granted_bps
    assert found.limit_bps.tolist() == limit_bps.tolist()
