"""All systems on the same traffic: who keeps which promise, how fast, at what use of the link, at what cost.

Not a paper: what none of the four has. It has no claims, only tables. What each figure says of itself is its promise.
"""

from __future__ import annotations

from collections.abc import Callable

from experiments.evaluation.claims import Measured, Paper, ResultTable, show
from experiments.evaluation.plots import title_of
from experiments.papers.gatekeeper.tenant_claims import cells_kept
from experiments.scenarios.comparison import SYSTEMS, dets, gatekeeper, seawall
from experiments.scenarios.scenario import INTERVAL_S
from experiments.scenarios.seawall import LINK_BPS

SCENARIOS = (*dets.scenarios, *seawall.scenarios, *gatekeeper.scenarios)
FIG5, FIG6, FIG9, FIG10, CELLS = (one.name for one in SCENARIOS)
KEPT = 0.95
NEAR = 0.10  # of a half; Seawall's claims have 0.05 of the link
HALF_BPS = LINK_BPS / 2
DURATION_S = {one.name: one.duration_s for one in SCENARIOS}

Row = tuple[str, bool | None, str, str]
"""What a system gave, whether it keeps the promise, how fast, and what of the link it used."""


def _victim(measured: Measured, control: str) -> Row:
    runs = measured.runs(FIG5, control)
    kept = [run["victim_goodput_bps_during"] / run["victim_goodput_limit_bps"] for run in runs]
    back = [run["victim_recovery_intervals"] for run in runs]
    fast = "never" if None in back else f"{show(back, 'count')} intervals"
    return (
        show(kept),
        min(kept) >= KEPT if kept else None,
        fast if runs else "-",
        measured.shown(FIG5, control, "use_of_oracle"),
    )


def _bursts(measured: Measured, control: str) -> Row:
    found = list(measured.values(FIG6, control, "jain_backlogged").values())
    longest = measured.shown(FIG6, control, "missed_longest", form="count")
    use = measured.shown(FIG6, control, "use_of_oracle")
    return show(found, "plain"), min(found) >= KEPT if found else None, f"{longest} intervals", use


def _half(experiment: str) -> Callable[[Measured, str], Row]:
    def row(measured: Measured, control: str) -> Row:
        runs = list(measured.values(experiment, control, "delivered_bps_by_sender", seawall.SETTLED).values())
        first = [one[0] / measured.scale / HALF_BPS for one in runs]
        kept = all(abs(share - 1.0) <= NEAR for share in first) if first else None
        longest = measured.shown(experiment, control, "missed_longest", form="count")
        return (
            show(first),
            kept,
            f"{longest} intervals",
            show([sum(one) / measured.scale / LINK_BPS for one in runs]),
        )

    return row


def _cells(measured: Measured, control: str) -> Row:
    text, kept = cells_kept(measured, CELLS, control)
    longest = measured.shown(CELLS, control, "missed_longest", form="count")
    return text, kept, f"{longest} intervals", measured.shown(CELLS, control, "use_of_oracle")


TRAFFIC = (
    (FIG5, "DETS, figure 5", "TCP of ten senders keeps 95 % of its limit while UDP floods", "TCP, of its limit",
     "back at 95 % after", _victim),
    (FIG6, "DETS, figure 6", "ten senders of bursts share fairly: Jain's index at least 0.95", "Jain, backlogged",
     "longest below 95 % of the oracle's", _bursts),
    (FIG9, "Seawall, figure 9", "TCP next to a flood of UDP has half of the link, within 10 %", "TCP, of half",
     "longest below 95 % of the oracle's", _half(FIG9)),
    (FIG10, "Seawall, figure 10", "TCP to one receiver next to eight of another VLAN has half, within 10 %",
     "the one, of half", "longest below 95 % of the oracle's", _half(FIG10)),
    (CELLS, "Gatekeeper, figure 5", "two tenants, silent or TCP or UDP: what is guaranteed, and all of the link",
     "as promised", "longest below 95 % of the oracle's", _cells),
)  # fmt: skip


def _rows(
    name: str, found: str, fast: str, row: Callable[[Measured, str], Row]
) -> Callable[[Measured], list[list[str]]]:
    """Return what makes the table of one traffic: a heading, and a row for each system that was run."""

    def rows(measured: Measured) -> list[list[str]]:
        run = [control for control in SYSTEMS if measured.runs(name, control)]
        heads = ["system", found, "kept", fast, "use", "meter-mods an interval", "meters"]
        return [heads, *(_row(measured, name, control, row) for control in run)] if run else []

    return rows


def _row(measured: Measured, name: str, control: str, row: Callable[[Measured, str], Row]) -> list[str]:
    found, kept, fast, use = row(measured, control)
    mods = [one * INTERVAL_S / DURATION_S[name] for one in measured.noted(name, control, "meter_mods")]
    mods += [one * INTERVAL_S for one in measured.noted(name, control, "set_meters_per_s")]  # in real time
    meters = show(measured.noted(name, control, "meters"), "count").removesuffix(".0")
    said = {True: "yes", False: "**no**", None: "-"}[kept]
    return [f"{title_of(control.partition(' ')[0])} (`{control}`)", found, said, fast, use, show(mods, "count"), meters]


NOTE = (
    "Every system has the same limits. `max-min`, `gatekeeper` and `seawall` lend what is idle, up to ceilings; the "
    "others keep limits, so that where a figure asks for all of the link (Gatekeeper's) they cannot have it. Seawall "
    "shares by weights, all equal here, and not by limits."
)

TABLES = tuple(
    ResultTable(f"{figure}: {promise}", _rows(name, found, fast, row))
    for name, figure, promise, found, fast, row in TRAFFIC
)

paper = Paper("comparison", "All systems on the same traffic", (), tables=TABLES, note=NOTE, page="comparison.md")
