"""A plan for another configuration file under the present overrides, before it is effective."""

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
        """Make the plan's values effective."""

    def undo_plan(self, plan: FilePlan) -> None:
        """Remove the plan from the store. Raises StoreError."""


@dataclass(frozen=True)
class FilePlan:
    """The effective values of another configuration file with the present overrides: stored, but not applied.

    The caller applies ``values`` and calls ``commit``, or changes nothing and calls ``undo``. ``change`` is the stored
    change, None if none was needed; ``facts`` is the store's metadata. ``release`` permits other changes again.
    """

    owner: PlanOwner
    overrides: Overrides
    values: EffectiveSettings
    change: StoredChange | None
    facts: Mapping[str, str]
    release: Callable[[], None]

    def commit(self) -> None:
        """Record that ``values`` are effective. Never waits."""
        self.owner.commit_plan(self)
        self.release()

    def undo(self) -> None:
        """Remove the plan from the store. Raises StoreError if that fails; the revision then counts as used."""
        try:
            self.owner.undo_plan(self)
        finally:
            self.release()
