"""Figure 5: whether two tenants at one bottleneck have their guarantees, in each of its 15 cells."""

from __future__ import annotations

from experiments.evaluation.claims import (
    UNDECIDED,
    ClaimVerdict,
    Judge,
    Measured,
    above,
    all_of,
    show,
    within,
)
from experiments.scenarios.gatekeeper.fig5 import A_BPS, B_BPS, CELLS, LITERAL, SCHEDULED_BPS, cell_name

UNKNOWN = ClaimVerdict("-", None)
NAME = "gatekeeper"
RX, TX = "gatekeeper-fig5-rx", "gatekeeper-fig5-tx"
NEAR, USED = 0.05, 0.97
KEPT, KEPT_OF_UDP, USED_ALONE = 0.99, 0.97, 0.99
Cell = tuple[str, str]


def rates_in(measured: Measured, experiment: str, control: str, cell: Cell) -> list[tuple[float, float]]:
    """Return the rates of A and B in a cell, by seed, at the paper's scale; B is the first sender."""
    values = measured.values(experiment, control, "received_bps_by_receiver", cell_name(*cell)).values()
    return [(a_bps / measured.scale, b_bps / measured.scale) for b_bps, a_bps in values]


def _kept(cell: Cell, got: tuple[float, float], near: float = NEAR) -> bool:
    """Whether both tenants have their guarantees, and idle capacity is used."""
    sending = [kind != "none" for kind in cell]
    if not all(sending):
        return sum(got) >= USED * SCHEDULED_BPS
    promised = (A_BPS, B_BPS)
    good = all(abs(got_bps - bps) <= near * bps for got_bps, bps in zip(got, promised, strict=True))
    return good and sum(got) >= USED * SCHEDULED_BPS


def cells_kept(
    measured: Measured, experiment: str, control: str, cells: tuple[Cell, ...] = CELLS, near: float = NEAR
) -> tuple[str, bool | None]:
    """Return how many cells meet the guarantees in every seed, and the worst of the others."""
    seen = {cell: rates_in(measured, experiment, control, cell) for cell in cells}
    if not all(seen.values()):
        return "-", None
    good = [cell for cell, runs in seen.items() if all(_kept(cell, got, near) for got in runs)]
    text = f"{len(good)} of {len(cells)} cells"
    bad = [(cell, got) for cell, runs in seen.items() for got in runs if not _kept(cell, got, near)]
    if bad:
        cell, (a_bps, b_bps) = min(bad, key=lambda case: _least(*case))
        text += f"; worst {cell_name(*cell)}: {a_bps / 1e6:.0f} and {b_bps / 1e6:.0f} Mb/s"
    return text, len(good) == len(cells)


def _least(cell: Cell, got: tuple[float, float]) -> float:
    promised = (A_BPS, B_BPS) if "none" not in cell else (SCHEDULED_BPS, SCHEDULED_BPS)
    return min(got_bps / bps for kind, got_bps, bps in zip(cell, got, promised, strict=True) if kind != "none")


def as_promised(experiment: str, control: str = NAME, cells: tuple[Cell, ...] = CELLS, near: float = NEAR) -> Judge:
    """Judge whether all cells meet the guarantees."""

    def judge(measured: Measured) -> ClaimVerdict:
        """Return the verdict; UNDECIDED if seeds differ in whether all cells meet their guarantees."""
        found, holds = cells_kept(measured, experiment, control, cells, near)
        seen = [rates_in(measured, experiment, control, cell) for cell in cells]
        seeds = {all(_kept(*pair, near) for pair in zip(cells, got, strict=True)) for got in zip(*seen, strict=False)}
        return ClaimVerdict(
            found,
            UNDECIDED if holds is not None and len(seeds) > 1 else holds,
            cells_kept(measured, experiment, "max-min", cells, near)[0],
        )

    return judge


def _of_a(measured: Measured, experiment: str, control: str, cell: Cell) -> list[float]:
    return [a_bps / A_BPS for a_bps, _ in rates_in(measured, experiment, control, cell)]


def starved_receiving(measured: Measured) -> ClaimVerdict:
    """Judge whether B starves A's TCP at one receiver without control."""
    ten, udp = (_of_a(measured, RX, "none", ("1 TCP", kind)) for kind in ("10 TCP", "UDP"))
    if not (ten and udp):
        return UNKNOWN
    found = f"A's TCP has {show(ten)} of 645 Mb/s next to 10 TCP, {show(udp)} next to UDP"
    return ClaimVerdict(
        found,
        all_of(within(ten, high=0.5), within(udp, high=0.05)),
        show(_of_a(measured, RX, "max-min", ("1 TCP", "UDP"))),
    )


def starved_sending(measured: Measured) -> ClaimVerdict:
    """Judge whether A's TCP misses its guarantee at one sender without control."""
    parts = {kind: _of_a(measured, TX, "none", ("1 TCP", kind)) for kind in ("10 TCP", "UDP")}
    if not all(parts.values()):
        return UNKNOWN
    found = ", ".join(f"{show(part)} next to {kind}" for kind, part in parts.items())
    most = [max(abs(ratio - 1) for ratio in both) for both in zip(*parts.values(), strict=False)]
    holds = above(most, 0.2)
    return ClaimVerdict(f"A's TCP has {found}, of 645 Mb/s", holds)


def needs_messages(experiment: str, silent: str, control: str) -> Judge:
    """Judge whether the queue alone protects TCP from UDP before the scheduler."""

    def judge(measured: Measured) -> ClaimVerdict:
        cell = ("1 TCP", "UDP")
        without, with_them = (_of_a(measured, experiment, system, cell) for system in (silent, control))
        if not (without and with_them):
            return UNKNOWN
        found = f"A's TCP has {show(without)} without notifications, {show(with_them)} with, of 645 Mb/s"
        return ClaimVerdict(found, all_of(within(without, high=0.8), within(with_them, 0.8)))

    return judge


def guarantees(experiment: str) -> Judge:
    """Judge the part of its guarantee that each tenant keeps if both send: the part that an operator may rely on."""

    def worst(measured: Measured, control: str) -> tuple[str, bool | None]:
        """Return the least part of its guarantee that TCP and UDP get over all cells, and whether both suffice."""
        least: dict[str, float] = {}
        for cell in CELLS:
            if "none" in cell:
                continue
            runs = rates_in(measured, experiment, control, cell)
            if not runs:
                return "-", None
            for number, (kind, promised_bps) in enumerate(zip(cell, (A_BPS, B_BPS), strict=True)):
                part = min(got[number] for got in runs) / promised_bps
                name = "UDP" if kind == "UDP" else "TCP"
                least[name] = min(part, least.get(name, part))
        text = ", ".join(f"{name} at least {part:.1%}" for name, part in least.items())
        return text, least["TCP"] >= KEPT and least["UDP"] >= KEPT_OF_UDP

    def judge(measured: Measured) -> ClaimVerdict:
        found, holds = worst(measured, NAME)
        return ClaimVerdict(found, holds, worst(measured, "max-min")[0])

    return judge


def uses_idle_capacity(experiment: str) -> Judge:
    """Judge whether a tenant gets all of the scheduler's capacity while the other is idle."""

    def least(measured: Measured, control: str) -> list[float]:
        cells = [cell for cell in CELLS if "none" in cell]
        return [sum(got) / SCHEDULED_BPS for cell in cells for got in rates_in(measured, experiment, control, cell)]

    def judge(measured: Measured) -> ClaimVerdict:
        ours, literal, best = (least(measured, control) for control in (NAME, LITERAL, "max-min"))
        if not (ours and literal):
            return UNKNOWN
        found = f"at least {min(ours):.1%} (paper's parameters: {min(literal):.1%})"
        return ClaimVerdict(found, min(ours) >= USED_ALONE, f"at least {min(best):.1%}" if best else "-")

    return judge
