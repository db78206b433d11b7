"""The REST interface, version 1 (docs/rest-api.md, docs/adr/0005-rest-in-the-process.md).

Start with application.py, then resources/read.py.
"""

from __future__ import annotations

from apps.rest.application import create_app
from apps.rest.http.access import RequestRateLimiter, rate_limited, with_status_counts
from apps.rest.http.server import RestServer, serve
from apps.rest.resources.service import Service

__all__ = ["RequestRateLimiter", "RestServer", "Service", "create_app", "rate_limited", "serve", "with_status_counts"]
