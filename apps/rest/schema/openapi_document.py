"""Adapts the description of the interface to tools: wide integers, and OpenAPI 3.0 for tools that cannot read 3.1.

OpenAPI 3.0 uses an older JSON Schema: ``null`` is no type there but a property of one, an exclusive bound is a flag
beside the bound, and a constant is an enumeration of one value.
"""

from __future__ import annotations

from typing import Any

VERSION = "3.0.3"
_NULL = {"type": "null"}
_MAX_INT32 = 2**31 - 1


def mark_wide_integers(value: Any) -> None:
    """Add a format to integers that may exceed 2**31 - 1: many tools read an integer without one as int32."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        mark_wide_integers(inner)
    if isinstance(value, dict) and value.get("type") == "integer" and value.get("maximum", 2**63) > _MAX_INT32:
        value["format"] = "int64"


def in_openapi_3_0(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document of OpenAPI 3.1 as an equivalent one of 3.0."""
    return {**_converted(document), "openapi": VERSION}


def _converted(value: Any) -> Any:
    """Return a part of a document of OpenAPI 3.1, at any depth, as OpenAPI 3.0 writes it."""
    if isinstance(value, list):
        return [_converted(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: inner if key == "example" else _converted(inner) for key, inner in value.items()}
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if isinstance(result.get("exclusiveMinimum"), int | float):
        result |= {"minimum": result["exclusiveMinimum"], "exclusiveMinimum": True}
    if isinstance(result.get("enum"), list) and None in result["enum"]:
        result |= {"type": "string", "nullable": True}
    if _NULL in value.get("anyOf", ()):
        others = [choice for choice in result.pop("anyOf") if choice != _NULL]
        if len(others) > 1:
            return {**result, "nullable": True, "anyOf": others}
        # OpenAPI 3.0 ignores keys beside $ref.
        return {**result, "nullable": True, **({"allOf": others} if "$ref" in others[0] else others[0])}
    return result
