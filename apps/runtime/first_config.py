"""The configuration at the start of a process: the launcher reads it, and the application takes it from here."""

from __future__ import annotations

from controller.config.loader import load_config
from controller.fabric.config_model import Config

_known: dict[str, Config] = {}


def preload(path: str) -> Config:
    """Return the configuration of a file, and keep it for ``pop``; raise ConfigError as ``load_config`` does."""
    _known[path] = load_config(path)
    return _known[path]


def pop(path: str) -> Config:
    """Return the kept configuration of a file, and drop it; read the file if there is none. Raises ConfigError."""
    kept = _known.pop(path, None)
    return load_config(path) if kept is None else kept
