"""Requests of one receiver's senders, with usual values for all that a test does not set."""

from __future__ import annotations

from typing import Any

import numpy as np

from controller.allocation import AllocationInput


def one_receiver(limit_bps: float, granted_bps: Any, *, received_bps: float = 0.0, **given: Any) -> AllocationInput:
    """Active senders of one weight: each sends what it is granted, and could send all of the limit."""
    granted_bps = np.array(granted_bps, dtype=np.float64)
    count = len(granted_bps)
    usual = {"measured_bps": granted_bps, "available_bps": np.full(count, limit_bps), "weight": np.ones(count)}
    usual |= {"active": np.ones(count, dtype=np.bool_), "drops": np.zeros(count, dtype=np.bool_)}
    columns = {name: np.array(value, dtype=usual[name].dtype) for name, value in (usual | given).items()}
    totals = {"limit_bps": np.array([limit_bps]), "received_bps": np.array([received_bps])}
    return AllocationInput(offsets=np.array([0, count]), granted_bps=granted_bps, **totals, **columns)
