"""The options of ``dets experiment``: their names, defaults and help texts, and the bounds of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller import plugins
from controller.errors import InvalidValueError
from controller.units import check_interval_ms, check_rate_bps, format_rate
from experiments.model import MAX_SLOT_S, MIN_SLOT_S
from experiments.scenarios.scenario import SHAPINGS
from experiments.scenarios.traffic import CONGESTION_CONTROLS
from topologies.builders import fabrics

FABRICS = ("ovs", "wire", "model")
DATAPATHS = ("user", "kernel")
QUEUES = ("limit", "none")
MAX_SENDERS = 50  # two cores cannot drive more than 2 x 50 sources reliably
MAX_MODEL_RATE_BPS = 100_000_000_000
MIN_WINDOW_S, MAX_WINDOW_S = 1.0, 3600.0


def _option(default: Any, help_text: str = "", name: str | None = None, short: str | None = None) -> Any:
    """Return a field; the option has the field's name without its unit, or ``name``, and perhaps a ``short`` one."""
    return dataclasses.field(default=default, metadata={"help": help_text, "name": name, "short": short})


@dataclass(frozen=True, slots=True)
class ExperimentOptions:
    """The options of ``dets experiment``. Rates are wire rates in bit/s.

    TCP alone runs for ``warmup_s``, then UDP next to it for ``blast_s``, then TCP alone for ``cooldown_s``.
    """

    algorithm: str = _option("fp", "Rate allocation algorithm.")
    parameters: Mapping[str, object] = dataclasses.field(default_factory=dict, metadata={"name": "parameter"})
    senders: int = _option(10, "TCP senders, and as many UDP senders.")
    link_rate_bps: int = _option(50_000_000)
    victim_limit_bps: int = _option(20_000_000, "The TCP tenant's limit, wire rate.")
    aggressor_limit_bps: int = _option(25_000_000, "The UDP tenant's limit, wire rate.")
    udp_rate_bps: int = _option(16_000_000, "What each UDP sender offers.")
    blast_s: float = _option(20.0, "Seconds of UDP blast.", "duration")
    warmup_s: float = _option(10.0, "Seconds of TCP alone before it.")
    cooldown_s: float = _option(10.0, "Seconds of TCP alone after it.")
    congestion_control: str = _option("cubic", "cubic or reno; bbr on ovs, dctcp elsewhere.")
    topology: str = _option("dets-fig5", "A topology of topologies/builders.py or of a plugin.")
    fabric: str = _option("ovs", "ovs (root), wire (software switches) or model.")
    datapath: str = _option("user", "Open vSwitch datapath: user or kernel.")
    shaping: str = _option("meter", "Who shapes: meter, agent (no meters), both, mixed (agents at every second PN).")
    queues: str = _option("limit", "Receiving queues: limit, or none, as on a switch without configurable queues.")
    interval_ms: int = _option(55, "The controller's control interval.")
    slot_s: float = _option(0.001, "Wire and model: duration of a time slot, in seconds.")
    seed: int = _option(1, "Seed of random bursts; on the model of all randomness.")
    output: Path | None = _option(None, "Output folder; default results/NAME.")  # noqa: RUF009 - it makes a field
    baseline: bool = _option(True, "Also run without control, first.")
    static: bool = _option(False, "Also run under static equal limits.")
    quiet: bool = _option(False, "No progress.", short="-q")

    @property
    def has_queues(self) -> bool:
        """Whether the controller can set receiving queues."""
        return self.queues != "none"

    @property
    def control(self) -> str:
        """The algorithm with its parameters, as scenarios name it."""
        return " ".join([self.algorithm, *(f"{key}={value}" for key, value in self.parameters.items())])

    def value_of(self, key: str) -> object:
        """Return the value of the option ``key`` as on the command line."""
        field = next(field for field in dataclasses.fields(self) if option_name(field) == key)
        value = getattr(self, field.name)
        return format_rate(value) if field.name.endswith("_bps") else value

    def checked(self) -> ExperimentOptions:
        """Return these options if every one is acceptable; raise InvalidValueError naming the first that is not.

        Keys are the options' names.
        """
        self._check_words()
        self._check_rates()
        self._check_numbers()
        return self

    def _check_rates(self) -> None:
        """Raise InvalidValueError for rates that the fabric cannot have, or that do not fit the link."""
        # Imported here, so that the command line starts faster.
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
        """Raise InvalidValueError for numbers and durations out of bounds."""
        if not 1 <= self.senders <= MAX_SENDERS:
            raise InvalidValueError("senders", self.senders, f"is outside 1 to {MAX_SENDERS}")
        for name, duration_s in (
            ("warmup", self.warmup_s),
            ("duration", self.blast_s),
            ("cooldown", self.cooldown_s),
        ):
            if not MIN_WINDOW_S <= duration_s <= MAX_WINDOW_S:
                raise InvalidValueError(name, duration_s, f"is outside {MIN_WINDOW_S:g} to {MAX_WINDOW_S:g} seconds")
        check_interval_ms(self.interval_ms)
        if not MIN_SLOT_S <= self.slot_s <= MAX_SLOT_S:
            reason = f"is outside {MIN_SLOT_S:g} to {MAX_SLOT_S:g} seconds"
            raise InvalidValueError("slot", self.slot_s, reason)
        if not 0 <= self.seed < 2**32:
            raise InvalidValueError("seed", self.seed, "is outside 0 to 2^32 - 1")

    def _check_words(self) -> None:
        """Raise InvalidValueError for an unknown fabric, algorithm or congestion control."""
        from controller.policy.registry import make_policy

        choices = {
            "fabric": FABRICS,
            "congestion_control": CONGESTION_CONTROLS.get(self.fabric, ()),
            "topology": tuple(fabrics),
            "datapath": DATAPATHS,
            "queues": QUEUES,
            "shaping": SHAPINGS,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                if name == "topology" and (fault := plugins.fault_of(self.topology, plugins.TOPOLOGIES)):
                    raise InvalidValueError(name, self.topology, f"is not loaded: {fault}")
                raise InvalidValueError(name, getattr(self, name), f"is not one of {', '.join(known)}")
        make_policy(self.algorithm, self.parameters, interval_ms=self.interval_ms)


def option_name(field: dataclasses.Field[Any]) -> str:
    """Return the option's name of a field of ``ExperimentOptions``: the field without its unit, or a set name."""
    return field.metadata.get("name") or field.name.removesuffix("_bps").removesuffix("_s")
