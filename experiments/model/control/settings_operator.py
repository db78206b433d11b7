"""An operator of a controller without a store: the changes of REST, with the same checks, and nothing is stored."""

from __future__ import annotations

from typing import Any

from controller.central.controller import CentralController
from controller.errors import InvalidValueError
from controller.limits.change_validation import check_vn, complete_vlan
from controller.limits.effective_settings import resolve, resolve_change
from controller.limits.overrides import FileValues, Override, Overrides


class Operator:
    """Changes limits, ceilings, algorithms and shadows of a running controller, from the next interval on.

    Nothing else may change them at the same time. A rejected change raises InvalidValueError and changes nothing.
    """

    def __init__(self, central: CentralController) -> None:
        self._central = central
        self._file = FileValues(central.config)
        self._overrides = Overrides.build(self._file, {}, {})
        self._values = resolve(self._overrides, central.fabric.admitted.core_overload)
        self._revision = 0

    def set_vn(self, row: int, now_s: float, **given: float | None) -> None:
        """Set values (``VN_FIELDS``) of the VN in a row of the VN table; a ceiling of None removes it."""
        vns, vlans = self._central.vns, self._central.config.vlans
        check_vn(vns, vlans[vns.key(row).vlan_vid], row, given)
        name, before = self._file.names[row], self._overrides.vn_override(row)
        self._change(self._overrides.with_vns({name: self._override(before, given)}), now_s, vns=[name])

    def set_vlan(self, vlan_vid: int, now_s: float, **given: Any) -> None:
        """Set values (``VLAN_FIELDS``) of a VLAN."""
        if vlan_vid not in self._central.config.vlans:
            raise InvalidValueError("vlan_vid", vlan_vid, "is not a VLAN of the configuration")
        values = complete_vlan(self._central.config.vlans[vlan_vid], given, self._central.config.interval_ms)
        before = self._overrides.vlans.get(vlan_vid, Override({}, 0))
        self._change(self._overrides.with_vlans({vlan_vid: self._override(before, values)}), now_s, vlans=[vlan_vid])

    def _override(self, before: Override, given: dict[str, Any]) -> Override:
        self._revision += 1
        return Override({**before.values, **given}, self._revision, self._revision)

    def _change(self, overrides: Overrides, now_s: float, *, vlans: Any = (), vns: Any = ()) -> None:
        values = resolve_change(overrides, self._values, vlans, vns, self._central.fabric.admitted)
        self._overrides, self._values = overrides, values
        self._central.put_in_force(values, now_s)
