"""Overrides: values that operators set at run time, which take precedence over the configuration file.

The effective value of a VN's limit or weight is the first of these that exists: the VN's override; the VN's own value
in the file; the VLAN's override; the VLAN's value in the file. Overrides outlive the file that they were made over.
``controller.limits.effective_settings`` resolves them over another file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.fabric.config_model import DIRECTIONS, Config, Vlan
from controller.fabric.vn_table import VnTable

VN_RATES = ("send_limit_bps", "receive_limit_bps", "send_ceiling_bps", "receive_ceiling_bps")
VN_FIELDS = (*VN_RATES, "weight")
VLAN_LIMITS = VN_RATES[:2]
VLAN_FIELDS = ("name", "algorithm", "parameters", "shadow", "shadow_parameters", "weight", *VLAN_LIMITS)
# In a ceiling's column: the VN has no ceiling, whatever the file has. NaN: no override.
NO_CEILING = 0.0
_VIDS = 4096


def vn_value(field: str, number: float) -> int | float | None:
    """Return a number of a column of VNs' values (``VN_FIELDS``) as an operator's value; None: no ceiling."""
    if number != number or number == NO_CEILING:  # NaN
        return None
    return number if field == "weight" else int(number)


class VnName(NamedTuple):
    """The key of a VN for operators and in the store."""

    vlan_vid: int
    switch: str
    port_no: int

    def __str__(self) -> str:
        return f"VLAN {self.vlan_vid} at {self.switch}:{self.port_no}"


@dataclass(frozen=True, slots=True)
class Override:
    """The override of a VLAN or VN, by field; rates in whole bits per second; a ceiling of None means no ceiling.

    ``revision`` is the last change, ``limits_revision`` the last change of a limit. An override without ``values`` was
    removed.
    """

    values: Mapping[str, Any]
    revision: int
    limits_revision: int = 0


class FileValues:
    """The values of the configuration file, as columns, over which overrides are resolved.

    ``own``, by direction, and ``own_weight`` are the masks (vns,) of the VNs for which the file sets a value that is
    not the VLAN's. ``port_of`` (vns,) is the index of each VN's port in ``ports`` and ``admissible_bps``.
    """

    def __init__(self, config: Config) -> None:
        vns = list(config.vns())
        self.config = config
        self.vns = VnTable.from_config(config)
        self.own = {
            direction: np.array([direction in vn.own_limits for vn in vns], dtype=np.bool_) for direction in DIRECTIONS
        }
        self.own_weight = np.array([vn.weight is not None for vn in vns], dtype=np.bool_)
        self.names = [VnName(vn.vlan_vid, vn.switch, vn.port_no) for vn in vns]
        self.row_of = {name: row for row, name in enumerate(self.names)}
        ports: dict[tuple[str, int], int] = {}
        self.port_of = np.array([ports.setdefault(name[1:], len(ports)) for name in self.names], dtype=np.int64)
        self.ports = [port for switch, port in config.ports() if (switch.name, port.port_no) in ports]
        self.admissible_bps = np.array([port.admissible_bps for port in self.ports], dtype=np.float64)

    def describe(self, name: VnName) -> str:
        """Return a VN in words, with its port as configured: ``VLAN 10 at s1:eth3``."""
        row = self.row_of.get(name)
        label = name.port_no if row is None else self.ports[self.port_of[row]].label
        return f"VLAN {name.vlan_vid} at {name.switch}:{label}"

    def port_sums_bps(self, limit_bps: FloatArray) -> FloatArray:
        """Return the sum of a column of limits at every port, shape (ports,); ``port_of`` has each VN's port."""
        sums = np.bincount(self.port_of, weights=limit_bps, minlength=len(self.ports))
        return sums.astype(np.float64)


@dataclass(frozen=True)
class Overrides:
    """All overrides: of VLANs by id, of VNs as columns of shape (vns,) in the order of ``file``.

    ``orphaned`` are the overrides of VNs that are not in the file, by name. ``revision`` (vns,) is the last change of a
    VN, 0 if none.
    """

    file: FileValues
    vlans: Mapping[int, Override] = field(default_factory=dict)
    orphaned: Mapping[VnName, Override] = field(default_factory=dict)
    columns: Mapping[str, FloatArray] = field(default_factory=dict)
    revision: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def build(cls, file: FileValues, vlans: Mapping[int, Override], vns: Mapping[VnName, Override]) -> Overrides:
        """Return these overrides over a file."""
        nothing = {name: np.full(len(file.vns), np.nan) for name in VN_FIELDS}
        empty = cls(file, {}, {}, nothing, np.zeros(len(file.vns), dtype=np.int64))
        return empty.with_vlans(vlans).with_vns(vns)

    def with_vlans(self, vlans: Mapping[int, Override]) -> Overrides:
        """Return the overrides with these VLANs replaced."""
        return replace(self, vlans={**self.vlans, **vlans}) if vlans else self

    def with_vns(self, vns: Mapping[VnName, Override]) -> Overrides:
        """Return the overrides with these VNs replaced."""
        if not vns:
            return self
        columns = {name: column.copy() for name, column in self.columns.items()}
        revision, strays = self.revision.copy(), dict(self.orphaned)
        for name, override in vns.items():
            row = self.file.row_of.get(name)
            if row is None:
                strays[name] = override
                continue
            revision[row] = override.revision
            for one, column in columns.items():
                value = override.values.get(one, np.nan)
                column[row] = NO_CEILING if value is None else value
        return replace(self, columns=columns, revision=revision, orphaned=strays)

    def vn_override(self, row: int) -> Override:
        """Return the override of the VN of a row."""
        return next(self.vn_overrides_of(np.array([row])))

    def vn_overrides_of(self, rows: IntArray) -> Iterator[Override]:
        """Yield the overrides of the VNs of these rows."""
        columns = zip(*(column[rows].tolist() for column in self.columns.values()), strict=True)
        names = tuple(self.columns)
        for values, revision in zip(columns, self.revision[rows].tolist(), strict=True):
            given = {name: value for name, value in zip(names, values, strict=True) if value == value}  # not NaN
            yield Override({name: vn_value(name, value) for name, value in given.items()}, revision)

    def vn_overrides(self) -> Iterator[tuple[VnName, Override]]:
        """Yield every VN that has an override; those in the file come first."""
        rows = np.flatnonzero(self.overridden)
        yield from zip(map(self.file.names.__getitem__, rows.tolist()), self.vn_overrides_of(rows), strict=True)
        yield from ((name, override) for name, override in self.orphaned.items() if override.values)

    def vn_override_names(self) -> list[VnName]:
        """Return the names of the VNs that have an override; those in the file come first."""
        mine = [self.file.names[row] for row in np.flatnonzero(self.overridden).tolist()]
        return [*mine, *(name for name, override in self.orphaned.items() if override.values)]

    def vlan_overrides(self) -> Iterator[tuple[int, Override]]:
        """Yield every VLAN that has an override."""
        yield from ((vid, override) for vid, override in self.vlans.items() if override.values)

    @property
    def overridden(self) -> BoolArray:
        """Return the mask of the file's VNs that have an override, shape (vns,)."""
        values: BoolArray = np.logical_or.reduce([~np.isnan(column) for column in self.columns.values()])
        return values

    def without_vns(self, off: BoolArray) -> Overrides:
        """Return the overrides without those of the VNs in the mask ``off``, shape (vns,)."""
        return replace(self, columns={name: np.where(off, np.nan, one) for name, one in self.columns.items()})

    def without_vlans(self, off: Mapping[int, object]) -> Overrides:
        """Return the overrides without those of the VLANs ``off``."""
        return replace(self, vlans={vid: one for vid, one in self.vlans.items() if vid not in off})

    def vns(self) -> VnTable:
        """Return the VNs with their effective values, whether or not they fit; ``uses_ceiling`` is not set."""
        table, columns = self.file.vns, {}
        for direction in DIRECTIONS:
            name = f"{direction}_limit_bps"
            default = self._of_vlans(name)
            inherited = np.where(self.file.own[direction] | np.isnan(default), getattr(table, name), default)
            columns[name] = np.where(np.isnan(self.columns[name]), inherited, self.columns[name])
            name = f"{direction}_ceiling_bps"
            values = self.columns[name]
            ceiling = np.where(np.isnan(values), getattr(table, name), values)
            columns[name] = np.where(values == NO_CEILING, np.nan, ceiling)
        default = self._of_vlans("weight")
        inherited = np.where(self.file.own_weight | np.isnan(default), table.weight, default)
        weight = np.where(np.isnan(self.columns["weight"]), inherited, self.columns["weight"])
        return table.with_columns(**columns, weight=weight)

    def effective_vlans(self) -> dict[int, Vlan]:
        """Return the VLANs of the file with their overrides applied, whether or not these are valid."""
        vlans = dict(self.file.config.vlans)
        for vid, override in self.vlan_overrides():
            if vid in vlans:
                vlans[vid] = replace(vlans[vid], **override.values)
        return vlans

    def _of_vlans(self, name: str) -> FloatArray:
        """Return the value in the override of each VN's VLAN, shape (vns,); NaN without one."""
        of_vid = np.full(_VIDS, np.nan)
        for vid in self.vlans.keys() & self.file.config.vlans.keys():
            value = self.vlans[vid].values.get(name)
            if value is not None:
                of_vid[vid] = value
        return of_vid[self.file.vns.vlan_vid]
