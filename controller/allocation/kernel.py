"""The compiled form of the algorithms, where it was built; without it, numpy does the same more slowly.

It is ``_kernel.c``, loaded by ``controller.compiled``. RAA-FS, SP, FP, FE and Fair Level give the same bits either way;
max-min the same but for rounding.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from controller.allocation.interface import FloatArray, IntArray, Requests
from controller.compiled import call, load

_FUNCTIONS = {
    "dets_fair_share": (ctypes.c_int, "i******"),
    "dets_probe": (ctypes.c_int, "i********dddd*"),
    "dets_fair_level": (ctypes.c_int, "i*********"),
    "dets_forward_explicit": (ctypes.c_int, "i******dd**"),
    "dets_max_min": (ctypes.c_int64, "ii*******"),
}
library = load(Path(__file__).parent, "_kernel", _FUNCTIONS)
"""The loaded kernel; None when it was not built, and then every function here returns None."""


def _call(name: str, *arguments: NDArray[np.generic] | float | int) -> int:
    return call(library, name, *arguments)


def _check(status: int) -> None:
    if status:
        raise MemoryError("no memory for the allocation of one receiver")


def fair_share(requests: Requests) -> FloatArray | None:
    """Return the grants of RAA-FS (entries,)."""
    if library is None:
        return None
    grants_bps = np.empty(requests.entries)
    columns = (requests.limit_bps, requests.available_bps, requests.weight, requests.active)
    _check(_call("dets_fair_share", requests.receivers, requests.offsets, *columns, grants_bps))
    return grants_bps


def probe(requests: Requests, inflation: float, floor: float, headroom: float, d: float) -> FloatArray | None:
    """Return the grants of RAA-FP (entries,), or of RAA-SP with ``d`` of 0."""
    if library is None:
        return None
    grants_bps = np.empty(requests.entries)
    columns = (
        requests.limit_bps,
        requests.measured_bps,
        requests.granted_bps,
        requests.available_bps,
        requests.dropped_bps,
        requests.weight,
        requests.active,
    )
    parameters = (inflation, floor, headroom, d)
    _check(_call("dets_probe", requests.receivers, requests.offsets, *columns, *parameters, grants_bps))
    return grants_bps


def fair_level(requests: Requests, shared_bps: FloatArray) -> FloatArray | None:
    """Return the grants of Fair Level (entries,); ``shared_bps`` (receivers,) is what each receiver shares out."""
    if library is None:
        return None
    grants_bps = np.empty(requests.entries)
    columns = (
        shared_bps,
        requests.measured_bps,
        requests.granted_bps,
        requests.available_bps,
        requests.dropped_bps,
        requests.weight,
        requests.active,
    )
    _check(_call("dets_fair_level", requests.receivers, requests.offsets, *columns, grants_bps))
    return grants_bps


def forward_explicit(
    requests: Requests, rate_bps: FloatArray, k: float, floor: float
) -> tuple[FloatArray, FloatArray] | None:
    """Return the grants of RAA-FE (entries,) and the next fair rates (receivers,)."""
    if library is None:
        return None
    grants_bps, next_bps = np.empty(requests.entries), np.empty(requests.receivers)
    columns = (requests.limit_bps, requests.received_bps, requests.available_bps, requests.active, rate_bps)
    _call("dets_forward_explicit", requests.receivers, requests.offsets, *columns, k, floor, grants_bps, next_bps)
    return grants_bps, next_bps


def max_min(
    offsets: IntArray, constraint: IntArray, capacity_bps: FloatArray, demand_bps: FloatArray, weight: FloatArray
) -> tuple[FloatArray, IntArray, int] | None:
    """Return rates (flows,), what binds them (flows,) and how many times a constraint was looked at."""
    if library is None:
        return None
    flows = len(demand_bps)
    rate_bps, bound = np.empty(flows), np.empty(flows, dtype=np.int64)
    columns = (offsets, constraint, capacity_bps, demand_bps, weight)
    looked = _call("dets_max_min", flows, len(capacity_bps), *columns, rate_bps, bound)
    if looked < 0:
        raise MemoryError(f"no memory for max-min rates of {flows} flows")
    return rate_bps, bound, looked
