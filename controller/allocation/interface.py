"""Input and state of every rate allocation algorithm: columns of numpy arrays, one row per pair.

A row is a (sender VN, receiver VN) pair, in names also *entry*. Rows are grouped by receiver (CSR): those of
receiver ``r`` are ``offsets[r]:offsets[r + 1]`` of every column of pairs. DETS runs one rate allocator at each
receiving node (section III.A); here one call does the work of all of them, so no algorithm loops over pairs or
receivers in Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass

import numpy as np
from numpy.typing import NDArray

from controller.errors import ColumnError, InvalidValueError
from controller.units import MAX_WEIGHT, MIN_WEIGHT

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Choice: the paper does not say when a node "fully uses" its rate. A shaped sender passes a little less than its limit
# (a whole frame waits for its tokens), so 95 % counts as full use; so does any drop.
FULL_USE = 0.95


@dataclass(frozen=True, slots=True)
class AllocationInput:
    """The state of all pairs at one instant; rates in bits per second.

    Raises ColumnError, naming column, row and value, when a column holds NaN, a negative or an infinite rate (only
    ``granted_bps`` may be infinite), a limit that is not positive or a weight out of range; InvalidValueError when
    columns differ in length or type. Without ``check`` nothing is checked: for input with the same rows and sources as
    an input that was checked.
    """

    offsets: IntArray
    """(receivers + 1,) int64; the pairs of receiver r are ``offsets[r]:offsets[r + 1]``"""
    limit_bps: FloatArray
    """(receivers,) the receive rate to share: the receive limit of the VN"""
    received_bps: FloatArray
    """(receivers,) measured receiving rate"""
    measured_bps: FloatArray
    """(pairs,) measured sending rate, after the meter"""
    granted_bps: FloatArray
    """(pairs,) the effective rate limit; infinite where there is none yet"""
    available_bps: FloatArray
    """(pairs,) maxRate of Algorithm 1: the send limit less the rate that the sender sends to other receivers"""
    drops: BoolArray
    """(pairs,) whether the meter dropped frames: the sender offered more"""
    weight: FloatArray
    """(pairs,) 1e-6 to 1e6; shares are in proportion to it"""
    active: BoolArray
    """(pairs,) has traffic to send"""
    check: InitVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        if check:
            _check_shapes(self)
            _check_values(self)

    @property
    def receivers(self) -> int:
        """The number of receivers."""
        return len(self.limit_bps)

    @property
    def entries(self) -> int:
        """The number of pairs."""
        return len(self.measured_bps)


_RECEIVER_COLUMNS = ("limit_bps", "received_bps")
_ENTRY_COLUMNS = ("measured_bps", "granted_bps", "available_bps", "weight", "drops", "active")
_FLAGS = ("drops", "active")


def _check_shapes(requests: AllocationInput) -> None:
    """Raise InvalidValueError for a column of the wrong type or length, ColumnError for bad offsets."""
    offsets = requests.offsets
    if offsets.dtype != np.int64 or offsets.ndim != 1 or len(offsets) == 0:
        raise InvalidValueError("offsets", f"{offsets.dtype}{offsets.shape}", "must be int64 of shape (receivers + 1,)")
    if offsets[0] != 0:
        raise ColumnError("offsets", 0, int(offsets[0]), "must be 0")
    decreases = np.flatnonzero(offsets[1:] < offsets[:-1])
    if len(decreases):
        row = int(decreases[0]) + 1
        raise ColumnError("offsets", row, int(offsets[row]), f"must not be below the {int(offsets[row - 1])} before it")
    for names, rows in ((_RECEIVER_COLUMNS, len(offsets) - 1), (_ENTRY_COLUMNS, int(offsets[-1]))):
        for name in names:
            column = getattr(requests, name)
            dtype = np.bool_ if name in _FLAGS else np.float64
            if column.dtype != dtype or column.shape != (rows,):
                reason = f"must be {np.dtype(dtype)} of shape ({rows},), as the offsets say"
                raise InvalidValueError(name, f"{column.dtype}{column.shape}", reason)


def _check_values(requests: AllocationInput) -> None:
    """Raise ColumnError for rates and weights out of bounds."""
    for name in ("limit_bps", "received_bps", "measured_bps", "available_bps"):
        check_rates(name, getattr(requests, name), positive=name == "limit_bps")
    check_rates("granted_bps", requests.granted_bps, infinite=True)
    weight = requests.weight
    if len(weight) and not (weight.min() >= MIN_WEIGHT and weight.max() <= MAX_WEIGHT):
        row = int(np.flatnonzero(~((weight >= MIN_WEIGHT) & (weight <= MAX_WEIGHT)))[0])
        raise ColumnError("weight", row, float(weight[row]), f"must be {MIN_WEIGHT:g} to {MAX_WEIGHT:g}")


def check_rates(name: str, column: FloatArray, *, positive: bool = False, infinite: bool = False) -> None:
    """Raise ColumnError for the first row of a column of rates that is NaN, negative, or infinite unless ``infinite``.

    ``positive`` rejects zero as well. A valid column, which is every one on the hot path, costs two passes and no mask:
    one for the smallest and one for the largest value (either is NaN if any value is).
    """
    if len(column) == 0:
        return
    low, high = column.min(), column.max()
    low_is_valid = low > 0 or (low == 0 and not positive)
    if low_is_valid and (infinite or high < np.inf):
        return
    bad = ~((column > 0) | ((column == 0) & (not positive)))
    if not infinite:
        bad |= np.isinf(column)
    row = int(np.flatnonzero(bad)[0])
    reason = f"must be {'a rate above 0' if positive else '0 or a positive rate'}{'' if infinite else ', not infinite'}"
    raise ColumnError(name, row, float(column[row]), reason)


State = Mapping[str, FloatArray]
"""The state of an algorithm for each receiver: columns (receivers,) by name. NaN is unknown, which is the value of new
receivers. Columns are never changed in place."""


def remembered(requests: AllocationInput, state: State, name: str) -> FloatArray:
    """Return the column ``name`` of the state, (receivers,); raise InvalidValueError for any other shape."""
    column = state[name]
    if column.shape != requests.limit_bps.shape:
        raise InvalidValueError(f"state.{name}", column.shape, f"must be for {requests.receivers} receivers")
    return column


def fully_used_mask(requests: AllocationInput) -> BoolArray:
    """Return the mask of the active pairs that use all of the rate they were granted, (pairs,).

    Choice: a pair fully uses its rate if it passes 95 % of its limit or had frames dropped (see FULL_USE). A pair
    without a limit counts as well: its receiver is congested, and no counter shows whether that limits the pair.
    """
    granted_bps = requests.granted_bps
    full: BoolArray = (requests.measured_bps >= FULL_USE * granted_bps) | requests.drops
    full |= np.isinf(granted_bps)
    full &= requests.active
    return full
