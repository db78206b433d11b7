"""The native form of the algorithms, where it was built; otherwise numpy computes the same more slowly.

It is ``_allocation.c``, loaded by ``controller.native_loader``. RAA-FS, SP, FP, FE and Fair Level give identical bits
either way; max-min differs by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from controller.allocation.interface import AllocationInput, FloatArray, IntArray
from controller.native_loader import load_native

library = load_native(
    "controller.allocation._allocation",
    "dets_fair_share",
    "dets_probe",
    "dets_fair_level",
    "dets_forward_explicit",
    "dets_standing",
    "dets_max_min",
)
"""The module with the native functions; None if it was not built: then every function here returns None."""


def column(*parameters: float) -> FloatArray:
    """Return an algorithm's parameters as a column for the native code."""
    return np.array(parameters, dtype=np.float64)


_NOTHING = column()


def _allocate(
    allocate: Callable[..., int],
    requests: AllocationInput,
    parameters: FloatArray,
    before: FloatArray = _NOTHING,
    after: FloatArray = _NOTHING,
) -> FloatArray:
    """Return the grants (pairs,) of a native algorithm; raise MemoryError if it has no memory.

    ``before`` (receivers,) is the algorithm's state, ``after`` (receivers,) the buffer for the next state.
    """
    grants_bps = np.empty(len(requests.measured_bps))
    columns = (
        requests.offsets,
        requests.limit_bps,
        requests.received_bps,
        requests.measured_bps,
        requests.granted_bps,
        requests.available_bps,
        requests.drops,
        requests.weight,
        requests.active,
        parameters,
        grants_bps,
        before,
        after,
    )
    if allocate(columns):
        raise MemoryError("no memory for the allocation of one receiver")
    return grants_bps


def fair_share(requests: AllocationInput) -> FloatArray | None:
    """Return the grants of RAA-FS (pairs,)."""
    return None if library is None else _allocate(library.dets_fair_share, requests, _NOTHING)


def probe(requests: AllocationInput, parameters: FloatArray) -> FloatArray | None:
    """Return the grants of RAA-FP (pairs,), or of RAA-SP with d = 0.

    ``parameters`` are inflation, floor, headroom and d.
    """
    return None if library is None else _allocate(library.dets_probe, requests, parameters)


def fair_level(
    requests: AllocationInput, booked: FloatArray, parameters: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return the grants of Fair Level (pairs,), and the next factor of each receiver (receivers,).

    A receiver shares out this factor times its limit. ``booked`` (receivers,) are the last factors; ``parameters`` has
    one value, booking.
    """
    if library is None:
        return None
    after = np.empty(len(booked))
    return _allocate(library.dets_fair_level, requests, parameters, booked, after), after


def forward_explicit(
    requests: AllocationInput, rate_bps: FloatArray, parameters: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return the grants of RAA-FE (pairs,) and the next fair rates (receivers,); ``parameters`` are k and floor."""
    if library is None:
        return None
    next_bps = np.empty(len(rate_bps))
    return _allocate(library.dets_forward_explicit, requests, parameters, rate_bps, next_bps), next_bps


def with_idle_share(requests: AllocationInput, grants_bps: FloatArray) -> FloatArray | None:
    """Return the grants (pairs,), with the grants of idle senders replaced by their idle shares."""
    if library is None:
        return None
    after_bps = np.empty(len(grants_bps))
    inputs = (requests.offsets, requests.limit_bps, requests.available_bps, requests.active, grants_bps)
    has_idle_senders = library.dets_standing((*inputs, after_bps))
    return after_bps if has_idle_senders else grants_bps


def max_min(
    offsets: IntArray, constraint: IntArray, capacity_bps: FloatArray, demand_bps: FloatArray, weight: FloatArray
) -> tuple[FloatArray, IntArray, int] | None:
    """Return rates (flows,), the constraints that bind them (flows,), and the number of constraint evaluations."""
    if library is None:
        return None
    flows = len(demand_bps)
    rate_bps, bound = np.empty(flows), np.empty(flows, dtype=np.int64)
    columns = (offsets, constraint, capacity_bps, demand_bps, weight, rate_bps, bound)
    evaluations = library.dets_max_min(columns)
    if evaluations < 0:
        raise MemoryError(f"no memory for max-min rates of {flows} flows")
    return rate_bps, bound, evaluations
