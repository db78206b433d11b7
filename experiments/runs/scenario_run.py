"""The results of one run of a scenario, on any fabric: columns by interval, and files of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.scenarios.scenario import Scenario
from experiments.scenarios.traffic import VnPair
from experiments.switch.datapath import Datapath

FloatArray = NDArray[np.float64]
_BY_INTERVAL = ("delivered_bits", "received_bits", "received_packets", "granted_bps")
_ARRAYS = ("time_s", *_BY_INTERVAL, "sent_packets", "lost_packets", "transfers")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings that a scenario leaves open: slot of virtual time, TCP's congestion control, Open vSwitch's datapath.

    ``shaping`` is one of scenario.SHAPINGS; "meter" leaves it to the scenario. ``interval_ms`` is the controller's:
    results are always measured in the paper's intervals.

    With ``kill_at_s`` there are three controllers in sharded mode, and the owner of the first receiver's switch is
    killed that many seconds after the start of the traffic; not on the model, which has no processes. It is not part of
    a run's digest.

    ``announce`` is called with the address of a controller that runs for the scenario; it does not take part in
    comparisons. Nor does ``make``, which changes each software switch before it connects, on the wire.
    """

    slot_s: float = 0.001
    congestion_control: str = "cubic"
    datapath: str = "user"
    shaping: str = "meter"
    interval_ms: int = 55
    kill_at_s: float | None = field(default=None, repr=False)
    announce: Callable[[str], None] | None = field(default=None, repr=False, compare=False)
    make: Callable[[Datapath], None] | None = field(default=None, repr=False, compare=False)


DEFAULT_SETTINGS = RunSettings()


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """The columns of one run; row i is the time from ``time_s[i]`` to ``time_s[i + 1]`` since the start of the traffic.

    Bits are those of tagged frames. ``granted_bps`` is a pair's limit at the end of the interval: inf before it was
    known, NaN without control. Lost packets include drops of meters and queues.
    """

    scenario: Scenario
    control: str
    fabric: str
    seed: int
    time_s: FloatArray
    """(intervals + 1,)"""
    delivered_bits: FloatArray
    """(intervals, sources)"""
    received_bits: FloatArray
    """(intervals, receivers): all that the VN's link delivered"""
    received_packets: FloatArray
    """(intervals, receivers)"""
    granted_bps: FloatArray
    """(intervals, pairs)"""
    sent_packets: FloatArray
    """(sources,)"""
    lost_packets: FloatArray
    """(sources,); of TCP, the retransmitted segments"""
    transfers: FloatArray
    """(transfers, 3): source, begun, ended (NaN: not), of files and of answers to web requests"""
    notes: dict[str, Any]
    seen: dict[str, Any] = field(default_factory=dict)
    """the reports of switches and controller at the end of the judged span; empty for a loaded run"""

    @property
    def receivers(self) -> list[tuple[int, int]]:
        """The receivers, as (VLAN, PN), in the order of the columns."""
        return receivers_of(self.scenario)

    @property
    def senders(self) -> list[tuple[int, int]]:
        """The senders, as (VLAN, PN), in the order of the pairs."""
        return list(dict.fromkeys((vid, sender) for vid, sender, _ in self.scenario.pairs))

    def columns(self) -> dict[str, FloatArray]:
        """Return columns by name, (intervals,) each, such as ``granted_bps:v1_2:v1_11``: from VN v1_2 to VN v1_11.

        A VN is ``vVLAN_PN``. ``time_s`` is the beginning of the interval. Rates are wire rates; ``delivered_bps`` is
        the rate of a pair at its receiver, of all of its sources together.
        """
        duration_s = np.diff(self.time_s)
        columns = {"time_s": self.time_s[:-1], "duration_s": duration_s}
        for column, name in enumerate(self.receiver_names):
            columns[f"received_bps:{name}"] = self.received_bits[:, column] / duration_s
            columns[f"received_packets:{name}"] = self.received_packets[:, column]
        for pair, name in zip(self.scenario.pairs, self.pair_names, strict=True):
            sources = [number for number, source in enumerate(self.scenario.sources) if source.pair == pair]
            columns[f"delivered_bps:{name}"] = self.delivered_bits[:, sources].sum(axis=1) / duration_s
        for column, name in enumerate(self.pair_names):
            columns[f"granted_bps:{name}"] = self.granted_bps[:, column]
        return columns

    @property
    def receiver_names(self) -> list[str]:
        """The receivers' names, in the order of the columns."""
        return [f"v{vid}_{pn}" for vid, pn in self.receivers]

    @property
    def pair_names(self) -> list[str]:
        """The pairs' names, in the order of the columns."""
        return [_pair_name(pair) for pair in self.scenario.pairs]

    def save(self, folder: Path) -> None:
        """Write ``run.npz``, ``series.csv`` (``columns``), ``notes.json`` and ``seen.json``.

        ``receivers``, ``pairs`` and ``sources`` in ``run.npz`` name the columns of its other arrays.
        """
        folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {"receivers": self.receiver_names, "pairs": self.pair_names}
        arrays["sources"] = [_pair_name(source.pair) for source in self.scenario.sources]
        np.savez_compressed(folder / "run.npz", **arrays)
        columns = self.columns()
        forms = ["%.6f" if name.endswith("_s") else "%.0f" for name in columns]
        table = np.stack([*columns.values()], axis=1)
        np.savetxt(folder / "series.csv", table, forms, ",", header=",".join(columns), comments="")
        for name in ("notes", "seen"):
            (folder / f"{name}.json").write_text(json.dumps(getattr(self, name), indent=1, default=str) + "\n")

    def between(self, first: int, last: int) -> ScenarioRun:
        """Return the run with only the rows ``first`` to ``last``, both included."""
        rows = {name: getattr(self, name)[first : last + 1] for name in _BY_INTERVAL}
        return replace(self, time_s=self.time_s[first : last + 2], **rows)


def _pair_name(pair: VnPair) -> str:
    """Return the name of a pair: ``vVLAN_SENDER:vVLAN_RECEIVER``."""
    vid, sender, receiver = pair
    return f"v{vid}_{sender}:v{vid}_{receiver}"


def receivers_of(scenario: Scenario) -> list[tuple[int, int]]:
    """Return the receivers of all sources as (VLAN, PN)."""
    return list(dict.fromkeys((source.vlan_vid, source.receiver) for source in scenario.sources))


def owner_changes(run: ScenarioRun) -> list[tuple[str, str, str]]:
    """Return the switches whose owner has changed since a controller's kill: name, owner before and after."""
    before, after = run.notes.get("owners") or {}, run.notes.get("owners_after") or {}
    return [(name, owner, after[name]) for name, owner in before.items() if after.get(name, owner) != owner]


def load_run(folder: Path, scenario: Scenario, control: str, fabric: str, seed: int) -> ScenarioRun:
    """Return the run that ``save`` wrote."""
    with np.load(folder / "run.npz") as arrays:
        columns = {name: arrays[name] for name in _ARRAYS}
    return ScenarioRun(
        scenario, control, fabric, seed, **columns, notes=json.loads((folder / "notes.json").read_text())
    )


def transfer_rows(rows: Sequence[tuple[int, float, float | None]]) -> FloatArray:
    """Return transfers as an array; None, for a transfer without an end, becomes NaN."""
    table = [(float(source), began_s, np.nan if ended_s is None else ended_s) for source, began_s, ended_s in rows]
    return np.array(table, dtype=np.float64).reshape(len(table), 3)
