"""The five DETS messages (DETS, section II.A) as columns, and ``ReceiverLoads``, which the paper does not have.

Send-rate controllers and rate allocators exchange these messages only, so that they can run on different machines. A
column holds one value per message. ``entry`` addresses both ends: it is a row of the pair table, which has the sending
and the receiving VN.
"""

from __future__ import annotations

from typing import NamedTuple

from controller.columns import BoolArray, FloatArray, IntArray


class TrafficReport(NamedTuple):
    """Sending to receiving node: the measured rate, the rate limit, and the rate that the sender could send at most.

    ``measured_bps`` is the rate that passed the pair's meter, ``dropped_bps`` the rate that the meter dropped,
    ``drops`` whether it dropped anything, ``limit_bps`` the effective rate limit (infinite before the first) and
    ``available_bps`` the sender's send limit less its rate to other receivers. ``active`` tells whether the sender has
    traffic for this receiver.

    Deviation: the paper's report has no ``dropped_bps``, no ``drops`` and no ``active``. The paper's agents could not
    see load above the limit; a meter counts its drops, so the report has them.
    """

    entry: IntArray
    measured_bps: FloatArray
    dropped_bps: FloatArray
    drops: BoolArray
    limit_bps: FloatArray
    available_bps: FloatArray
    active: BoolArray


class ReceiverLoads(NamedTuple):
    """Senders' to receivers' side: the load of all pairs of one node or shard on each receiver, shape (vns,).

    ``passed_bps``, ``smoothed_bps`` and ``dropped_bps`` are sums over meters, including pairs that are not under
    control. ``taken_bits`` are the bits that passed since the last reading, for receivers that no queue holds.

    Deviation: in the paper the receiving node measures what it receives. Here meters at the senders do.
    """

    passed_bps: FloatArray
    smoothed_bps: FloatArray
    dropped_bps: FloatArray
    taken_bits: FloatArray


class InitializeTrafficControl(NamedTuple):
    """Receiving to sending node: measure and report the traffic to this receiver from now on."""

    entry: IntArray


class SetRate(NamedTuple):
    """Receiving to sending node: the rate that the sender has been granted."""

    entry: IntArray
    rate_bps: FloatArray


class KeepAlive(NamedTuple):
    """Receiving to sending node: traffic control remains active, and the last granted rate holds."""

    entry: IntArray


class DeactivateTrafficControl(NamedTuple):
    """Receiving to sending node: congestion is over, the sender is no longer limited."""

    entry: IntArray
