"""The policies' states as columns of a start record, and back.

The columns of the policy group N are ``rows.N``, ``use_vn.N``, ``use_link.N``, and ``KIND.N.NAME`` for each column NAME
of the kinds in ``_KINDS``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from controller.policy.policy_state import PolicyState

_Columns = dict[str, NDArray[Any]]
_KINDS = ("by_vn", "by_entry", "by_link", "by_use")


def encode_states(columns: _Columns, memories: Iterable[PolicyState]) -> list[list[str]]:
    """Add the states of all policy groups to ``columns``; return the names of the links of each state.

    A state without columns by link or use needs no names of links.
    """
    link_names = []
    for number, memory in enumerate(memories):
        columns[f"rows.{number}"] = memory.rows
        columns[f"use_vn.{number}"], columns[f"use_link.{number}"] = memory.use_vn, memory.use_link
        for kind in _KINDS:
            columns |= {f"{kind}.{number}.{name}": column for name, column in getattr(memory, kind).items()}
        link_names.append(list(memory.links) if memory.by_link or memory.by_use else [])
    return link_names


def decode_states(
    columns: Mapping[str, NDArray[Any]], link_names: Sequence[Sequence[str]], vns: int
) -> tuple[PolicyState, ...]:
    """Return the states that ``encode_states`` added to ``columns``, with its result; ``vns`` is the number of VNs."""
    return tuple(
        PolicyState(
            vns,
            columns[f"rows.{number}"],
            tuple(names),
            columns[f"use_vn.{number}"],
            columns[f"use_link.{number}"],
            **{kind: _with_prefix(columns, f"{kind}.{number}.") for kind in _KINDS},
        )
        for number, names in enumerate(link_names)
    )


def _with_prefix(columns: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the columns whose names begin with ``prefix``, by the rest of their names."""
    return {name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)}
