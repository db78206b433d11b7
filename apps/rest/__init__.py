"""The REST interface, version 1: VLANs, virtual nodes and their limits, entries and events (docs/adr/0005-rest.md)."""

from __future__ import annotations

from apps.rest.application import create_app
from apps.rest.server import RestServer, serve

__all__ = ["RestServer", "create_app", "serve"]
