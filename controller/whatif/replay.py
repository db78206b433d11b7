"""Replay of a recorded run: by the same algorithms, bit for bit, and by another one for comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from controller.columns import FloatArray, IntArray
from controller.errors import ProtocolError
from controller.loop import control_step
from controller.policy.interface import Decision
from controller.policy.policy_groups import PolicyChoice, groups_of
from controller.policy.registry import make_policy
from controller.whatif.recording import Interval, Start
from controller.whatif.shadow import Shadow, shadow_step


@dataclass(frozen=True)
class Replayed:
    """One replayed interval.

    ``same`` tells whether every decision equals the recorded one to the last bit. ``limit_bps`` (pairs,) are the
    limits that were effective, ``alternative_bps`` (pairs,) the limits of the other algorithm, NaN without one.
    ``sender`` and ``receiver`` (pairs,) are rows of the VN table of ``start``. ``decisions`` are the groups'
    decisions.
    """

    start: Start
    now_s: float
    same: bool
    sender: IntArray
    receiver: IntArray
    limit_bps: FloatArray
    alternative_bps: FloatArray
    decisions: tuple[Decision, ...]


def replay(records: Iterable[Start | Interval], other: PolicyChoice | None = None) -> Iterator[Replayed]:
    """Yield each recorded interval, decided again; with ``other`` also decided by that policy in all VLANs.

    The other policy gets the counters of the run under the recorded one, as a shadow does. Its limits are not enforced:
    the result does not show their effect over time.

    Raises InvalidValueError for an unknown algorithm and bad parameters, ProtocolError for an interval without a start
    record, or with other pairs than it.
    """
    if other is not None:
        make_policy(other.algorithm, other.parameters)
    start, state, shadow = None, None, None
    for record in records:
        if isinstance(record, Start):
            has_other_vns = start is None or not record.vns.has_rows_of(start.vns)
            start, state = record, record.state
            shadow_policies = dict.fromkeys(record.policies, other) if other is not None else {}
            if shadow is None or shadow.policies != shadow_policies or has_other_vns:  # as after a reload
                shadow = Shadow.build(record.vns, shadow_policies)
            groups = groups_of(record.vns, record.policies)
            continue
        if start is None or state is None or shadow is None:
            raise ProtocolError("recording: begins in the middle: an interval stands before the first start record")
        if len(record.limit_bps) != len(state.entries):
            raise ProtocolError(f"recording: an interval has {len(record.limit_bps)} pairs, not {len(state.entries)}")
        before = state
        state, result = control_step.control_step(
            before, start.vns, groups, record.readings, record.now_s, start.links, record.observed, record.shaped
        )
        if shadow.policies:
            shadow = shadow_step(shadow, start.vns, before, state, start.links, record.observed)
        columns = [(result.limit_bps, record.limit_bps)]  # (replayed, recorded)
        columns += [(getattr(result.changes, name), getattr(record.changes, name)) for name in _CHANGE_COLUMNS]
        yield Replayed(
            start,
            record.now_s,
            all(replayed.tobytes() == recorded.tobytes() for replayed, recorded in columns),
            state.entries.sender,
            state.entries.receiver,
            result.limit_bps,
            shadow.rates_of(state.entries) if shadow.policies else np.full(len(result.limit_bps), np.nan),
            state.allocators.decisions,
        )


_CHANGE_COLUMNS = ("rows", "rate_bps", "burst_bits")


@dataclass(frozen=True)
class Difference:
    """One pair of VNs over a whole replay: the mean effective limits, and the other algorithm's mean limits."""

    vlan_vid: int
    sender: str
    receiver: str
    """``SWITCH:PORT``"""
    intervals: int
    mean_bps: float
    alternative_mean_bps: float
    largest_bps: float
    """the largest difference in one interval"""


def differences(replayed: Iterable[Replayed]) -> list[Difference]:
    """Return one row per pair of VNs, the largest difference first."""
    limits_by_pair: dict[tuple[int, str, str], list[tuple[float, float]]] = {}  # (effective, alternative) in bit/s
    for interval in replayed:
        start, rates_bps = interval.start, (interval.limit_bps.tolist(), interval.alternative_bps.tolist())
        columns = (interval.sender.tolist(), interval.receiver.tolist(), *rates_bps)
        for sender, receiver, limit_bps, alternative_bps in zip(*columns, strict=True):
            if alternative_bps == alternative_bps:  # not NaN
                pair = (int(start.vns.vlan_vid[sender]), vn_location(start, sender), vn_location(start, receiver))
                limits_by_pair.setdefault(pair, []).append((limit_bps, alternative_bps))
    rows = []
    for (vid, sender_at, receiver_at), limits in limits_by_pair.items():
        limits_bps, alternatives_bps = (np.array(column) for column in zip(*limits, strict=True))
        largest_bps = float(np.abs(limits_bps - alternatives_bps).max())
        means_bps = float(limits_bps.mean()), float(alternatives_bps.mean())
        rows.append(Difference(vid, sender_at, receiver_at, len(limits), *means_bps, largest_bps))
    return sorted(rows, key=lambda row: -row.largest_bps)


def vn_location(start: Start, vn: int) -> str:
    """Return a VN's location in a recording, as ``SWITCH:PORT``."""
    if start.links is not None:
        return start.links.location(vn)
    key = start.vns.key(vn)
    return f"{key.dpid:016x}:{key.port_no}"
