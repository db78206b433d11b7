"""Values of thousands of VNs in one body, read a few hundred at a time, so that other work waits only briefly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pydantic import ValidationError

from apps.rest.http import problems
from apps.rest.schema.request_bodies import MAX_LIMITS, VlanPatch
from controller.config.value_types import MAX_PORT_NO, MAX_VLAN_VID, MIN_VLAN_VID
from controller.errors import InvalidValueError
from controller.fabric.value_checks import check_vn_value, is_name
from controller.limits.overrides import VN_FIELDS, VnName

_PLACE = ("vlan_vid", "switch", "port_no")
_KEYS = (*_PLACE, *VN_FIELDS)
_BATCH_SIZE = 250
_MAX_ERRORS = 20

Values = dict[str, float | None]
VnValues = dict[VnName, Values]


class IdLookup(Protocol):
    """The ids of VLANs and edge ports by their names; InvalidValueError with that key for an unknown name."""

    def vlan_vid(self, key: str, name: str) -> int:
        """Return the id of a VLAN."""

    def port_no(self, key: str, switch: str, name: str) -> int:
        """Return the number of an edge port."""


def read_vns(
    key: str,
    items: object,
    ids: IdLookup,
    check: Callable[[str, VnName, Values], None],
    yield_control: Callable[[], None],
) -> VnValues:
    """Return the values in a list of VNs; VLANs and ports are given by id or name.

    ``check`` gets field, VN and values of each, and raises InvalidValueError for invalid ones. Raises HttpRefusedError
    (422) with all problems, at most twenty.
    """
    values: VnValues = {}
    errors: list[InvalidValueError] = []
    for index, item in enumerate(_list(key, items, MAX_LIMITS)):
        try:
            name, given = _vn(f"{key}.{index}", item, ids)
            check(f"{key}.{index}", name, given)
            if name in values:
                raise InvalidValueError(f"{key}.{index}", str(name), "stands there twice")
            values[name] = given
        except InvalidValueError as error:
            errors.append(error)
            if len(errors) == _MAX_ERRORS:
                break
        if index % _BATCH_SIZE == _BATCH_SIZE - 1:
            yield_control()
    if errors:
        raise problems.invalid(*errors)
    return values


def read_vlans(
    key: str, items: object, ids: IdLookup, complete: Callable[[int, dict[str, Any]], dict[str, Any]]
) -> dict[int, dict[str, Any]]:
    """Return the contents of a list of ``{vlan_vid, values}``. Raises HttpRefusedError (422).

    ``complete`` returns the values of a VLAN with their consequences; it raises InvalidValueError.
    """
    found: dict[int, dict[str, Any]] = {}
    for index, item in enumerate(_list(key, items, MAX_VLAN_VID)):
        item_key = f"{key}.{index}"
        try:
            if not isinstance(item, dict) or item.keys() != {"vlan_vid", "values"}:
                raise InvalidValueError(item_key, item, "must be an object with vlan_vid and values")
            vid = _vlan_vid(item_key, item, ids)
            if vid in found:
                raise InvalidValueError(f"{item_key}.vlan_vid", vid, "stands there twice")
            found[vid] = complete(vid, VlanPatch.model_validate(item["values"]).given())
        except ValidationError as error:
            raise problems.problem_from_validation(error, {"VlanPatch": tuple(VlanPatch.model_fields)}) from error
        except InvalidValueError as error:
            raise problems.invalid(error) from error
    return found


def _vn(key: str, item: object, ids: IdLookup) -> tuple[VnName, Values]:
    """Return the VN of an item, and its new values; InvalidValueError names ``key`` and the field."""
    if not isinstance(item, dict):
        raise InvalidValueError(key, item, f"must be an object with {', '.join(_PLACE)} and values")
    unknown = item.keys() - set(_KEYS)
    if unknown:
        name = sorted(unknown)[0]
        raise problems.unknown_key(f"{key}.{name}", item[name], _KEYS)
    missing = [name for name in _PLACE if name not in item]
    if missing or len(item) == len(_PLACE):
        reason = f"lacks {', '.join(missing)}" if missing else f"changes nothing: give {' or '.join(VN_FIELDS)}"
        raise InvalidValueError(key, item, reason)
    vid, switch, port = _vlan_vid(key, item, ids), item["switch"], item["port_no"]
    if not isinstance(switch, str) or not is_name(switch):
        raise InvalidValueError(f"{key}.switch", switch, "must be the name of a switch")
    port_key = f"{key}.port_no"
    port_no = ids.port_no(port_key, switch, port) if _is_name(port) else _whole(port_key, port, 1, MAX_PORT_NO)
    given = {field: check_vn_value(field, item[field], key=f"{key}.{field}") for field in VN_FIELDS if field in item}
    return VnName(vid, switch, port_no), given


def _list(key: str, items: object, max_items: int) -> list[Any]:
    """Return ``items`` if they are a list of at most ``max_items``. Raises HttpRefusedError (422)."""
    if not isinstance(items, list):
        raise problems.invalid(InvalidValueError(key, items, "must be a list"))
    if len(items) > max_items:
        raise problems.invalid(InvalidValueError(key, len(items), f"is longer than {max_items}, the most at once"))
    return items


def _vlan_vid(key: str, item: dict[str, Any], ids: IdLookup) -> int:
    """Return the VLAN id of an item, which gives the id or the name. Raises InvalidValueError."""
    key, value = f"{key}.vlan_vid", item["vlan_vid"]
    return ids.vlan_vid(key, value) if _is_name(value) else _whole(key, value, MIN_VLAN_VID, MAX_VLAN_VID)


def _is_name(value: object) -> bool:
    """Return whether a value may be a name. Digits never are: they would be read as an id, and an id is a number."""
    return isinstance(value, str) and not value.isdecimal()


def _whole(key: str, value: object, minimum: int, maximum: int) -> int:
    """Return a whole number within bounds; raise InvalidValueError, naming ``key``, for any other value."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise InvalidValueError(key, value, f"must be a whole number, {minimum} to {maximum}, or a name")
    return value
