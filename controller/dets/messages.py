"""The five DETS messages (DETS, section II-A) as columns, and one that the paper does not have, ``Loads``.

Send-rate controllers and rate allocators talk to each other in these messages only, so that they can sit on different
machines. A column holds one value per message. ``entry`` addresses both ends: it is the row of the pair table, which
knows the sending and the receiving VN.
"""

from __future__ import annotations

from typing import NamedTuple

from controller.columns import BoolArray, FloatArray, IntArray


class TrafficReport(NamedTuple):
    """Sending to receiving node: what is sent there, under which limit, and what could be sent at most.

    ``measured_bps`` is what passed the entry's meter, ``dropped_bps`` what the meter dropped, ``drops`` whether it
    dropped anything, ``limit_bps`` the rate limit in force (inf when there is none yet) and ``available_bps`` the
    sender's send limit less what it sends to other receivers. ``active`` says whether the sender has traffic for this
    receiver.

    Deviation: the paper's report has no ``dropped_bps``, no ``drops`` and no ``active``. Its agents could not see load
    above the limit; a meter counts what it drops, so the report tells.
    """

    entry: IntArray
    measured_bps: FloatArray
    dropped_bps: FloatArray
    drops: BoolArray
    limit_bps: FloatArray
    available_bps: FloatArray
    active: BoolArray


class ReceiverLoads(NamedTuple):
    """Senders' to receivers' side: what all entries of one place bring to each receiver, shape (vns,).

    ``passed_bps``, ``smoothed_bps`` and ``dropped_bps`` are sums over meters, of entries that are not under control
    too. ``passed_bits`` is what passed since the last reading, for receivers that no queue holds.

    Deviation: in the paper the receiving node measures what it receives. Here meters at the senders do.
    """

    passed_bps: FloatArray
    smoothed_bps: FloatArray
    dropped_bps: FloatArray
    taken_bits: FloatArray


class InitializeTrafficControl(NamedTuple):
    """Receiving to sending node: start to measure and to report what is sent to me."""

    entry: IntArray


class SetRate(NamedTuple):
    """Receiving to sending node: the rate that the sender has been granted."""

    entry: IntArray
    rate_bps: FloatArray


class KeepAlive(NamedTuple):
    """Receiving to sending node: traffic control is still active and the last granted rate stands."""

    entry: IntArray


class DeactivateTrafficControl(NamedTuple):
    """Receiving to sending node: congestion is over, limit me no longer."""

    entry: IntArray
