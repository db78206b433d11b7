"""What policies remember, as columns of a start record, and back; and the memories of older recordings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.columns import NEW_ROW, IntArray
from controller.fabric.vns import VnTable
from controller.policy.groups import Choices, PolicyGroup, groups_of
from controller.policy.memory import Memory

_Columns = dict[str, NDArray[Any]]
_KINDS = ("by_vn", "by_entry", "by_link", "by_use")


def put_memories(columns: _Columns, memories: Iterable[Memory]) -> list[list[str]]:
    """Put the memories of all policy groups into ``columns``, and return the names of the links of each."""
    links = []
    for number, memory in enumerate(memories):
        columns[f"rows.{number}"] = memory.rows
        columns[f"use_vn.{number}"], columns[f"use_link.{number}"] = memory.use_vn, memory.use_link
        for kind in _KINDS:
            columns |= {f"{kind}.{number}.{name}": column for name, column in getattr(memory, kind).items()}
        links.append(list(memory.links) if memory.by_link or memory.by_use else [])
    return links


def get_memories(columns: Mapping[str, NDArray[Any]], links: Sequence[Sequence[str]], vns: int) -> tuple[Memory, ...]:
    """Return the memories that ``put_memories`` put there."""
    return tuple(
        Memory(
            vns,
            columns[f"rows.{number}"],
            tuple(names),
            columns[f"use_vn.{number}"],
            columns[f"use_link.{number}"],
            **{kind: _named(columns, f"{kind}.{number}.") for kind in _KINDS},
        )
        for number, names in enumerate(links)
    )


def memories_of_version_2(columns: Mapping[str, NDArray[Any]], vns: VnTable, choices: Choices) -> tuple[Memory, ...]:
    """Return the memories of a start record of version 2, which knew columns of receivers and of entries.

    There was a group for each algorithm with its parameters as configured, in the order of the VLANs.
    """
    keys = [repr((one.algorithm, sorted(one.parameters.items()))) for _, one in sorted(choices.items())]
    number_of = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    vids_of: dict[str, list[int]] = {}
    for key, vid in zip(keys, sorted(choices), strict=True):
        vids_of.setdefault(key, []).append(vid)
    memories = []
    for group in groups_of(vns, choices):
        memories.append(Memory(len(vns)))
        for key, number in number_of.items():
            if _holds(group, vns, vids_of[key]):
                memories[-1] = _joined(memories[-1], columns, number)
    return tuple(memories)


def _holds(group: PolicyGroup, vns: VnTable, vids: list[int]) -> bool:
    return bool(np.isin(vns.vlan_vid[group.vns], vids).any())


def _joined(memory: Memory, columns: Mapping[str, NDArray[Any]], number: int) -> Memory:
    """Return a memory with that of one more group of version 2."""
    receivers: IntArray = columns[f"receivers.{number}"]
    known = np.flatnonzero(receivers != NEW_ROW)
    by_vn = dict(memory.by_vn)
    for name, column in _named(columns, f"by_receiver.{number}.").items():
        by_vn[name] = by_vn.get(name, np.full(memory.vns, np.nan)).copy()
        by_vn[name][receivers[known]] = column[known]
    return Memory(memory.vns, by_vn=by_vn)


def _named(columns: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)}
