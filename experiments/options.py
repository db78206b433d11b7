"""What an experiment on an emulated fabric can be told, and the bounds of it: the command line's contract with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controller.errors import InvalidValueError
from controller.units import check_rate_bps, format_rate
from experiments.model.slots import LEAST_SLOT_S, MOST_SLOT_S

FABRICS = ("ovs", "wire", "model")
_MODELLED = ("cubic", "reno", "dctcp")
CONGESTION_CONTROLS = {"ovs": ("cubic", "reno", "bbr"), "wire": _MODELLED, "model": _MODELLED}
DATAPATHS = ("user", "kernel")
MAX_SENDERS = 50  # 2 x 50 flows of iperf3 are more than two cores can drive honestly
MAX_MODEL_RATE_BPS = 100_000_000_000
MIN_WINDOW_S, MAX_WINDOW_S = 1.0, 3600.0


@dataclass(frozen=True, slots=True)
class ExperimentOptions:
    """Settings of one run. Rates are wire rates in bit/s; ``udp_rate_bps`` is what each UDP sender offers.

    TCP alone runs for ``warmup_s``, then UDP beside it for ``blast_s``, then TCP alone for ``cooldown_s``. ``topology``
    is a name of ``topologies.builders.fabrics``; ``parameters`` belong to the algorithm. ``datapath`` is Open
    vSwitch's; ``slot_s`` is the grain of the model's time, on the model and on the wire.
    """

    algorithm: str = "fp"
    parameters: Mapping[str, object] = field(default_factory=dict)
    senders: int = 10
    link_rate_bps: int = 50_000_000
    victim_limit_bps: int = 20_000_000
    aggressor_limit_bps: int = 25_000_000
    udp_rate_bps: int = 16_000_000
    warmup_s: float = 10.0
    blast_s: float = 20.0
    cooldown_s: float = 10.0
    congestion_control: str = "cubic"
    seed: int = 1
    topology: str = "dets-fig5"
    fabric: str = "ovs"
    datapath: str = "user"
    slot_s: float = 0.001
    output: Path = Path("results/dets-fig5")
    baseline: bool = True
    static: bool = False
    quiet: bool = False

    def checked(self) -> ExperimentOptions:
        """Return these options if every one is acceptable; raise InvalidValueError naming the first that is not.

        Keys are the fields' names without unit, as the command line has them.
        """
        self._check_words()
        self._check_rates()
        self._check_numbers()
        return self

    def _check_rates(self) -> None:
        # Here, so that the command line does not wait for it at every start.
        from topologies.fabric import MAX_MININET_RATE_BPS

        for name in ("link_rate", "victim_limit", "aggressor_limit", "udp_rate"):
            check_rate_bps(getattr(self, f"{name}_bps"), name)
        link = format_rate(self.link_rate_bps)
        if self.fabric == "ovs" and self.link_rate_bps > MAX_MININET_RATE_BPS:
            most = format_rate(MAX_MININET_RATE_BPS)
            raise InvalidValueError("link_rate", link, f"is above {most}, beyond which Mininet ignores a link's rate")
        if self.link_rate_bps > MAX_MODEL_RATE_BPS:
            raise InvalidValueError("link_rate", link, f"is above {format_rate(MAX_MODEL_RATE_BPS)}")
        for name in ("victim_limit", "aggressor_limit", "udp_rate"):
            rate_bps = getattr(self, f"{name}_bps")
            if rate_bps > self.link_rate_bps:
                raise InvalidValueError(name, format_rate(rate_bps), f"is above the link rate, {link}")
        if self.victim_limit_bps + self.aggressor_limit_bps > self.link_rate_bps:
            total = format_rate(self.victim_limit_bps + self.aggressor_limit_bps)
            victim = format_rate(self.victim_limit_bps)
            reason = f"and the victim's limit, {victim}, are {total} together: above the link rate, {link}"
            raise InvalidValueError("aggressor_limit", format_rate(self.aggressor_limit_bps), reason)

    def _check_numbers(self) -> None:
        if not 1 <= self.senders <= MAX_SENDERS:
            raise InvalidValueError("senders", self.senders, f"is outside 1 to {MAX_SENDERS}")
        for name in ("warmup", "blast", "cooldown"):
            duration_s = getattr(self, f"{name}_s")
            if not MIN_WINDOW_S <= duration_s <= MAX_WINDOW_S:
                raise InvalidValueError(name, duration_s, f"is outside {MIN_WINDOW_S:g} to {MAX_WINDOW_S:g} seconds")
        if not LEAST_SLOT_S <= self.slot_s <= MOST_SLOT_S:
            reason = f"is outside {LEAST_SLOT_S:g} to {MOST_SLOT_S:g} seconds"
            raise InvalidValueError("slot", self.slot_s, reason)
        if not 0 <= self.seed < 2**32:
            raise InvalidValueError("seed", self.seed, "is outside 0 to 2^32 - 1")

    def _check_words(self) -> None:
        from controller.allocation.registry import make_any_algorithm
        from topologies.builders import fabrics

        choices = {
            "fabric": FABRICS,
            "congestion_control": CONGESTION_CONTROLS.get(self.fabric, ()),
            "topology": tuple(fabrics),
            "datapath": DATAPATHS,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise InvalidValueError(name, getattr(self, name), f"is not one of {', '.join(known)}")
        make_any_algorithm(self.algorithm, self.parameters)

    def to_json(self) -> dict[str, object]:
        """Return the options as JSON can hold them, for a manifest."""
        return {
            **{item.name: getattr(self, item.name) for item in dataclasses.fields(self)},
            "parameters": dict(self.parameters),
            "output": str(self.output),
        }
