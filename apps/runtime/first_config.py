"""The configuration at the start of a process: the launcher reads it, and the application takes it from here."""

from __future__ import annotations

from controller.config.loader import load_config
from controller.fabric.config_model import Config

_preloaded: dict[str, Config] = {}


def preload(path: str) -> Config:
    """Return the configuration of a file, and keep it for ``pop``; raise ConfigError as ``load_config`` does."""
    _preloaded[path] = load_config(path)
    return _preloaded[path]


def pop(path: str) -> Config:
    """Return a file's configuration: the preloaded one, which is then dropped, or a new one. Raises ConfigError."""
    preloaded = _preloaded.pop(path, None)
    return load_config(path) if preloaded is None else preloaded
