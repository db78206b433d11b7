"""An etcd in memory: what nodes that share switches ask of one."""

from __future__ import annotations

import base64
from itertools import count
from typing import Any

from apps.cluster.etcd_client import EtcdError, KeyValue


class MemoryEtcd:
    """Keys with their revisions, and leases that end when they are told to. While ``full``, nothing is written."""

    def __init__(self) -> None:
        self.kept: dict[str, KeyValue] = {}
        self.revision, self.full = 1, False
        self.leases: set[int] = set()
        self.left_of: dict[int, int] = {}  # of leases that are about to end, seconds
        self._lease_ids = count(1000)

    def transact(self, compare: list[Any], success: list[Any], failure: list[Any]) -> tuple[bool, list[Any]]:
        """As ``Etcd.transact``, with comparisons of create and mod revisions."""
        done = all(self._holds(one) for one in compare)
        operations = success if done else failure
        if self.full and any("request_put" in one for one in operations):
            raise EtcdError("space exceeded")
        self.revision += 1
        for one in operations:
            if "request_put" in one:
                key, lease_id = _text(one["request_put"]["key"]), int(one["request_put"]["lease"])
                created, value = self.created(key) or self.revision, base64.b64decode(one["request_put"]["value"])
                self.kept[key] = KeyValue(key, value, created, self.revision, lease_id)
            elif "request_delete_range" in one:
                self.kept.pop(_text(one["request_delete_range"]["key"]), None)
        return done, self.read(*(one for one in operations if "request_range" in one))

    def read(self, *ranges: Any) -> list[list[KeyValue]]:
        """Return the keys in each of these ranges."""
        found = []
        for one in ranges:
            first = _text(one["request_range"]["key"])
            whole = "range_end" in one["request_range"]
            kept = self.kept.items()
            found.append([kv for key, kv in sorted(kept) if (key.startswith(first) if whole else key == first)])
        return found

    def grant(self, ttl_s: int) -> int:
        """Return a new lease."""
        lease_id = next(self._lease_ids)
        self.leases.add(lease_id)
        return lease_id

    def keep_alive(self, lease_id: int) -> bool:
        """Return whether there is such a lease."""
        return lease_id in self.leases

    def remaining_ttl_s(self, lease_id: int) -> int:
        """Return what is left of a lease."""
        return self.left_of.get(lease_id, 3)

    def revoke(self, lease_id: int) -> None:
        """End a lease, and its keys."""
        self.leases.discard(lease_id)
        self.kept = {key: one for key, one in self.kept.items() if one.lease_id != lease_id}

    def created(self, key: str) -> int:
        """Return when a key was made, 0 if there is none."""
        return self.kept[key].create_revision if key in self.kept else 0

    def modified(self, key: str) -> int:
        """Return when a key was put last, 0 if there is none."""
        return self.kept[key].mod_revision if key in self.kept else 0

    def _holds(self, one: Any) -> bool:
        key = _text(one["key"])
        if one["target"] == "CREATE":
            return self.created(key) == one["create_revision"]
        return self.modified(key) == int(one["mod_revision"])


def _text(data: str) -> str:
    return base64.b64decode(data).decode()
