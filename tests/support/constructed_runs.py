"""Runs that are made by hand, with several seeds: fewer than three decide nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SEEDS = (1, 2, 3)


def with_seeds(runs: Iterable[dict[str, Any]], seeds: Iterable[int] = SEEDS) -> list[dict[str, Any]]:
    """Return the same runs for each of the seeds."""
    made = list(runs)
    return [{**one, "seed": seed} for seed in seeds for one in made]
