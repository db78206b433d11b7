"""The error of the store, apart from SQLite: REST uses it, and needs no database."""

from __future__ import annotations

from controller.errors import DetsError


class StoreError(DetsError):
    """The store cannot be opened, read or written; nothing was changed."""
