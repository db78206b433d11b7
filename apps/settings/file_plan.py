"""Another configuration file under the overrides that there are, before it is in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from apps.settings.store import StoredChange
from controller.limits.effective_settings import EffectiveSettings
from controller.limits.overrides import Overrides


class PlanOwner(Protocol):
    """The settings that have prepared a plan."""

    def commit_plan(self, plan: FilePlan) -> None:
        """Let the plan's values be those in force."""

    def undo_plan(self, plan: FilePlan) -> None:
        """Take out of the store what was kept for the plan. Raises StoreError."""


@dataclass(frozen=True)
class FilePlan:
    """Another configuration file under the overrides: kept in the store, and not in force.

    Whoever prepared it puts ``values`` in force and calls ``commit``, or leaves all as it was and calls ``undo``.
    ``release`` lets other changes be made again.
    """

    owner: PlanOwner
    overrides: Overrides
    values: EffectiveSettings
    change: StoredChange | None
    facts: Mapping[str, str]
    release: Callable[[], None]

    def commit(self) -> None:
        """Let ``values`` be those in force. Waits for nothing."""
        self.owner.commit_plan(self)
        self.release()

    def undo(self) -> None:
        """Take out of the store what was kept. Raises StoreError; the revision then counts as used."""
        try:
            self.owner.undo_plan(self)
        finally:
            self.release()
