"""Traffic totals of VNs since the start, and how long each guarantee was met or violated, with the cause.

The control loop measures rates of single intervals. Monitoring that polls every 15 s would see one interval of 273:
here they are added up, so that two polls show the traffic between them. Bytes are added up in every interval, states
once a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from controller.central.controller import CentralController
from controller.columns import BoolArray, FloatArray, IntArray, reindex
from controller.metering.guarantees import MEAN_S, MIN_ENTITLED_BPS
from controller.monitoring.live_rates import connected, flood_rates, granted_bps, live_rates, mark_rates
from controller.units import BITS_PER_BYTE

COLUMNS = (
    "received",
    "sent",
    "offered",
    "send_offered",
    "dropped",
    "send_dropped",
    "send_limit_dropped",
    "granted",
    "flooded",
    "flood_dropped",
    "flood_received",
    "marked",
    "lost",
)
"""The totals of each VN. ``received``, ``offered`` and ``dropped`` count traffic to it; ``sent`` to
``send_limit_dropped`` traffic from it. ``granted`` counts while the VN is congested. ``marked`` and ``lost`` are the
parts of the received traffic that its policy reports."""

HOUR_MINUTES = 60
LATE_INTERVALS = 1.5
"""The controller is late after this many intervals without a round."""
FLOODED_PART = 0.01
"""Floods contribute to a violated guarantee when they use this part of the receive limit."""


class GuaranteeState(IntEnum):
    """The state of a VN's guarantee: not entitled, met, or violated for a reason.

    VIOLATED_SWITCH: the VN's switch, or a sender's switch, is not connected. VIOLATED_CONTROLLER: the controller
    was late in the last seconds. VIOLATED_FLOODS: floods use a part of the receive limit. VIOLATED_GRANTS: the grants,
    or the meters that follow them, pass less.
    """

    IDLE = 0
    MET = 1
    VIOLATED_SWITCH = 2
    VIOLATED_CONTROLLER = 3
    VIOLATED_FLOODS = 4
    VIOLATED_GRANTS = 5


VIOLATED = (
    GuaranteeState.VIOLATED_SWITCH,
    GuaranteeState.VIOLATED_CONTROLLER,
    GuaranteeState.VIOLATED_FLOODS,
    GuaranteeState.VIOLATED_GRANTS,
)


@dataclass
class TrafficTotals:
    """Sums over time. ``bytes`` has shape (COLUMNS, vns), ``seconds`` (GuaranteeState, vns), ``congested_s`` (vns,).

    ``mean_bps`` (COLUMNS, vns) is the mean over the last whole second, NaN before the first second and where unknown
    now. ``missing_since_s`` (vns,) is NaN where the guarantee is met. ``minutes`` (HOUR_MINUTES, vns) is a ring: the
    seconds of violation in each of the last minutes.
    """

    bytes: FloatArray
    seconds: FloatArray
    congested_s: FloatArray
    mean_bps: FloatArray
    missing_since_s: FloatArray
    minutes: FloatArray
    _second_bytes: FloatArray  # ``bytes`` at the beginning of the present second
    _late_s: float = -np.inf  # when the controller was late last
    _second_s: float = np.nan  # the beginning of the present second
    _minute_s: float = np.nan  # and of the present minute
    _minute: int = 0  # its row in ``minutes``
    _rows: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def initial(cls, vns: int) -> TrafficTotals:
        """Return the sums before any traffic."""
        columns = np.zeros((len(COLUMNS), vns))
        return cls(
            columns,
            np.zeros((len(GuaranteeState), vns)),
            np.zeros(vns),
            np.full((len(COLUMNS), vns), np.nan),
            np.full(vns, np.nan),
            np.zeros((HOUR_MINUTES, vns)),
            columns.copy(),
            _rows=np.arange(vns, dtype=np.int64),
        )

    def reindexed(self, old_row: IntArray) -> TrafficTotals:
        """Return the sums for a re-arranged VN table."""
        fresh = TrafficTotals.initial(len(old_row))
        for mine, others in (
            (fresh.bytes, self.bytes),
            (fresh.seconds, self.seconds),
            (fresh.minutes, self.minutes),
            (fresh.mean_bps, self.mean_bps),
            (fresh._second_bytes, self._second_bytes),
        ):
            for row, column in enumerate(others):
                mine[row] = reindex(column, old_row, mine[row])
        fresh.congested_s = reindex(self.congested_s, old_row, 0.0)
        fresh.missing_since_s = reindex(self.missing_since_s, old_row, np.nan)
        fresh._late_s, fresh._second_s = self._late_s, self._second_s
        fresh._minute_s, fresh._minute = self._minute_s, self._minute
        return fresh

    def add(self, rates_bps: FloatArray, central: CentralController, elapsed_s: float, now_s: float) -> bool:
        """Add the last ``elapsed_s`` at these rates (COLUMNS, vns); return whether a second is complete."""
        unknown = np.isnan(rates_bps)
        moved = np.where(unknown, 0.0, rates_bps)
        moved *= elapsed_s / BITS_PER_BYTE
        self.bytes += moved
        if elapsed_s > LATE_INTERVALS * central.config.interval_s:
            self._late_s = now_s
        if np.isnan(self._second_s):
            self._second_s = self._minute_s = now_s - elapsed_s
        passed_s = now_s - self._second_s
        if passed_s < 1.0:
            return False
        self.congested_s[central.fabric.congestion.congested] += passed_s
        self._judge(central, passed_s, now_s)
        mean_bps = (self.bytes - self._second_bytes) * (BITS_PER_BYTE / passed_s)
        self.mean_bps = np.where(unknown, np.nan, mean_bps)
        self._second_s, self._second_bytes = now_s, self.bytes.copy()
        if now_s - self._minute_s >= 60.0:
            self._minute_s, self._minute = now_s, (self._minute + 1) % HOUR_MINUTES
            self.minutes[self._minute] = 0.0
        return True

    @property
    def violated_s(self) -> FloatArray:
        """Return for how long each guarantee was violated since the start, shape (vns,)."""
        return np.asarray(self.seconds[VIOLATED[0] :].sum(axis=0))  # the states of VIOLATED come last

    @property
    def violated_last_hour_s(self) -> FloatArray:
        """Return for how long each guarantee was violated in the last 59 to 60 minutes, shape (vns,)."""
        return np.asarray(self.minutes.sum(axis=0))

    def _judge(self, central: CentralController, elapsed_s: float, now_s: float) -> None:
        """Add the seconds since the last call to the present state of each guarantee.

        Once a second is often enough: a guarantee's state follows from means over MEAN_S.
        """
        guarantees = central.fabric.guarantees
        outcome = np.where(guarantees.entitled_bps >= MIN_ENTITLED_BPS, GuaranteeState.MET, GuaranteeState.IDLE).astype(
            np.int64
        )
        missing = guarantees.violated
        if missing.any():
            outcome[missing] = self._reasons(central, now_s)[missing]
            self.minutes[self._minute, missing] += elapsed_s
        self.missing_since_s = np.where(
            missing, np.where(np.isnan(self.missing_since_s), now_s, self.missing_since_s), np.nan
        )
        self.seconds[outcome, self._rows] += elapsed_s

    def _reasons(self, central: CentralController, now_s: float) -> IntArray:
        """Return (vns,) the GuaranteeState that would explain a violated guarantee now."""
        fabric = central.fabric
        flooded = fabric.floods.received_bps >= FLOODED_PART * central.vns.receive_limit_bps
        why = np.where(flooded, GuaranteeState.VIOLATED_FLOODS, GuaranteeState.VIOLATED_GRANTS).astype(np.int64)
        if now_s - self._late_s < MEAN_S:
            why[:] = GuaranteeState.VIOLATED_CONTROLLER
        why[_behind_lost_switches(central)] = GuaranteeState.VIOLATED_SWITCH
        return why


def current_rates(central: CentralController) -> FloatArray:
    """Return the rates of the last interval in bit/s, shape (COLUMNS, vns); NaN is unknown."""
    online = connected(central)
    of_vns = *live_rates(central, online), granted_bps(central)
    return np.array((*of_vns, *flood_rates(central, online)[1:], *mark_rates(central, online)))


def _behind_lost_switches(central: CentralController) -> BoolArray:
    # The VNs behind disconnected switches, and the receivers with a sender there.
    online, entries = connected(central), central.state.entries
    lost = ~online
    lost[entries.receiver[~online[entries.sender]]] = True
    return lost
