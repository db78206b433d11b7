"""How many intervals the control loop may skip while something goes on that must not hold it up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from support.application import Application

from experiments.machine.cpu_usage import withheld_s

FEW_INTERVALS = 2


@contextmanager
def few_skipped(app: Application) -> Iterator[None]:
    """What happens inside lets the loop skip a few intervals.

    Those for which this machine keeps the controller waiting for a processor, as far as that is known, do not count.
    """
    before, withheld = app.get("/v1/loop"), withheld_s(app.pid)
    yield
    rounds = app.get("/v1/loop")["rounds"]
    app.wait_for(lambda: app.get("/v1/loop")["rounds"] > rounds, "another round, which counts those skipped before")
    after = app.get("/v1/loop")
    skipped = after["skipped_rounds"] - before["skipped_rounds"]
    by_machine = (withheld_s(app.pid) - withheld) * 1e3 / after["interval_ms"]
    print(f"{skipped} intervals skipped; the controller waited {by_machine:.1f} for a processor")
    assert skipped <= FEW_INTERVALS + by_machine, "intervals were skipped"
