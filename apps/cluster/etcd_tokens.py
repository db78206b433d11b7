"""Bearer tokens of the REST interface in etcd: the same calls as ``apps.settings.tokens.Tokens``."""

from __future__ import annotations

import json
from collections.abc import Iterable

from apps.cluster.etcd_client import EtcdClient, KeyValue, created_at, delete, get, put
from apps.settings.tokens import Token, digest_of, new_token
from controller.errors import InvalidValueError


class EtcdTokens:
    """The tokens below ``prefix``. ``find`` uses etcd's last reply, so that no request waits for etcd."""

    def __init__(self, etcd: EtcdClient, prefix: str) -> None:
        self._etcd, self.place = etcd, f"{prefix}tokens/"
        self._known: dict[str, Token] = {}

    def close(self) -> None:
        """Close the connections to etcd."""
        self._etcd.close()

    def update(self, found: Iterable[KeyValue]) -> None:
        """Store the tokens of etcd's reply."""
        self._known = dict(map(self._token, found))

    def create(self, name: str, scope: str) -> str:
        """Create a token and return it (only its digest is stored); raise InvalidValueError for a bad or used name."""
        token, record = new_token(name, scope)
        value = {"scope": record.scope, "created_at": record.created_at, "digest": digest_of(token).hex()}
        key = self.place + name
        key_is_unused = [created_at(key, 0)]
        done, _ = self._etcd.transact(key_is_unused, [put(key, json.dumps(value).encode())], [])
        if not done:
            raise InvalidValueError("name", name, "is the name of a token already: revoke that first")
        return token

    def all(self) -> list[Token]:
        """Return the tokens by name. Raises StoreError."""
        found = self._etcd.read(get(self.place, prefix=True))[0]
        return [self._token(key_value)[1] for key_value in found]

    def revoke(self, name: str) -> None:
        """Revoke a token; raise InvalidValueError if it does not exist."""
        names = [token.name for token in self.all()]
        if name not in names:
            existing = ", ".join(names) or "none"
            raise InvalidValueError("name", name, f"is not the name of a token; there are: {existing}")
        self._etcd.transact([], [delete(self.place + name)], [])

    def find(self, token: str) -> Token | None:
        """Return the record of a token, None if it is unknown or was revoked."""
        return self._known.get(digest_of(token).hex())

    def _token(self, key_value: KeyValue) -> tuple[str, Token]:
        """Return the digest of a stored token, and the token."""
        value = json.loads(key_value.value)
        return value["digest"], Token(key_value.key.removeprefix(self.place), value["scope"], value["created_at"])
