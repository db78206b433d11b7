"""Logs of software switches: who changed them, and what was done to their meters."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from controller.openflow.constants import METER_ALL, ControllerRole, MultipartType
from experiments.switch.datapath import Datapath

_METER = MultipartType.METER.to_bytes(2)
_ALL = METER_ALL.to_bytes(4)
Writer = tuple[int, ControllerRole, int | None]


def second_writer(writers: Sequence[Writer]) -> str:
    """Return a text if a switch had two writers at once, else ""; ``writers`` are ``Datapath.writers``.

    Only masters may write, each generation id belongs to one node, and no older id may follow a newer one.
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


class ReadingLog:
    """Times at which the master of a switch read all its meters, as it does in every interval that it decides.

    ``read_s`` are (time, node); reads of other nodes do not count.
    """

    def __init__(self, switch: Datapath, clock: Callable[[], float] = time.monotonic) -> None:
        self.read_s: list[tuple[float, int]] = []
        reply = switch.multipart.reply

        def close() -> None:
            switch.multipart.reply = reply  # type: ignore[method-assign]

        self.close = close

        def logged_reply(xid: int, body: memoryview, now_s: float) -> list[bytes]:
            current = switch.current
            # The body of a multipart request: its type, flags and padding, then the meter's id.
            if bytes(body[:2]) == _METER and bytes(body[8:12]) == _ALL and current.role is ControllerRole.MASTER:
                self.read_s.append((clock(), switch.conversations.index(current)))
            return reply(xid, body, now_s)

        switch.multipart.reply = logged_reply  # type: ignore[method-assign]

    def longest_gap_s(self) -> float:
        """Return the longest time between two of these readings."""
        times_s = [at_s for at_s, _ in self.read_s]
        return max((after - before for before, after in pairwise(times_s)), default=math.inf)


class MeterLog:
    """A log of the changes of a switch's meters from now on: (id, rate in kb/s) set, and ids deleted.

    ``same`` are the meters set to the rate and burst that they had. ``filled_again`` are those of ``same`` that a new
    writer set so with its first change of the meter: a takeover must not fill a bucket.
    """

    def __init__(self, switch: Datapath) -> None:
        self.set: list[tuple[int, int]] = []
        self.same: list[int] = []
        self.filled_again: list[int] = []
        self.deleted: list[int] = []
        # Pairs of a meter's id and the number of the writer that has changed it since the log began.
        meters, changed_before = switch.meters, set[tuple[int, int]]()
        apply_rows, delete = meters.apply_rows, meters.delete

        def applied(rows: Any, now_s: float) -> Any:
            """Record meter-mods before the switch applies them."""
            for row in rows:
                number, setting = int(row["meter_id"]), (int(row["rate"]), int(row["burst_size"]))
                self.set.append((number, setting[0]))
                change = number, len(switch.writers)  # the number of writers so far stands for the last one
                if meters.exists(number) and meters.setting(number) == setting:
                    self.same.append(number)
                    if change not in changed_before:
                        self.filled_again.append(number)
                changed_before.add(change)
            return apply_rows(rows, now_s)

        def deleted(meter_id: int) -> list[int]:
            """Record the id of a delete before the switch deletes the meter, or all meters."""
            self.deleted.append(meter_id)
            return delete(meter_id)

        # The switch calls these from now on.
        meters.apply_rows, meters.delete = applied, deleted  # type: ignore[method-assign]
