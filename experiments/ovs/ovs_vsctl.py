"""ovs-vsctl as functions: errors are raised, rows are dicts."""

from __future__ import annotations

import json
import subprocess
from typing import Any

TIMEOUT_S = 15


class OvsError(RuntimeError):
    """Open vSwitch is missing, does not answer, or rejected a command; the text names the problem and the remedy."""


def vsctl(*arguments: str) -> str:
    """Run one ovs-vsctl transaction and return its output; raise OvsError if it fails or times out."""
    return _run("ovs-vsctl", f"--timeout={TIMEOUT_S}", *arguments)


def ofctl(command: str, bridge: str, *arguments: str) -> str:
    """Run ovs-ofctl with OpenFlow 1.3 on a bridge; raise OvsError if it fails."""
    return _run("ovs-ofctl", "-O", "OpenFlow13", f"--timeout={TIMEOUT_S}", command, bridge, *arguments)


def find_rows(table: str, columns: str, *conditions: str) -> list[dict[str, Any]]:
    """Return the rows of a table that meet ovs-vsctl ``find`` conditions, OVSDB sets and maps as lists and dicts."""
    text = vsctl("--format=json", f"--columns={columns}", "find", table, *conditions)
    parsed = json.loads(text)
    return [dict(zip(parsed["headings"], map(_plain, row), strict=True)) for row in parsed["data"]]


def _plain(value: Any) -> Any:
    """Return an OVSDB JSON value (RFC 7047, section 5.1) as plain Python."""
    if isinstance(value, list) and len(value) == 2:
        kind, content = value
        if kind == "uuid":
            return content
        if kind == "set":
            return [_plain(item) for item in content]
        if kind == "map":
            return {_plain(key): _plain(item) for key, item in content}
    return value


def _run(*command: str) -> str:
    """Run a command and return its output; OvsError if it is not installed or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S + 5, check=False)
    except FileNotFoundError as error:
        raise OvsError(f"{command[0]} is not installed: apt-get install openvswitch-switch") from error
    if done.returncode != 0:
        raise OvsError(f"{' '.join(command)}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout
