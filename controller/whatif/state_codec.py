"""The policies' states as columns of a start record, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from controller.policy.policy_state import PolicyState

_Columns = dict[str, NDArray[Any]]
_KINDS = ("by_vn", "by_entry", "by_link", "by_use")


def encode_states(columns: _Columns, memories: Iterable[PolicyState]) -> list[list[str]]:
    """Put the states of all policy groups into ``columns``, and return the names of the links of each."""
    links = []
    for number, memory in enumerate(memories):
        columns[f"rows.{number}"] = memory.rows
        columns[f"use_vn.{number}"], columns[f"use_link.{number}"] = memory.use_vn, memory.use_link
        for kind in _KINDS:
            columns |= {f"{kind}.{number}.{name}": column for name, column in getattr(memory, kind).items()}
        links.append(list(memory.links) if memory.by_link or memory.by_use else [])
    return links


def decode_states(
    columns: Mapping[str, NDArray[Any]], links: Sequence[Sequence[str]], vns: int
) -> tuple[PolicyState, ...]:
    """Return the states that ``encode_states`` put there."""
    return tuple(
        PolicyState(
            vns,
            columns[f"rows.{number}"],
            tuple(names),
            columns[f"use_vn.{number}"],
            columns[f"use_link.{number}"],
            **{kind: _named(columns, f"{kind}.{number}.") for kind in _KINDS},
        )
        for number, names in enumerate(links)
    )


def _named(columns: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)}
