"""ETag and If-Match: a change may name the revision that it is meant for (RFC 9110, section 13.1.1).

An ETag here represents the *settings* of a resource, not its live state; it is never used for caching.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from flask import Response, jsonify, request

from apps.rest.http.problems import HttpRefusedError
from apps.rest.resources.service import Json, service


def with_etag(view: Json, revision: int) -> Response:
    """Return the response with a resource's view and its ETag."""
    response = jsonify(view)
    response.set_etag(str(revision))
    return response


def require_revision(revision: Callable[[], int], *, always: bool = False) -> Callable[[], None]:
    """Return a check that rejects the request unless its If-Match names the revision.

    428 if it is required and missing.
    """

    def check() -> None:
        """Raise HttpRefusedError if If-Match is missing where required, or names another revision."""
        if "If-Match" not in request.headers:
            if always or service().needs_if_match:
                detail = f'say by If-Match which revision this is for: now it is "{revision()}"; * is for any'
                raise HttpRefusedError(HTTPStatus.PRECONDITION_REQUIRED, "if-match-needed", detail)
            return
        now = str(revision())
        if not request.if_match.contains(now):
            detail = f'it was changed since: its revision is "{now}" and not {request.headers["If-Match"][:100]}'
            raise HttpRefusedError(HTTPStatus.PRECONDITION_FAILED, "changed-since", detail)

    return check
