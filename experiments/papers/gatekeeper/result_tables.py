"""The rates of every cell under every control, side by side."""

from __future__ import annotations

from experiments.evaluation.claims import Measured, ResultTable, show
from experiments.papers.gatekeeper.job_claims import background_bps, job_times_s
from experiments.papers.gatekeeper.tenant_claims import NAME, RX, TX, rates_in
from experiments.scenarios.gatekeeper import fig5
from experiments.scenarios.gatekeeper.fig5 import CELLS, LITERAL, PUBLISHED, PUBLISHED_SILENT, SILENT
from experiments.scenarios.gatekeeper.hadoop import KINDS, SHARES, name_of


def _cells_of(experiment: str, controls: tuple[str, ...]) -> ResultTable:
    """Return the table of figure 5 in one experiment: a row per cell, a column per control that ran in all cells."""

    def rows(measured: Measured) -> list[list[str]]:
        # By control, then by the number of the cell: (rate of A, rate of B) in bit/s, a pair per seed.
        all_rates = {control: [rates_in(measured, experiment, control, cell) for cell in CELLS] for control in controls}
        rates_by_control = {control: by_cell for control, by_cell in all_rates.items() if all(by_cell)}
        table = [["A", "B", *(f"`{control}`" for control in rates_by_control)]]
        for number, cell in enumerate(CELLS):
            by_tenant = [zip(*by_cell[number], strict=True) for by_cell in rates_by_control.values()]
            # By control: the mean over seeds of A's rate and of B's rate.
            means_mbps = [[sum(rates) / len(rates) / 1e6 for rates in tenants] for tenants in by_tenant]
            table.append([*cell, *(f"{a:.0f} + {b:.0f}" for a, b in means_mbps)])
        return table if rates_by_control else []

    titles = {RX: "receiving", f"{RX}-160": "receiving, queues of 160 packets"}
    titles |= {f"{RX}-10ms": "receiving, samples of 10 ms, queues of 160 packets"}
    titles |= {f"{RX}-10ms-deep": "receiving, samples of 10 ms"}
    titles |= {TX: "sending, scheduled on the host", f"{TX}-meters": "sending, with meters alone"}
    return ResultTable(f"Figure 5, {titles[experiment]}: A + B, Mb/s of 645 + 215", rows)


def _jobs(measured: Measured) -> list[list[str]]:
    """Return the table of job times by background and share, headings first; [] without runs."""
    controls = ("none", "static", NAME, SILENT, PUBLISHED, PUBLISHED_SILENT, "max-min")
    table = [["next to", "share", *(f"`{control}`" for control in controls)]]
    for kind in KINDS:
        for share in SHARES:
            cells = []
            for control in controls:
                times_s = list(job_times_s(measured, name_of(kind, share, control), control).values())
                mbps = [rate_bps / 1e6 for rate_bps in background_bps(measured, kind, share, control).values()]
                shown = f"{show(times_s, 'count')} s, {sum(mbps) / len(mbps):.0f} Mb/s" if mbps else "not done"
                cells.append(shown if times_s else "-")
            table.append([kind.upper(), f"{share} %", *cells])
    return table if any(cell != "-" for row in table[1:] for cell in row[2:]) else []


TABLES = (
    _cells_of(RX, ("none", "static", NAME, LITERAL, SILENT, "max-min")),
    _cells_of(f"{RX}-160", (NAME, LITERAL, "max-min")),
    _cells_of(f"{RX}-10ms", (PUBLISHED, PUBLISHED_SILENT, *fig5.DEVIATIONS.values())),
    _cells_of(f"{RX}-10ms-deep", (PUBLISHED, fig5.DEVIATIONS[fig5.DEFAULT_LAW])),
    _cells_of(TX, ("none", NAME, LITERAL, "max-min")),
    _cells_of(f"{TX}-meters", (NAME, "max-min")),
    ResultTable("Figures 6 and 7: the job's time, and what a pair gets until then", _jobs),
)
