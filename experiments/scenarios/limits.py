"""What VNs of a scenario are promised, and changes of it while the scenario runs."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.scenarios.traffic import require, scaled_fields

RATES = ("send_bps", "receive_bps", "send_ceiling_bps", "receive_ceiling_bps")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a VN may send and receive, up to which ceilings it may borrow (None: not at all), and its weight.

    Algorithms that do not borrow run without the ceilings. A weight of None is the VLAN's, of a VLAN 1.
    """

    send_bps: int
    receive_bps: int
    send_ceiling_bps: int | None = None
    receive_ceiling_bps: int | None = None
    weight: float | None = None

    def check(self, key: str) -> None:
        """Raise InvalidValueError naming what makes no sense below ``key``."""
        for way in ("send", "receive"):
            limit_bps, ceiling_bps = getattr(self, f"{way}_bps"), getattr(self, f"{way}_ceiling_bps")
            good = ceiling_bps is None or ceiling_bps >= limit_bps
            require(good, f"{key}.{way}_ceiling_bps", ceiling_bps, f"is below the limit, {limit_bps}")
        require(self.weight is None or self.weight > 0, f"{key}.weight", self.weight, "is not above 0")

    def scaled(self, factor: float) -> Limits:
        """Return them with every rate times ``factor``."""
        scaled: Limits = scaled_fields(self, RATES, factor)
        return scaled


@dataclass(frozen=True, slots=True)
class LimitChange:
    """At a time a VN gets other limits, ceilings or another weight; what is None stays."""

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
        """What changes, by the product's names of a VN's values."""
        names = {"send_bps": "send_limit_bps", "receive_bps": "receive_limit_bps"}
        found = {names.get(name, name): getattr(self, name) for name in (*RATES, "weight")}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class AlgorithmChange:
    """At a time a VLAN gets another algorithm. Baselines, which have none, do not notice."""

    at_s: float
    vlan_vid: int
    control: str


Event = LimitChange | AlgorithmChange
