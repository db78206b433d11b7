"""A client of the controller's REST interface, for the command line."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from controller.errors import DetsError, InvalidValueError

TIMEOUT_S = 10.0


class RequestError(DetsError):
    """The controller could not be asked, or refused."""


def call(url: str, path: str, *, method: str = "GET", body: object = None) -> Any:
    """Return what the controller at ``url`` answers to a request for ``path``.

    Raises InvalidValueError when ``url`` is none; RequestError, with the controller's own words if it has any, when
    there is no controller or it refuses.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise InvalidValueError("url", url, "is not an address such as http://127.0.0.1:8080")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url.rstrip("/") + path, data, {"Content-Type": "application/json"} if data else {}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise RequestError(_detail(error)) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RequestError(f"no controller answers at {url}: {reason}") from error


def explanations(url: str, vlan_vid: int, sender: str, receiver: str | None) -> list[dict[str, Any]]:
    """Return why the entries from ``sender`` (to ``receiver``, both SWITCH:PORT, or to all) have their limits."""
    switch, port_no = _place("from", sender)
    if receiver is not None:
        to_switch, to_port_no = _place("to", receiver)
        path = f"/v1/entries/{vlan_vid}/{switch}/{port_no}/{to_switch}/{to_port_no}/explanation"
        return [call(url, path)]
    all_of_it = call(url, f"/v1/vns/{vlan_vid}/{switch}/{port_no}/explanations")["explanations"]
    return [one for one in all_of_it if (one["sender"]["switch"], str(one["sender"]["port_no"])) == (switch, port_no)]


def _place(key: str, text: str) -> tuple[str, str]:
    switch, colon, port_no = text.rpartition(":")
    if not (switch and colon and port_no.isdecimal()):
        raise InvalidValueError(key, text, "is not SWITCH:PORT, such as s1:3")
    return urllib.parse.quote(switch, safe=""), port_no


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        problem = json.load(error)
        return str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{error.url} answers {error.code} {error.reason}"
