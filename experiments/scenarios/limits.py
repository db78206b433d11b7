"""The guarantees of a scenario's VNs, and changes of them while the scenario runs."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.scenarios.traffic import require, scaled_fields

RATES = ("send_bps", "receive_bps", "send_ceiling_bps", "receive_ceiling_bps")


@dataclass(frozen=True, slots=True)
class Limits:
    """The send and receive limit of a VN, the ceilings for borrowing (None: no borrowing), and its weight.

    Algorithms that do not borrow run without the ceilings. A weight of None is the VLAN's; a VLAN's is 1.
    """

    send_bps: int
    receive_bps: int
    send_ceiling_bps: int | None = None
    receive_ceiling_bps: int | None = None
    weight: float | None = None

    def check(self, key: str) -> None:
        """Raise InvalidValueError naming an invalid value below ``key``."""
        for direction in ("send", "receive"):
            limit_bps, ceiling_bps = getattr(self, f"{direction}_bps"), getattr(self, f"{direction}_ceiling_bps")
            good = ceiling_bps is None or ceiling_bps >= limit_bps
            require(good, f"{key}.{direction}_ceiling_bps", ceiling_bps, f"is below the limit, {limit_bps}")
        require(self.weight is None or self.weight > 0, f"{key}.weight", self.weight, "is not above 0")

    def scaled(self, factor: float) -> Limits:
        """Return the limits with every rate times ``factor``."""
        scaled: Limits = scaled_fields(self, RATES, factor)
        return scaled


@dataclass(frozen=True, slots=True)
class LimitChange:
    """New limits, ceilings or weight of a VN at a time; None: unchanged."""

    at_s: float
    vlan_vid: int
    pn: int
    send_bps: int | None = None
    receive_bps: int | None = None
    send_ceiling_bps: int | None = None
    receive_ceiling_bps: int | None = None
    weight: float | None = None

    @property
    def fields(self) -> dict[str, float]:
        """The changed values, by the product's names."""
        names = {"send_bps": "send_limit_bps", "receive_bps": "receive_limit_bps"}
        found = {names.get(name, name): getattr(self, name) for name in (*RATES, "weight")}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class AlgorithmChange:
    """A new algorithm of a VLAN at a time. Baselines, which have no algorithm, ignore it."""

    at_s: float
    vlan_vid: int
    control: str


Event = LimitChange | AlgorithmChange
