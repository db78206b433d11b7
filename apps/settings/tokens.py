"""Bearer tokens of the REST interface: created and revoked on the controller's machine, stored as hashes.

Tokens need no lock of the store: ``dets token`` works while a controller runs.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime

from apps.settings.store_file import connect, translating_errors
from controller.errors import InvalidValueError

SCOPES = ("read", "write")
_PREFIX = "dets_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}")


@dataclass(frozen=True, slots=True)
class Token:
    """The record of a token, without the token itself. ``created_at`` is RFC 3339, UTC."""

    name: str
    scope: str
    created_at: str


class Tokens:
    """The tokens in the store at a path. Raises StoreError if it cannot be opened or written."""

    def __init__(self, path: str) -> None:
        self._path = path
        with translating_errors(path):
            self._db = connect(path)
        self._version = -1
        self._known: dict[bytes, Token] = {}

    def close(self) -> None:
        """Close the store."""
        self._db.close()

    def create(self, name: str, scope: str) -> str:
        """Create a token and return it, which no later call does; raise InvalidValueError for a bad or used name."""
        token, record = new_token(name, scope)
        row = (name, scope, digest_of(token), record.created_at)
        with translating_errors(self._path):
            try:
                self._db.execute("INSERT INTO tokens VALUES (?, ?, ?, ?)", row)
            except sqlite3.IntegrityError as error:
                raise InvalidValueError("name", name, "is the name of a token already: revoke that first") from error
        return token

    def all(self) -> list[Token]:
        """Return the records of all tokens, in the order of their names."""
        with translating_errors(self._path):
            rows = self._db.execute("SELECT name, scope, created_at FROM tokens ORDER BY name").fetchall()
        return [Token(*row) for row in rows]

    def revoke(self, name: str) -> None:
        """Revoke a token, also for a running controller; raise InvalidValueError if it does not exist."""
        with translating_errors(self._path):
            deleted = self._db.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount
        if not deleted:
            names = ", ".join(token.name for token in self.all()) or "none"
            raise InvalidValueError("name", name, f"is not the name of a token; there are: {names}")

    def find(self, token: str) -> Token | None:
        """Return the record of a token, None if it is unknown or was revoked. Raises StoreError.

        The tokens are read again only if another connection has changed the store. The look-up is by hash, so its
        duration reveals nothing about a token, which has 256 random bits.
        """
        with translating_errors(self._path):
            (version,) = self._db.execute("PRAGMA data_version").fetchone()
            if version != self._version:
                rows = self._db.execute("SELECT digest, name, scope, created_at FROM tokens").fetchall()
                self._known = {digest: Token(*rest) for digest, *rest in rows}
                self._version = version
        return self._known.get(digest_of(token))


def new_token(name: str, scope: str) -> tuple[str, Token]:
    """Return a new token and its record; raise InvalidValueError for a bad name or scope."""
    if _NAME.fullmatch(name) is None:
        raise InvalidValueError("name", name, "must be 1 to 63 letters, digits, '_', '-', '.' or '@'")
    if scope not in SCOPES:
        raise InvalidValueError("scope", scope, f"must be {' or '.join(SCOPES)}")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return _PREFIX + secrets.token_urlsafe(32), Token(name, scope, now)


def digest_of(token: str) -> bytes:
    """Return the stored hash of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
