"""What software switches have noted: who changed them, and what was done to their meters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controller.openflow.constants import ControllerRole
from experiments.switch.datapath import Datapath

Writer = tuple[int, ControllerRole, int | None]


def second_writer(writers: Sequence[Writer]) -> str:
    """Return what says that a switch had two writers at once, "" if nothing does; ``writers`` are ``Datapath.writers``.

    Only masters may write, each generation id belongs to one node, and no older one may follow a newer one.
    """
    newest, node_of = -1, dict[int, int]()
    for node, role, generation in writers:
        if role is not ControllerRole.MASTER or generation is None:
            return f"node {node} wrote as {role.name}"
        if node_of.setdefault(generation, node) != node:
            return f"nodes {node_of[generation]} and {node} wrote under generation id {generation}"
        if generation < newest:
            return f"node {node} wrote under generation id {generation} after {newest}"
        newest = generation
    return ""


class MeterLog:
    """What is done to a switch's meters from now on: (id, rate in kb/s) set, and ids deleted.

    ``same`` are those set to the rate and burst that they had; ``filled_again`` those of which that was the first
    thing that a new writer did to them: to take over must cost no bucket's fill.
    """

    def __init__(self, switch: Datapath) -> None:
        self.set: list[tuple[int, int]] = []
        self.same: list[int] = []
        self.filled_again: list[int] = []
        self.deleted: list[int] = []
        meters, known = switch.meters, set[tuple[int, int]]()
        apply_rows, delete = meters.apply_rows, meters.delete

        def applied(rows: Any, now_s: float) -> Any:
            for row in rows:
                number, setting = int(row["meter_id"]), (int(row["rate"]), int(row["burst_size"]))
                self.set.append((number, setting[0]))
                by_writer = number, len(switch.writers)
                if meters.exists(number) and meters.setting(number) == setting:
                    self.same.append(number)
                    self.filled_again += [] if by_writer in known else [number]
                known.add(by_writer)
            return apply_rows(rows, now_s)

        def deleted(meter_id: int) -> list[int]:
            self.deleted.append(meter_id)
            return delete(meter_id)

        meters.apply_rows, meters.delete = applied, deleted  # type: ignore[method-assign]
