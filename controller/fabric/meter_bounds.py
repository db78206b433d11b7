"""The meter settings that a switch accepts: bounds of rates and bursts, and settings fitted to them.

Rates are kb/s and bursts kb, as a band carries them (OpenFlow 1.3.5, section 7.3.4.4).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

MAX_KILO = 2**32 - 1
Kilos: TypeAlias = "npt.NDArray[np.integer] | int"


class MeterBounds(NamedTuple):
    """The bounds of one switch, or of each VN's switch in columns of shape (vns,)."""

    min_rate_kbps: Kilos = 1
    max_rate_kbps: Kilos = MAX_KILO
    rate_step_kbps: Kilos = 1
    min_burst_kbits: Kilos = 1
    max_burst_kbits: Kilos = MAX_KILO

    def select(self, rows: npt.NDArray[np.int64]) -> MeterBounds:
        """Return the bounds of some rows."""
        return MeterBounds._make(np.asarray(column)[rows] for column in self)

    def fitted(self, rate_kbps: Kilos, burst_kbits: Kilos) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Return the rates and bursts nearest to these within the bounds.

        Rates are rounded down to a step, but not below the minimum: a limit below the minimum rate cannot be enforced,
        and its sender gets the minimum rate.
        """
        step = np.maximum(self.rate_step_kbps, 1)
        # In steps: the minimum rounded up, the maximum down.
        minimum, maximum = -(-np.asarray(self.min_rate_kbps, np.int64) // step), np.asarray(self.max_rate_kbps) // step
        rates = np.clip(np.asarray(rate_kbps, np.int64) // step, np.maximum(minimum, 1), np.maximum(maximum, 1)) * step
        bursts = np.minimum(np.asarray(burst_kbits, np.int64), self.max_burst_kbits)
        bursts = np.maximum(bursts, np.maximum(self.min_burst_kbits, 1))
        return rates.astype(np.uint32), bursts.astype(np.uint32)

    def min_burst_bits(self, least_bits: float) -> npt.NDArray[np.float64]:
        """Return the smallest bursts within the bounds, in bits, each at least ``least_bits``."""
        kbits = np.minimum(self.min_burst_kbits, self.max_burst_kbits)
        return np.maximum(kbits * 1_000.0, least_bits)


UNBOUNDED = MeterBounds()


def columns_of(
    bounds: list[MeterBounds], rows: npt.NDArray[np.integer], min_burst_kbits: Kilos = 0
) -> MeterBounds | None:
    """Return the bounds of each row's switch, ``bounds[rows]``, as columns; None if no switch has bounds.

    ``min_burst_kbits`` is an additional minimum of each row, up to the largest burst of its switch.
    """
    if all(one == UNBOUNDED for one in bounds) and not np.any(min_burst_kbits):
        return None
    columns = MeterBounds._make(np.array(column, dtype=np.int64)[rows] for column in zip(*bounds, strict=True))
    needed = np.minimum(min_burst_kbits, columns.max_burst_kbits)
    return columns._replace(min_burst_kbits=np.maximum(columns.min_burst_kbits, needed))
