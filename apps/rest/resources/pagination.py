"""Lists by pages: a cursor names the last item of the previous page, so that pages do not shift."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, TypeVar

from apps.rest.http.problems import invalid
from controller.errors import InvalidValueError

Item = TypeVar("Item")


def make_cursor(*key: str | int) -> str:
    """Return the cursor after the item with this key."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def read_cursor(cursor: str, *types: type) -> tuple[Any, ...] | None:
    """Return the key in a cursor, None if it is empty; raise HttpRefusedError (422) unless it has these types."""
    if not cursor:
        return None
    try:
        key = json.loads(base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        key = None
    if isinstance(key, list) and [type(part) for part in key] == list(types):
        return tuple(key)
    raise stale(cursor)


def page_by_position(items: Sequence[Item], cursor: str, limit: int) -> tuple[Sequence[Item], str | None]:
    """Return a page of items, whose cursors are positions, and the cursor of the next page."""
    (first,) = read_cursor(cursor, int) or (0,)
    end = first + limit
    return items[first:end], make_cursor(end) if len(items) > end else None


def stale(cursor: str) -> Exception:
    """Return the error for an outdated cursor."""
    return invalid(
        InvalidValueError("cursor", cursor, "is not the cursor of a page here, or no longer: list again without it")
    )
