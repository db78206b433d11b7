"""Gatekeeper (HPL-2010-151). What it claims, and aims of this project.

Of its figures only numbers in the text are known. Rates are on the wire: the scheduler gives 860 Mb/s, of which A is
promised 645 and B 215.
"""

from __future__ import annotations

from collections.abc import Callable

from experiments.evaluation.claims import Claim, ClaimVerdict, Measured, Paper, show
from experiments.scenarios.gatekeeper.fig5 import (
    A_BPS,
    B_BPS,
    CELLS,
    LINK_BPS,
    LITERAL,
    SCHEDULED_BPS,
    SILENT,
    cell_name,
)
from experiments.scenarios.gatekeeper.queue import SENDERS

NAME = "gatekeeper"
RX, TX = "gatekeeper-fig5-rx", "gatekeeper-fig5-tx"
NEAR, USED = 0.05, 0.97
HOST_INTERVALS, EDGE_INTERVALS = 5, 1
Cell = tuple[str, str]


def _rates(measured: Measured, experiment: str, control: str, cell: Cell) -> list[tuple[float, float]]:
    """Return what A and B got in a cell, by seed; B is the first that sends anywhere."""
    values = measured.values(experiment, control, "received_bps_by_receiver", cell_name(*cell)).values()
    return [(a_bps, b_bps) for b_bps, a_bps in values]


def _kept(cell: Cell, got: tuple[float, float], near: float = NEAR) -> bool:
    """Whether both have what they were promised, and what is idle is used."""
    sending = [kind != "none" for kind in cell]
    if not all(sending):
        return sum(got) >= USED * SCHEDULED_BPS
    promised = (A_BPS, B_BPS)
    good = all(abs(one - bps) <= near * bps for one, bps in zip(got, promised, strict=True))
    return good and sum(got) >= USED * SCHEDULED_BPS


def _table(
    measured: Measured, experiment: str, control: str, cells: tuple[Cell, ...] = CELLS, near: float = NEAR
) -> tuple[str, bool | None]:
    """Return how many cells are as promised in every seed, and the worst of the others."""
    seen = {cell: _rates(measured, experiment, control, cell) for cell in cells}
    if not all(seen.values()):
        return "-", None
    good = [cell for cell, runs in seen.items() if all(_kept(cell, got, near) for got in runs)]
    text = f"{len(good)} of {len(cells)} cells"
    bad = [(cell, got) for cell, runs in seen.items() for got in runs if not _kept(cell, got, near)]
    if bad:
        cell, (a_bps, b_bps) = min(bad, key=lambda one: _least(*one))
        text += f"; worst {cell_name(*cell)}: {a_bps / 1e6:.0f} and {b_bps / 1e6:.0f} Mb/s"
    return text, len(good) == len(cells)


def _least(cell: Cell, got: tuple[float, float]) -> float:
    promised = (A_BPS, B_BPS) if "none" not in cell else (SCHEDULED_BPS, SCHEDULED_BPS)
    return min(one / bps for kind, one, bps in zip(cell, got, promised, strict=True) if kind != "none")


def _as_promised(
    experiment: str, control: str = NAME, cells: tuple[Cell, ...] = CELLS, near: float = NEAR
) -> Callable[[Measured], ClaimVerdict]:
    def judge(measured: Measured) -> ClaimVerdict:
        found, holds = _table(measured, experiment, control, cells, near)
        return ClaimVerdict(found, holds, _table(measured, experiment, "max-min", cells, near)[0])

    return judge


def _of_a(measured: Measured, experiment: str, control: str, cell: Cell) -> list[float]:
    return [a_bps / A_BPS for a_bps, _ in _rates(measured, experiment, control, cell)]


def _starved_receiving(measured: Measured) -> ClaimVerdict:
    ten, udp = (_of_a(measured, RX, "none", ("1 TCP", kind)) for kind in ("10 TCP", "UDP"))
    if not (ten and udp):
        return ClaimVerdict("-", None)
    found = f"A's TCP has {show(ten)} of 645 Mb/s beside 10 TCP, {show(udp)} beside UDP"
    return ClaimVerdict(
        found, max(ten) < 0.5 and max(udp) < 0.05, show(_of_a(measured, RX, "max-min", ("1 TCP", "UDP")))
    )


def _starved_sending(measured: Measured) -> ClaimVerdict:
    parts = {kind: _of_a(measured, TX, "none", ("1 TCP", kind)) for kind in ("10 TCP", "UDP")}
    if not all(parts.values()):
        return ClaimVerdict("-", None)
    found = ", ".join(f"{show(part)} beside {kind}" for kind, part in parts.items())
    holds = any(abs(one - 1) > 0.2 for part in parts.values() for one in part)
    return ClaimVerdict(f"A's TCP has {found}, of 645 Mb/s", holds)


def _needs_messages(measured: Measured) -> ClaimVerdict:
    cell = ("1 TCP", "UDP")
    without, with_them = (_of_a(measured, RX, control, cell) for control in (SILENT, NAME))
    if not (without and with_them):
        return ClaimVerdict("-", None)
    found = f"A's TCP has {show(without)} without messages, {show(with_them)} with, of 645 Mb/s"
    return ClaimVerdict(found, max(without) < 0.8 <= min(with_them))


def _quiet(measured: Measured) -> ClaimVerdict:
    counts = list(measured.values("gatekeeper-queue-64", NAME, "notifications").values())
    if not counts:
        return ClaimVerdict("-", None)
    return ClaimVerdict(f"{show(counts, 'count')} messages in 10 s, 74 connections", max(counts) <= 2)


def _queue(measured: Measured) -> ClaimVerdict:
    drops, messages = [], []
    for senders in SENDERS:
        name = f"gatekeeper-queue-{senders}"
        lost, counts = (list(measured.values(name, NAME, key).values()) for key in ("lost_share", "notifications"))
        if not lost:
            return ClaimVerdict("-", None)
        drops.append([one * SCHEDULED_BPS / LINK_BPS for one in lost])
        messages += counts
    found = "; ".join(f"{n} PNs {show(part)}" for n, part in zip(SENDERS, drops, strict=True))
    falls = sum(drops[0]) >= sum(drops[-1])
    holds = all(one <= 0.02 for part in drops for one in part) and falls and not sum(messages)
    return ClaimVerdict(f"drops, of the link: {found}; {sum(messages)} messages", holds)


def _prompt(experiment: str, most: int) -> Callable[[Measured], ClaimVerdict]:
    def judge(measured: Measured) -> ClaimVerdict:
        def told(control: str) -> tuple[str, bool | None]:
            runs = measured.runs(experiment, control)
            if not runs:
                return "-", None
            took = [run["victim_recovery_intervals"] for run in runs]
            worst = "never" if None in took else str(max(took))
            return f"worst {worst} intervals", all(one is not None and one <= most for one in took)

        found, holds = told(NAME)
        literal, _ = told(LITERAL)
        return ClaimVerdict(f"{found} (the paper's law: {literal})", holds, told("max-min")[0])

    return judge


def _use_of_all(measured: Measured) -> ClaimVerdict:
    use = {
        control: list(measured.values(f"{RX}-160", control, "received_bps", cell_name("none", "UDP")).values())
        for control in (NAME, LITERAL, "max-min")
    }
    if not (use[NAME] and use[LITERAL]):
        return ClaimVerdict("-", None)
    parts = {control: [one / SCHEDULED_BPS for one in values] for control, values in use.items()}
    found = f"{show(parts[NAME])} of the scheduler's rate (the paper's law: {show(parts[LITERAL])})"
    return ClaimVerdict(found, min(parts[NAME]) >= 0.99, show(parts["max-min"]))


TCP_CELLS = tuple(cell for cell in CELLS if "UDP" not in cell)

CLAIMS = (
    Claim("fig5a-rx", "3.2, fig. 5a", "without control a receiving tenant is starved", _starved_receiving),
    Claim("fig5a-tx", "3.2, fig. 5a", "without control a sending tenant is not at its share", _starved_sending),
    Claim("fig5b-rx", "3.2, fig. 5b", "receiving: guarantees within 5 %, idle capacity used", _as_promised(RX)),
    Claim("fig5b-tx", "3.2, fig. 5b", "sending: the same, scheduled on the host", _as_promised(TX)),
    Claim(
        "fig5b-tx-meters",
        "-",
        "aim: sending TCP keeps guarantees within 10 % with meters alone",
        _as_promised(f"{TX}-meters", cells=TCP_CELLS, near=0.10),
    ),
    Claim("literal", "3.2, fig. 5b", "the same of the paper's law to the letter", _as_promised(RX, LITERAL)),
    Claim("literal-160", "3.2", "the same, and its queues of 160 packets", _as_promised(f"{RX}-160", LITERAL)),
    Claim("queue-160", "-", "aim: the default keeps them with queues of 160 packets", _as_promised(f"{RX}-160")),
    Claim("messages", "3.2, fig. 7", "without messages UDP starves others before the scheduler", _needs_messages),
    Claim("queue", "3.1", "256 TCP connections drop at most 2 % of the link, fewer from more hosts", _queue),
    Claim("quiet", "2", "TCP causes no messages", _quiet),
    Claim("prompt-host", "-", "aim: TCP is back within 5 intervals", _prompt("gatekeeper-blast-host", HOST_INTERVALS)),
    Claim("prompt-ten", "-", "aim: the same beside ten senders", _prompt("gatekeeper-blast-host-ten", HOST_INTERVALS)),
    Claim("prompt-edge", "-", "aim: at the edge within one", _prompt("gatekeeper-blast-edge", EDGE_INTERVALS)),
    Claim("use", "2", "what is idle is used: UDP alone, queues of 160 packets", _use_of_all),
)

paper = Paper(NAME, "Gatekeeper", CLAIMS, best="max-min", best_title="max-min")
