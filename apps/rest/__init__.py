"""The REST interface, version 1 (docs/rest-api.md, docs/adr/0005-rest.md).

Start with application.py, then resources/read.py.
"""

from __future__ import annotations

from apps.rest.application import create_app
from apps.rest.http.access import Pace, counted, paced
from apps.rest.http.server import RestServer, serve
from apps.rest.resources.service import Service

__all__ = ["Pace", "RestServer", "Service", "counted", "create_app", "paced", "serve"]
