"""The manifest of a run: versions, machine and settings, written next to its results so that it can be repeated."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("eventlet", "greenlet", "networkx", "numpy", "os-ken", "pydantic", "pyyaml", "ryu", "structlog", "typer")
"""Those that the code of a run imports, but Mininet, which is not pinned."""
PROGRAMS = {"ovs-vsctl": "--version", "tc": "-V", "mn": "--version"}
SETTINGS = (
    "net/core/wmem_default",
    "net/core/wmem_max",
    "net/ipv4/tcp_allowed_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
)


def manifest(options: Any, **more: Any) -> dict[str, Any]:
    """Return versions, commit, machine and settings of a run: ``options``, a dataclass or a dict; ``more`` is added."""
    given = options if isinstance(options, dict) else dataclasses.asdict(options)
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "options": {key: _plain(value) for key, value in given.items()},
        "machine": {
            "kernel": platform.release(),
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            **{name: _setting(name) for name in SETTINGS},
        },
        "programs": {name: _first_line(name, flag) for name, flag in PROGRAMS.items()},
        "packages": {name: _version(name) for name in PACKAGES},
        **more,
    }


def _commit() -> dict[str, Any]:
    """Return the commit and whether files differ from it; None without a repository."""
    head = _run("git", "-C", str(ROOT), "rev-parse", "HEAD")
    if head is None:
        return {"id": None, "modified": None}
    return {"id": head, "modified": bool(_run("git", "-C", str(ROOT), "status", "--porcelain", "-uno"))}


def _setting(name: str) -> str | None:
    try:
        return (Path("/proc/sys") / name).read_text().strip()
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _first_line(*command: str) -> str | None:
    text = _run(*command)
    return text.splitlines()[0] if text else None


def _run(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout or done.stderr).strip() if done.returncode == 0 else None


def _plain(value: Any) -> Any:
    """Return a value for JSON: paths as text, and tables whose keys are tuples, as ``vn_limits``, with keys as text."""
    if isinstance(value, dict):
        return {key if isinstance(key, str | int) else str(key): _plain(inner) for key, inner in value.items()}
    return str(value) if isinstance(value, Path) else value
