"""Figure 5: whether two tenants at one bottleneck have their guarantees, in each of its 15 cells."""

from __future__ import annotations

from experiments.evaluation.claims import UNDECIDED, ClaimVerdict, Judge, Measured, above, all_of, show, within
from experiments.scenarios.gatekeeper.fig5 import A_BPS, B_BPS, CELLS, LITERAL, SCHEDULED_BPS, cell_name

UNKNOWN = ClaimVerdict("-", None)
NAME = "gatekeeper"
RX, TX = "gatekeeper-fig5-rx", "gatekeeper-fig5-tx"
NEAR, USED = 0.05, 0.97  # largest deviation, of the guarantee; least use, of the scheduled capacity
KEPT, KEPT_OF_UDP, USED_ALONE = 0.99, 0.97, 0.99  # the stricter targets: of the guarantee, and use by a single tenant
Cell = tuple[str, str]
"""What A and B send, such as ("1 TCP", "UDP")."""


def rates_in(measured: Measured, experiment: str, control: str, cell: Cell) -> list[tuple[float, float]]:
    """Return the rates of A and B in a cell in bit/s at the paper's scale: a pair per seed."""
    values = measured.values(experiment, control, "received_bps_by_receiver", cell_name(*cell)).values()
    # B is the first receiver: in the first cell only B sends.
    return [(a_bps / measured.scale, b_bps / measured.scale) for b_bps, a_bps in values]


def _meets_guarantees(cell: Cell, received_bps: tuple[float, float], tolerance: float = NEAR) -> bool:
    """Return whether A and B receive their guarantees, and together at least USED of the scheduled capacity.

    ``cell`` is what A and B send. With an idle tenant only the sum counts. ``tolerance`` is a part of the guarantee.
    """
    if "none" in cell:
        return sum(received_bps) >= USED * SCHEDULED_BPS
    guarantees_bps = (A_BPS, B_BPS)
    both_kept = all(
        abs(rate_bps - guarantee_bps) <= tolerance * guarantee_bps
        for rate_bps, guarantee_bps in zip(received_bps, guarantees_bps, strict=True)
    )
    return both_kept and sum(received_bps) >= USED * SCHEDULED_BPS


def cells_kept(
    measured: Measured, experiment: str, control: str, cells: tuple[Cell, ...] = CELLS, near: float = NEAR
) -> tuple[str, bool | None]:
    """Return the text "N of M cells" with the worst run, and whether every cell meets its guarantees in every seed.

    The second is None if a cell was not run. ``near`` is the tolerance, as a part of the guarantee.
    """
    by_cell = {cell: rates_in(measured, experiment, control, cell) for cell in cells}
    if not all(by_cell.values()):
        return "-", None
    runs = [(cell, rates_bps) for cell, by_seed in by_cell.items() for rates_bps in by_seed]
    missed = [(cell, rates_bps) for cell, rates_bps in runs if not _meets_guarantees(cell, rates_bps, near)]
    missed_cells = {cell for cell, _ in missed}
    text = f"{len(cells) - len(missed_cells)} of {len(cells)} cells"
    if missed:
        cell, (a_bps, b_bps) = min(missed, key=lambda run: _least_share(*run))
        text += f"; worst {cell_name(*cell)}: {a_bps / 1e6:.0f} and {b_bps / 1e6:.0f} Mb/s"
    return text, not missed


def _least_share(cell: Cell, received_bps: tuple[float, float]) -> float:
    """Return the lowest rate over guarantee of the tenants that send; a tenant alone is due the whole capacity."""
    guarantees_bps = (A_BPS, B_BPS) if "none" not in cell else (SCHEDULED_BPS, SCHEDULED_BPS)
    tenants = zip(cell, received_bps, guarantees_bps, strict=True)
    return min(rate_bps / guarantee_bps for kind, rate_bps, guarantee_bps in tenants if kind != "none")


def as_promised(experiment: str, control: str = NAME, cells: tuple[Cell, ...] = CELLS, near: float = NEAR) -> Judge:
    """Judge whether all cells meet the guarantees, ``near`` being the tolerance as a part of the guarantee."""

    def judge(measured: Measured) -> ClaimVerdict:
        """Return the verdict; UNDECIDED if seeds differ in whether all cells meet their guarantees."""
        text, holds = cells_kept(measured, experiment, control, cells, near)
        by_cell = [rates_in(measured, experiment, control, cell) for cell in cells]
        outcomes = set()
        for rates_of_seed in zip(*by_cell, strict=False):
            kept = (_meets_guarantees(cell, rates, near) for cell, rates in zip(cells, rates_of_seed, strict=True))
            outcomes.add(all(kept))
        seeds_differ = holds is not None and len(outcomes) > 1
        best, _ = cells_kept(measured, experiment, "max-min", cells, near)
        return ClaimVerdict(text, UNDECIDED if seeds_differ else holds, best)

    return judge


def _shares_of_a(measured: Measured, experiment: str, control: str, cell: Cell) -> list[float]:
    """Return A's rate over A's guarantee in a cell: a value per seed."""
    return [a_bps / A_BPS for a_bps, _ in rates_in(measured, experiment, control, cell)]


def starved_receiving(measured: Measured) -> ClaimVerdict:
    """Judge whether B starves A's TCP at one receiver without control."""
    next_to_ten_tcp, next_to_udp = (_shares_of_a(measured, RX, "none", ("1 TCP", kind)) for kind in ("10 TCP", "UDP"))
    if not (next_to_ten_tcp and next_to_udp):
        return UNKNOWN
    text = f"A's TCP has {show(next_to_ten_tcp)} of 645 Mb/s next to 10 TCP, {show(next_to_udp)} next to UDP"
    return ClaimVerdict(
        text,
        all_of(within(next_to_ten_tcp, high=0.5), within(next_to_udp, high=0.05)),
        show(_shares_of_a(measured, RX, "max-min", ("1 TCP", "UDP"))),
    )


def starved_sending(measured: Measured) -> ClaimVerdict:
    """Judge whether A's TCP misses its guarantee at one sender without control."""
    shares_by_kind = {kind: _shares_of_a(measured, TX, "none", ("1 TCP", kind)) for kind in ("10 TCP", "UDP")}
    if not all(shares_by_kind.values()):
        return UNKNOWN
    text = ", ".join(f"{show(part)} next to {kind}" for kind, part in shares_by_kind.items())
    by_seed = zip(*shares_by_kind.values(), strict=False)
    largest_deviations = [max(abs(share - 1) for share in shares) for shares in by_seed]
    holds = above(largest_deviations, 0.2)
    return ClaimVerdict(f"A's TCP has {text}, of 645 Mb/s", holds)


def needs_messages(experiment: str, silent: str, control: str) -> Judge:
    """Judge whether TCP next to UDP needs notifications to keep 80 % of its guarantee.

    ``silent`` and ``control`` are the controls without and with notifications.
    """

    def judge(measured: Measured) -> ClaimVerdict:
        cell = ("1 TCP", "UDP")
        without, with_them = (_shares_of_a(measured, experiment, system, cell) for system in (silent, control))
        if not (without and with_them):
            return UNKNOWN
        text = f"A's TCP has {show(without)} without notifications, {show(with_them)} with, of 645 Mb/s"
        return ClaimVerdict(text, all_of(within(without, high=0.8), within(with_them, 0.8)))

    return judge


def guarantees(experiment: str) -> Judge:
    """Judge the least part of its guarantee that a tenant gets if both send: what an operator may rely on."""

    def worst(measured: Measured, control: str) -> tuple[str, bool | None]:
        """Return the least part of its guarantee that TCP, and UDP, gets in any cell, and whether both suffice."""
        least_shares: dict[str, float] = {}
        for cell in CELLS:
            if "none" in cell:
                continue
            runs = rates_in(measured, experiment, control, cell)
            if not runs:
                return "-", None
            for tenant, (kind, promised_bps) in enumerate(zip(cell, (A_BPS, B_BPS), strict=True)):
                part = min(rates_bps[tenant] for rates_bps in runs) / promised_bps
                name = "UDP" if kind == "UDP" else "TCP"
                least_shares[name] = min(part, least_shares.get(name, part))
        text = ", ".join(f"{name} at least {part:.1%}" for name, part in least_shares.items())
        return text, least_shares["TCP"] >= KEPT and least_shares["UDP"] >= KEPT_OF_UDP

    def judge(measured: Measured) -> ClaimVerdict:
        found, holds = worst(measured, NAME)
        return ClaimVerdict(found, holds, worst(measured, "max-min")[0])

    return judge


def uses_idle_capacity(experiment: str) -> Judge:
    """Judge whether a tenant gets all of the scheduler's capacity while the other is idle."""

    def used_parts(measured: Measured, control: str) -> list[float]:
        cells = [cell for cell in CELLS if "none" in cell]
        return [
            sum(rates_bps) / SCHEDULED_BPS
            for cell in cells
            for rates_bps in rates_in(measured, experiment, control, cell)
        ]

    def judge(measured: Measured) -> ClaimVerdict:
        ours, literal, max_min = (used_parts(measured, control) for control in (NAME, LITERAL, "max-min"))
        if not (ours and literal):
            return UNKNOWN
        text = f"at least {min(ours):.1%} (paper's parameters: {min(literal):.1%})"
        return ClaimVerdict(text, min(ours) >= USED_ALONE, f"at least {min(max_min):.1%}" if max_min else "-")

    return judge
