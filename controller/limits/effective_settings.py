"""The effective settings: overrides resolved over the configuration file, and the overrides that do not fit it.

If overrides do not fit together, the newest ones that raise a limit become inactive first: the oldest guarantee is kept
longest. An override that lowers a limit is inactive only where the VLAN's ``flood_limit`` needs a higher receive limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.errors import InvalidValueError
from controller.fabric.config_model import DIRECTIONS, Vlan
from controller.fabric.value_checks import check_vlan_values
from controller.fabric.vn_table import VnTable
from controller.limits.admission import AdmittedLimits
from controller.limits.change_validation import check_sharding, unused_reason
from controller.limits.flood_limits import min_receive_limits
from controller.limits.hose_model import STEP_BPS, Overload, port_overload
from controller.limits.overrides import NO_CEILING, VN_RATES, Override, Overrides, VnName
from controller.policy.registry import make_policy
from controller.units import MAX_RATE_BPS, MAX_WEIGHT, MIN_RATE_BPS, MIN_WEIGHT, format_rate

CoreCheck = Callable[[VnTable], Overload | None]


@dataclass(frozen=True)
class EffectiveSettings:
    """The effective values, and the reason for each inactive override; ``vns.uses_ceiling`` is not set.

    Ceilings and weights that the VLAN's policy does not use are kept for a policy that does: ``unused_vns`` are the VNs
    whose overrides consist of such values only, and so are not effective either; ``partly_idle_vns`` also have values
    that are used.
    """

    vns: VnTable
    vlans: Mapping[int, Vlan]
    inactive_vns: Mapping[VnName, str]
    inactive_vlans: Mapping[int, str]
    unused_vns: Mapping[VnName, str]
    partly_idle_vns: Mapping[VnName, str]

    @classmethod
    def build(
        cls, active: Overrides, inactive_vns: Mapping[VnName, str], inactive_vlans: Mapping[int, str]
    ) -> EffectiveSettings:
        """Return the effective values under overrides that all fit; the reasons belong to the other overrides.

        An override with a ceiling or weight that the VLAN's policy ignores is partly idle if another of its values is
        used, and otherwise unused.
        """
        vlans, limited = active.effective_vlans(), _overridden(active, "limit")
        with_ceiling, with_weight = _overridden(active, "ceiling"), ~np.isnan(active.columns["weight"])
        unused, partly_idle = dict[VnName, str](), dict[VnName, str]()
        for row in np.flatnonzero(with_ceiling | with_weight).tolist():
            name = active.file.names[row]
            vlan = vlans[name.vlan_vid]
            ceiling = unused_reason("ceilings", vlan.algorithm, vlan.shadow) if with_ceiling[row] else None
            weight = unused_reason("weights", vlan.algorithm, vlan.shadow) if with_weight[row] else None
            reasons = [
                f"its {what} no effect: {why}"
                for what, why in (("ceilings have", ceiling), ("weight has", weight))
                if why
            ]
            if reasons:
                # "" is the reason of a value that is used, None that of a value without an override.
                (partly_idle if limited[row] or "" in (ceiling, weight) else unused)[name] = "; ".join(reasons)
        return cls(active.vns(), vlans, inactive_vns, inactive_vlans, unused, partly_idle)

    def override_status(self, name: VnName) -> tuple[bool, str | None]:
        """Return whether the override of a VN is effective, and why it or a part of it is not."""
        reason = self.inactive_vns.get(name) or self.unused_vns.get(name)
        return reason is None, reason or self.partly_idle_vns.get(name)

    @property
    def ineffective(self) -> set[int | VnName]:
        """The VLANs and VNs whose overrides are not effective."""
        return {*self.inactive_vlans, *self.inactive_vns, *self.unused_vns}


def _overridden(overrides: Overrides, what: str) -> BoolArray:
    """Return the mask of the VNs with an override of a limit, or of a ceiling, shape (vns,)."""
    columns = [overrides.columns[f"{direction}_{what}_bps"] for direction in DIRECTIONS]
    values: BoolArray = np.logical_or.reduce([~np.isnan(one) & (one != NO_CEILING) for one in columns])
    return values


def resolve(overrides: Overrides, core_overload: CoreCheck) -> EffectiveSettings:
    """Return the effective settings under these overrides; ``core_overload`` returns an overloaded core link, if any.

    1) Overrides without a target in the file, or with values that the file does not allow, are inactive. If two VLANs
       have one name, the newest override that sets the name is inactive.
    2) Overrides under which floods exceed a receive limit are inactive.
    3) At each overcommitted port, the newest override that raises a limit becomes inactive, until all ports fit.
    4) While a core link is overloaded, the newest raising override of all becomes inactive. Then 2 to 4 repeat, until
       all fit.
    """
    file = overrides.file
    inactive_vns = {name: "the configuration has no such VN" for name, one in overrides.orphaned.items() if one.values}
    # 1
    inactive_vlans = {
        vid: reason for vid, one in overrides.vlan_overrides() if (reason := _bad_vlan(overrides, vid, one))
    }
    bad_vns = _bad_vns(overrides)
    inactive_vns |= {file.names[row]: reason for row, reason in bad_vns.items()}
    off_mask = np.zeros(len(file.vns), dtype=np.bool_)
    off_mask[list(bad_vns)] = True
    while True:
        active = overrides.without_vlans(inactive_vlans).without_vns(off_mask)
        name_revisions = {vid: one.revision for vid, one in active.vlans.items() if "name" in one.values}
        if clash := _name_clash(active.effective_vlans(), name_revisions):
            inactive_vlans |= {
                vid: f"name: {overrides.vlans[vid].values['name']!r} {why}" for vid, why in clash.items()
            }
            continue
        vns = active.vns()
        # 2, 3
        newly_inactive = _below_floods(active, vns) or _newest_at_overloaded_ports(active, vns)
        # 4
        if not newly_inactive and (overload := core_overload(vns)) is not None:
            newly_inactive = dict.fromkeys(_newest_on_links(active, vns, core_overload), str(overload))
        if not newly_inactive:
            break
        for (row, direction), reason in newly_inactive.items():
            _deactivate(active, row, direction, reason, off_mask, inactive_vns, inactive_vlans)
    return EffectiveSettings.build(active, inactive_vns, inactive_vlans)


def resolve_change(
    overrides: Overrides,
    present: EffectiveSettings,
    vlans: Collection[int],
    vns: Collection[VnName],
    admitted: AdmittedLimits,
) -> EffectiveSettings:
    """Return the effective settings under ``overrides``, which change these VLANs and VNs compared with ``present``.

    Inactive overrides that do not change stay inactive. Raises UnfitError when ports or links cannot carry the change,
    InvalidValueError when it gives a VLAN the name of another one.
    """
    inactive_vns = {name: reason for name, reason in present.inactive_vns.items() if name not in vns}
    inactive_vlans = {vid: reason for vid, reason in present.inactive_vlans.items() if vid not in vlans}
    row_of = overrides.file.row_of
    off = np.zeros(len(overrides.file.vns), dtype=np.bool_)
    off[[row_of[name] for name in inactive_vns if name in row_of]] = True
    active = overrides.without_vlans(inactive_vlans).without_vns(off)
    values = EffectiveSettings.build(active, inactive_vns, inactive_vlans)
    if vlans:
        # Revisions do not matter: any of the changed VLANs may be named in the error.
        for vid, reason in _name_clash(values.vlans, dict.fromkeys(vlans, 0)).items():
            raise InvalidValueError("name", values.vlans[vid].name, reason)
    check_fit(overrides, present.vns, values.vns, admitted)
    return values


class UnfitError(InvalidValueError):
    """A limit of the VN ``row`` does not fit the fabric."""

    def __init__(self, row: int, key: str, value: int, reason: str) -> None:
        self.row = row
        super().__init__(key, value, reason)


def check_fit(overrides: Overrides, before: VnTable, after: VnTable, admitted: AdmittedLimits) -> None:
    """Raise UnfitError unless ports and links carry the limits of ``after`` that differ from ``before``.

    Only capacities with a raised limit are checked. A receive limit may not be lowered below what floods need either.
    """
    file, raised_rows = overrides.file, np.zeros(len(after), dtype=np.bool_)
    needed_bps = min_receive_limits(after, file.config.vlans)
    lowered = after.receive_limit_bps < np.minimum(before.receive_limit_bps, needed_bps)
    for row in np.flatnonzero(lowered)[:1].tolist():  # the first one is enough for the error, as below
        reason = f"does not fit: {_flood_reason(overrides, needed_bps, row)}"
        raise UnfitError(row, "receive_limit_bps", int(after.receive_limit_bps[row]), reason)
    for direction in DIRECTIONS:
        limit_bps = getattr(after, f"{direction}_limit_bps")
        raised = limit_bps > getattr(before, f"{direction}_limit_bps")
        raised_rows |= raised
        over = file.port_sums_bps(limit_bps) > file.admissible_bps
        for row in np.flatnonzero(raised & over[file.port_of])[:1].tolist():
            overload = _port_overload(overrides, after, row, direction)
            free_bps = int(overload.capacity_bps - overload.load_bps + limit_bps[row]) // STEP_BPS * STEP_BPS
            fits = f"at most {free_bps} ({format_rate(free_bps)}) fits" if free_bps > 0 else "nothing fits"
            reason = f"does not fit: {overload}; {fits}"
            raise UnfitError(row, f"{direction}_limit_bps", int(limit_bps[row]), reason)
    rows = np.flatnonzero(raised_rows)
    beyond = admitted.core_overload(after) if len(rows) else None
    if beyond is None:
        return
    row = int(rows[0])
    sending = bool(after.send_limit_bps[row] > before.send_limit_bps[row])
    if len(rows) == 1:
        both = sending and after.receive_limit_bps[row] > before.receive_limit_bps[row]
        try:
            admitted.check(after, row, sending=None if both else sending)  # the error names the largest limit that fits
        except InvalidValueError as error:
            raise UnfitError(row, error.key, int(getattr(after, error.key)[row]), error.reason) from error
    key = f"{'send' if sending else 'receive'}_limit_bps"
    raise UnfitError(row, key, int(getattr(after, key)[row]), f"does not fit: {beyond}, with the others that change")


def _name_clash(vlans: Mapping[int, Vlan], revisions: Mapping[int, int]) -> dict[int, str]:
    """Return the newest of the VLANs in ``revisions`` that has the name of another one, and the problem."""
    named: dict[str, list[int]] = {}
    for vid, vlan in vlans.items():
        named.setdefault(vlan.name, []).append(vid)
    shared = {vid: vids for vids in named.values() if len(vids) > 1 for vid in vids if vid in revisions}
    if not shared:
        return {}
    newest = max(shared, key=lambda vid: (revisions[vid], vid))
    other = next(vid for vid in shared[newest] if vid != newest)
    return {newest: f"is already the name of VLAN {other}"}


def _bad_vlan(overrides: Overrides, vid: int, override: Override) -> str:
    """Return the problem of a VLAN's override, "" if there is none."""
    vlan, interval_ms = overrides.file.config.vlans.get(vid), overrides.file.config.interval_ms
    if vlan is None:
        return "the configuration has no such VLAN"
    try:
        check_vlan_values(override.values)
        check_sharding(overrides.file.config, override.values)
        vlan = replace(vlan, **override.values)
        for key, parameters_key in (("algorithm", "parameters"), ("shadow", "shadow_parameters")):
            name, parameters = getattr(vlan, key), getattr(vlan, parameters_key)
            if name is not None:
                make_policy(name, parameters, key=key, parameters_key=parameters_key, interval_ms=interval_ms)
    except InvalidValueError as error:
        return str(error)
    return ""


def _bad_vns(overrides: Overrides) -> dict[int, str]:
    """Return the problems of VNs' overrides, by row: values out of bounds, or above the port's capacity."""
    found: dict[int, str] = {}
    capacity_bps, weight = overrides.file.vns.capacity_bps, overrides.columns["weight"]
    for row in np.flatnonzero((weight < MIN_WEIGHT) | (weight > MAX_WEIGHT)).tolist():
        found[row] = f"its weight of {weight[row]:g} is outside {MIN_WEIGHT:f} to {MAX_WEIGHT:.0f}"
    for name in VN_RATES:
        column, what = overrides.columns[name], name.removesuffix("_bps").replace("_", " ")
        ceiling = name.endswith("_ceiling_bps")
        outside = (column < MIN_RATE_BPS) | (column > MAX_RATE_BPS)
        if ceiling:
            outside &= column != NO_CEILING
        for row in np.flatnonzero(outside).tolist():
            bounds = f"{format_rate(MIN_RATE_BPS)} to {format_rate(MAX_RATE_BPS)}"
            found[row] = f"its {what} of {column[row]:.0f} bit/s is outside {bounds}"
        for row in np.flatnonzero(~outside & (column > capacity_bps)).tolist() if ceiling else ():
            found[row] = f"its {what} is above the port's capacity of {format_rate(float(capacity_bps[row]))}"
    return found


def _raised(overrides: Overrides, vns: VnTable, direction: str) -> BoolArray:
    name = f"{direction}_limit_bps"
    raised: BoolArray = getattr(vns, name) > getattr(overrides.file.vns, name)
    return raised


def _raising(overrides: Overrides, vns: VnTable) -> list[tuple[int, str]]:
    """Return the rows with limits above the file's, and the direction, the newest first."""
    found = [
        (int(revisions[row]), row, direction)
        for direction in DIRECTIONS
        for revisions in (_revisions(overrides, vns, direction),)
        for row in np.flatnonzero(_raised(overrides, vns, direction)).tolist()
    ]
    return [(row, direction) for _, row, direction in sorted(found, key=lambda one: -one[0])]


def _own(overrides: Overrides, direction: str) -> BoolArray:
    """Return the mask of the VNs with an override of their limit in one direction, shape (vns,)."""
    own: BoolArray = ~np.isnan(overrides.columns[f"{direction}_limit_bps"])
    return own


def _revisions(overrides: Overrides, vns: VnTable, direction: str) -> IntArray:
    """Return the revision of each VN's limit in one direction: of its override, otherwise of its VLAN's.

    Shape (vns,).
    """
    of_vid = np.zeros(4096, dtype=np.int64)
    for vid in overrides.vlans.keys() & overrides.file.config.vlans.keys():
        of_vid[vid] = overrides.vlans[vid].limits_revision
    return np.where(_own(overrides, direction), overrides.revision, of_vid[vns.vlan_vid])


def _newest_at_overloaded_ports(overrides: Overrides, vns: VnTable) -> dict[tuple[int, str], str]:
    """Return, for each overcommitted port, the row and the direction of the newest raised limit, and the problem."""
    file = overrides.file
    found: dict[tuple[int, str], str] = {}
    for direction in DIRECTIONS:
        revisions = _revisions(overrides, vns, direction)
        over = file.port_sums_bps(getattr(vns, f"{direction}_limit_bps")) > file.admissible_bps
        rows = np.flatnonzero(over[file.port_of] & _raised(overrides, vns, direction))
        rows = rows[np.lexsort((-revisions[rows], file.port_of[rows]))]  # by port, the newest first
        _, first = np.unique(file.port_of[rows], return_index=True)
        for row in rows[first].tolist():
            found[row, direction] = str(_port_overload(overrides, vns, row, direction))
    return found


def _newest_on_links(overrides: Overrides, vns: VnTable, core_overload: CoreCheck) -> list[tuple[int, str]]:
    """Return the newest raised limits (rows and directions) to deactivate until the core links carry the rest."""
    raising = _raising(overrides, vns)
    # Binary search: to deactivate the first ``enough`` limits suffices, to deactivate the first ``fewest`` does not.
    fewest, enough = 0, len(raising)
    while enough - fewest > 1:
        middle = (fewest + enough) // 2
        off, inactive_vlans = np.zeros(len(vns), dtype=np.bool_), dict[int, str]()
        for row, direction in raising[:middle]:
            _deactivate(overrides, row, direction, "", off, {}, inactive_vlans)
        fits = core_overload(overrides.without_vlans(inactive_vlans).without_vns(off).vns()) is None
        fewest, enough = (fewest, middle) if fits else (middle, enough)
    return raising[:enough]


def _below_floods(overrides: Overrides, vns: VnTable) -> dict[tuple[int, str], str]:
    """Return the rows with receive limits below what their VLANs' flood limits need, and the problems."""
    file = overrides.file
    needed_bps = min_receive_limits(vns, file.config.vlans)
    below = (vns.receive_limit_bps < needed_bps) & (vns.receive_limit_bps < file.vns.receive_limit_bps)
    return {(row, "receive"): _flood_reason(overrides, needed_bps, row) for row in np.flatnonzero(below).tolist()}


def _flood_reason(overrides: Overrides, needed_bps: FloatArray, row: int) -> str:
    """Return why a receive limit is too low for the floods of its VLAN, and the least that fits.

    ``needed_bps`` (vns,) are the receive limits that fit, ``row`` is the VN. The number of VNs is named only if all of
    them have the VLAN's flood limit.
    """
    file, least_bps = overrides.file, int(needed_bps[row])
    flood_bps = file.config.vlans[file.names[row].vlan_vid].flood_limit_bps
    if flood_bps is None or file.vns.own_flood_limit_bps is not None:
        floods = "the other VNs of its VLAN may flood it"
    else:
        floods = f"{round(least_bps / flood_bps)} VNs may flood {format_rate(flood_bps)} each to it"
    return f"{floods}; at least {least_bps} ({format_rate(least_bps)}) fits"


def _port_overload(overrides: Overrides, vns: VnTable, row: int, direction: str) -> Overload:
    """Return by how much the VNs' limits at the port of ``row`` exceed it."""
    file = overrides.file
    number, name = file.port_of[row], file.names[row]
    port = file.ports[number]
    limits = map(int, getattr(vns, f"{direction}_limit_bps")[file.port_of == number])
    place = f"{name.switch}:{port.label}"
    overload = port_overload(place, direction, limits, port.admissible_bps, port.frame_overhead_bytes)
    assert overload is not None
    return overload


def _deactivate(
    overrides: Overrides,
    row: int,
    direction: str,
    reason: str,
    off: BoolArray,
    inactive_vns: dict[VnName, str],
    inactive_vlans: dict[int, str],
) -> None:
    """Deactivate the override that raises a VN's limit: its own or, without one, its VLAN's."""
    name = overrides.file.names[row]
    if _own(overrides, direction)[row]:
        off[row] = True
        inactive_vns[name] = reason
    else:
        inactive_vlans[name.vlan_vid] = reason
