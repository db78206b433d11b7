"""The store of overrides in etcd, with the interface of ``apps.settings.store.Store``.

Overrides go into chunks first. Then one transaction moves ``head`` to them, if ``head`` is as this node read it and
this node is still the active one. So a change is stored completely or not at all, and a replaced node stores none.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from apps.cluster.etcd_client import (
    EtcdClient,
    EtcdError,
    KeyValue,
    Operation,
    created_at,
    delete,
    get,
    modified_at,
    put,
)
from apps.settings.errors import StoreError
from apps.settings.store import KEPT_CHANGES, Item, StoredChange, StoredState, encode_items
from controller.limits.overrides import Override, VnName

# A request to etcd may have 1.5 MB; Base64 uses a quarter of it.
_CHUNK_BYTES = 512 << 10
# The head of a store without changes.
_NOTHING: dict[str, Any] = {"revision": 0, "overrides": None, "facts": {}, "nonce": ""}


class EtcdStore:
    """The store in the keys below ``prefix``.

    ``token`` returns the create_revision of the active key while this node has it, otherwise None. ``refusal`` returns
    why this node stores no changes now. ``run`` calls a function that takes CPU time, and returns its result.
    """

    def __init__(
        self,
        etcd: EtcdClient,
        prefix: str,
        token: Callable[[], int | None],
        refusal: Callable[[], str],
        run: Callable[..., Any] = lambda function, *arguments: function(*arguments),
    ) -> None:
        self._etcd, self._prefix, self._token, self._refusal, self._run = etcd, prefix, token, refusal, run
        self.head_revision = 0  # etcd's revision of ``head`` at the last read or write
        self._head = _NOTHING
        self._vlans: dict[int, Override] = {}
        self._vns: dict[VnName, Override] = {}

    @property
    def writable(self) -> bool:
        """Return whether changes are stored now: on the active node."""
        return self._token() is not None

    def close(self) -> None:
        """Close the connections to etcd."""
        self._etcd.close()

    def load(self) -> StoredState:
        """Return the stored state. Raises StoreError."""
        try:
            head_revision, head = self._read_head()
            values = self._run(_decode_overrides, self._get_blob(head["overrides"]))
        except (EtcdError, ValueError, KeyError, TypeError, zlib.error) as error:
            raise StoreError(f"cluster.etcd: the settings cannot be read: {error}") from error
        self.head_revision, self._head = head_revision, head
        self._vlans, self._vns = values
        return StoredState(head["revision"], dict(self._vlans), dict(self._vns), dict(head["facts"]))

    def commit(
        self,
        change: StoredChange,
        vlans: Mapping[int, Override],
        vns: Mapping[VnName, Override],
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Store a change with the resulting overrides: all of it, or nothing. Raises StoreError."""
        self._check_active()
        new_vlans, new_vns = {**self._vlans, **vlans}, {**self._vns, **vns}
        overrides = self._run(_encode_overrides, new_vlans, new_vns) if vlans or vns else None
        items = self._run(encode_items, change.items)
        blob = self._head["overrides"] if overrides is None else self._put_blob("overrides", overrides)
        record = {name: getattr(change, name) for name in ("at", "who", "address", "action", "changed")}
        record["items"] = self._put_blob(f"items/{change.revision:012}", items)
        head = {"revision": change.revision, "overrides": blob, "facts": {**self._head["facts"], **(facts or {})}}
        operations = [put(self._change_key(change.revision), json.dumps(record).encode())]
        expired = change.revision - KEPT_CHANGES
        if expired > 0:
            operations.append(delete(self._change_key(expired)))
            operations.append(delete(f"{self._prefix}items/{expired:012}/", prefix=True))
        self._move_head(head, operations)
        self._vlans, self._vns = new_vlans, new_vns

    def keep_facts(self, facts: Mapping[str, str]) -> None:
        """Store metadata without a change and a revision. Raises StoreError."""
        self._move_head({**self._head, "facts": {**self._head["facts"], **facts}}, [])

    def undo_last(self, change: StoredChange, facts: Mapping[str, str]) -> None:
        """Delete ``change``, the last commit, and restore ``facts``, the metadata before it. Raises StoreError.

        The commit must not have changed an override: overrides are not restored.
        """
        head = {**self._head, "revision": change.revision - 1, "facts": dict(facts)}
        self._move_head(head, [delete(self._change_key(change.revision))])

    def history(self, before: int, limit: int) -> list[StoredChange]:
        """Return changes without their items, newest first, below revision ``before``."""
        end = self._change_key(max(min(before, 10**12 - 1), 0))
        newest_first = get(f"{self._prefix}changes/", before=end, limit=limit)
        return [_change(entry)[0] for entry in self._etcd.read(newest_first)[0]]

    def change(self, revision: int) -> StoredChange | None:
        """Return one change with its items, None if it is not stored."""
        keys = self._etcd.read(get(self._change_key(revision)))[0]
        if not keys:
            return None
        change, blob = _change(keys[0])
        try:
            items = [Item(*item) for item in json.loads(zlib.decompress(self._get_blob(blob)))]
        except (EtcdError, ValueError, TypeError, zlib.error) as error:
            raise StoreError(f"cluster.etcd: change {revision} cannot be read: {error}") from error
        return replace(change, items=items)

    # -- head

    def _move_head(self, head: dict[str, Any], operations: list[Operation]) -> None:
        """Replace the head and execute ``operations``, if the head is unchanged and this node is active.

        Raises StoreError. If the reply is lost, the head is read: its nonce shows whether the change was stored.
        """
        token = self._check_active()
        head = {**head, "nonce": secrets.token_hex(8)}
        key, old_blob = f"{self._prefix}head", self._head["overrides"]
        if old_blob is not None and old_blob != head["overrides"]:
            operations = [*operations, delete(f"{self._prefix}{old_blob[0]}/", prefix=True)]
        conditions = [modified_at(key, self.head_revision), created_at(f"{self._prefix}active", token)]
        writes = [put(key, json.dumps(head).encode()), *operations, get(key)]
        lost_reply = ""
        try:
            _done, results = self._etcd.transact(conditions, writes, [get(key)])
        except EtcdError as error:
            lost_reply = str(error)
        try:
            if lost_reply:
                results = self._etcd.read(get(key))
        except EtcdError as error:
            raise StoreError(f"cluster.etcd: it is not known whether the change was stored: {error}") from error
        stored = results[-1][0] if results[-1] else None
        if stored is None or json.loads(stored.value)["nonce"] != head["nonce"]:
            reason = lost_reply or "another node is active, or has changed the settings"
            raise StoreError(f"cluster.etcd: the change was not stored: {reason}")
        self.head_revision, self._head = stored.mod_revision, head

    def _check_active(self) -> int:
        """Return this node's token. Raises StoreError if it is not active."""
        token = self._token()
        if token is None:
            raise StoreError(self._refusal())
        return token

    def _read_head(self) -> tuple[int, dict[str, Any]]:
        """Return the revision of ``head`` in etcd, and its content."""
        found = self._etcd.read(get(f"{self._prefix}head"))[0]
        return (found[0].mod_revision, json.loads(found[0].value)) if found else (0, _NOTHING)

    # -- chunks

    def _put_blob(self, kind: str, data: bytes) -> list[Any]:
        """Store bytes in chunks; return [key prefix of the chunks, number of chunks], as ``head`` contains it."""
        location = f"{kind}/{hashlib.sha256(data).hexdigest()[:32]}"
        chunks = [data[start : start + _CHUNK_BYTES] for start in range(0, len(data), _CHUNK_BYTES)]
        for number, chunk in enumerate(chunks):
            self._etcd.transact([], [put(f"{self._prefix}{location}/{number:06}", chunk)], [])
        return [location, len(chunks)]

    def _get_blob(self, blob: list[Any] | None) -> bytes:
        """Return the bytes that ``_put_blob`` stored, b"" for None. Raises EtcdError for a missing chunk."""
        if blob is None:
            return b""
        location, count = blob
        chunks = [self._etcd.read(get(f"{self._prefix}{location}/{number:06}"))[0] for number in range(count)]
        if not all(chunks):
            raise EtcdError(f"{self._prefix}{location} is not complete")
        return b"".join(chunk[0].value for chunk in chunks)

    def _change_key(self, revision: int) -> str:
        """Return the key of a change; 12 digits, so that keys are in the order of revisions."""
        return f"{self._prefix}changes/{revision:012}"


def _change(key_value: KeyValue) -> tuple[StoredChange, Any]:
    """Return a change without its items, and the location of its items."""
    record = json.loads(key_value.value)
    items = record.pop("items")
    return StoredChange(revision=int(key_value.key.rpartition("/")[2]), **record), items


def _encode_overrides(vlans: Mapping[int, Override], vns: Mapping[VnName, Override]) -> bytes:
    """Return overrides as compressed JSON, for ``_decode_overrides``."""
    of_vlans = [[vid, dict(vlan.values), vlan.revision, vlan.limits_revision] for vid, vlan in vlans.items()]
    of_vns = [[*name, dict(vn.values), vn.revision] for name, vn in vns.items()]
    return zlib.compress(json.dumps({"vlans": of_vlans, "vns": of_vns}, ensure_ascii=False).encode(), 1)


def _decode_overrides(data: bytes) -> tuple[dict[int, Override], dict[VnName, Override]]:
    """Return encoded overrides by VLAN id and by VN; none for empty data."""
    if not data:
        return {}, {}
    rows = json.loads(zlib.decompress(data))
    vlans = {vid: Override(values, revision, limits) for vid, values, revision, limits in rows["vlans"]}
    vns = {VnName(*row[:3]): Override(row[3], row[4]) for row in rows["vns"]}
    return vlans, vns
