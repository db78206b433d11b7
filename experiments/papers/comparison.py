"""All systems on the same traffic: whether each meets the criterion, its reaction time, its link use and its cost.

No paper has this comparison. It has no claims, only tables, in two blocks: without borrowing, and with it. Each table
has the traffic of a paper's figure; its criterion is what that paper promises there. A system meets the criterion if
the whole 95 % interval of its seeds' mean does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from experiments.evaluation.claims import UNDECIDED, Measured, Outcome, Paper, ResultTable, all_of, show, within
from experiments.scenarios.comparison import ALONE, BORROWERS, LENDING, SYSTEMS, control_of, dets, gatekeeper, hygenicc
from experiments.scenarios.comparison import seawall as seawall_traffic
from experiments.scenarios.gatekeeper.fig5 import A_BPS, B_BPS, SCHEDULED_BPS, cell_name
from experiments.scenarios.hygenicc.fig2 import BOTH
from experiments.scenarios.scenario import INTERVAL_S, Scenario
from experiments.scenarios.seawall import LINK_BPS

SCENARIOS: dict[str, Scenario] = {
    compared.name: compared for module in (dets, gatekeeper, seawall_traffic, hygenicc) for compared in module.scenarios
}
KEPT = 0.95
LATE_S = 0.050  # 99 % of the web answers are to arrive within this time at the scale 1, where a link has 1 Gb/s
NEAR = 0.10  # of a half; Seawall's claims have 0.05 of the link
HALF_BPS = LINK_BPS / 2
SETTLED = seawall_traffic.SETTLED
EIGHT = 8  # senders that share the link
INSIDE_A_TENANT = ("Gatekeeper", "Gatekeeper, as published")
"""Systems that promise nothing to the senders of one tenant."""

Row = tuple[list[float], str, Outcome, str]
"""A system's values, one per seed, their text, whether it meets the criterion, and its reaction time."""
Judge = Callable[[Measured, str, str], Row]
"""From the runs, the name of an experiment, and a control."""


def _victim(measured: Measured, name: str, control: str) -> Row:
    """Judge the victim's TCP goodput during the UDP blast, as a part of its limit; the reaction is its recovery."""
    runs = measured.runs(name, control)
    shares = [run["victim_goodput_bps_during"] / run["victim_goodput_limit_bps"] for run in runs]
    recoveries = [run["victim_recovery_intervals"] for run in runs]
    recovery_text = "never" if None in recoveries else show(recoveries, "count")
    return shares, show(shares), within(shares, KEPT), recovery_text


def _bursts(measured: Measured, name: str, control: str) -> Row:
    """Judge Jain's index of the backlogged senders."""
    indices = list(measured.values(name, control, "jain_backlogged").values())
    return indices, show(indices, "plain"), within(indices, KEPT), _longest_miss(measured, name, control)


def _half(measured: Measured, name: str, control: str) -> Row:
    """Judge whether the first sender's rate is half of the link, within NEAR of that half."""
    rates_by_seed = measured.values(name, control, "delivered_bps_by_sender", SETTLED).values()
    parts = [rates_bps[0] / measured.scale / HALF_BPS for rates_bps in rates_by_seed]
    return parts, show(parts), within(parts, 1 - NEAR, 1 + NEAR), _longest_miss(measured, name, control)


def _eighth(measured: Measured, name: str, control: str) -> Row:
    """Judge whether the last sender's rate is an eighth of the link, within 15 % of that eighth."""
    rates_by_seed = measured.values(name, control, "delivered_bps_by_sender", BOTH).values()
    parts = [EIGHT * rates_bps[-1] / measured.scale / LINK_BPS for rates_bps in rates_by_seed]
    return parts, show(parts), within(parts, 0.85, 1.15), _longest_miss(measured, name, control)


def _web(measured: Measured, name: str, control: str) -> Row:
    """Judge web requests: the part that is answered, and whether 99 % are answered within LATE_S over the scale.

    The reaction time is the latency in ms, mean and 99th percentile. On a slower fabric there are fewer requests for
    answers of the same sizes: each takes longer to send by the scale.
    """
    scenario = SCENARIOS[name].scaled(measured.scale)
    answers_by_seed = measured.values(name, control, "answers_per_s", SETTLED)
    answered_parts = [answer / _requests_per_s(scenario, seed) for seed, answer in answers_by_seed.items()]
    mean, tail = (
        show([1e3 * seconds for seconds in measured.values(name, control, key, SETTLED).values()], "count")
        for key in ("latency_mean_s", "latency_p99_s")
    )
    tails_s = measured.values(name, control, "latency_p99_s", SETTLED).values()
    prompt_seeds = [latency_s <= LATE_S / measured.scale for latency_s in tails_s]
    in_time = True if prompt_seeds and all(prompt_seeds) else UNDECIDED if any(prompt_seeds) else False
    holds = all_of(within(answered_parts, KEPT), in_time) if answered_parts else None
    return answered_parts, show(answered_parts), holds, f"{mean}, {tail}"


def _requests_per_s(scenario: Scenario, seed: int) -> float:
    """Return the number of answers per second that sessions beginning in the settled phase request."""
    begin_s, end_s = scenario.phases[SETTLED]
    requests = sum(len(answers) for at_s, answers in scenario.sessions(seed)[0] if begin_s <= at_s < end_s)
    return requests / (end_s - begin_s)


def _cells(chosen: Sequence[tuple[str, str]]) -> Judge:
    """Judge the lowest rate over guarantee of a tenant in ``chosen`` cells, (what A sends, what B sends) each.

    A tenant alone is due the whole scheduled capacity.
    """

    def row(measured: Measured, name: str, control: str) -> Row:
        """Judge a system by the worst cell of each seed."""
        least_by_seed: dict[int, float] = {}
        for cell in chosen:
            rates_by_seed = measured.values(name, control, "received_bps_by_receiver", cell_name(*cell))
            for seed, rates_bps in rates_by_seed.items():
                due = zip(rates_bps, (A_BPS, B_BPS), strict=True)  # A is the first receiver: it sends in the first cell
                shares = [rate_bps / guarantee_bps / measured.scale for rate_bps, guarantee_bps in due]
                least = min(shares) if "none" not in cell else sum(rates_bps) / SCHEDULED_BPS / measured.scale
                least_by_seed[seed] = min(least_by_seed.get(seed, least), least)
        least_shares = list(least_by_seed.values())
        return least_shares, show(least_shares), within(least_shares, KEPT), _longest_miss(measured, name, control)

    return row


def _longest_miss(measured: Measured, name: str, control: str) -> str:
    """Return the most intervals in a row in which a receiver misses 95 % of the oracle's rate, as text."""
    return measured.shown(name, control, "missed_longest", form="count")


TRAFFIC: tuple[tuple[str, str, str, str, Judge | None], ...] = (
    (
        "dets-fig5",
        "DETS, figure 5",
        "the VLAN of ten TCP senders gets 95 % of its limit during the UDP blast of another VLAN",
        "TCP goodput / limit",
        _victim,
    ),
    (
        "dets-fig6",
        "DETS, figure 6",
        "Jain's index of ten senders of bursts is at least 0.95",
        "Jain's index, backlogged",
        _bursts,
    ),
    (
        "gatekeeper-fig5",
        "Gatekeeper, figure 5",
        "each of two tenants gets 95 % of its guarantee, a tenant alone 95 % of the scheduled capacity",
        "lowest rate / guarantee",
        None,
    ),
    (
        "seawall-fig9",
        "Seawall, figure 9",
        "TCP gets half of the link (+-10 %) next to another tenant's UDP at full rate",
        "TCP rate / half",
        _half,
    ),
    (
        "seawall-fig10",
        "Seawall, figure 10",
        "a tenant with one TCP receiver gets half of the link (+-10 %) next to a tenant with eight",
        "single receiver / half",
        _half,
    ),
    (
        "seawall-fig11",
        "Seawall, figure 11",
        "95 % of the web answers arrive, 99 % within 50 ms (1 s at 50 Mb/s), next to another tenant's UDP at full rate",
        "web answers / requests",
        _web,
    ),
    (
        "hygenicc-fig3",
        "HyGenICC, figure 3",
        "TCP gets an eighth of the link (+-15 %) next to seven UDP senders of its tenant",
        "TCP rate / eighth",
        _eighth,
    ),
)
"""By traffic: the middle of its experiments' names, its figure, the criterion, the heading of the values by which a
system is judged, and the judge (None: ``_cells``)."""
BLOCKS = {ALONE: "No borrowing", LENDING: "Borrowing"}
MET, USE, MODS, CPU = "criterion met", "link use / oracle's", "meter-mods per interval", "controller CPU, ms per s"
"""Heads of columns that every table has."""


def _rows(name: str, value_head: str, judge: Judge, systems: Iterable[str]) -> Callable[[Measured], list[list[str]]]:
    """Return a function that makes the table of one experiment: a heading, and a row for each system that was run.

    Without runs the table is [].
    """

    def rows(measured: Measured) -> list[list[str]]:
        control_by_system = {system: control_of(system, SCENARIOS[name]) for system in systems}
        ran = [(system, control) for system, control in control_by_system.items() if measured.runs(name, control)]
        heads = ["system", value_head, MET, SPEEDS.get(judge, LONGEST), USE, MODS, "meters", CPU]
        return [heads, *(_row(measured, name, system, control, judge) for system, control in ran)] if ran else []

    return rows


SPEEDS: dict[Judge, str] = {_victim: "intervals until 95 %", _web: "latency, mean and 99th percentile, ms"}
LONGEST = "longest below 95 % of the oracle's rate, intervals"
"""The headings of the reaction time: by judge, and for all other judges."""


def _row(measured: Measured, name: str, system: str, control: str, judge: Judge) -> list[str]:
    """Return the row of one system, which ran as ``control``: value, criterion, reaction time, link use and costs."""
    values, values_text, holds, reaction = judge(measured, name, control)
    if name.startswith(INSIDE) and system in INSIDE_A_TENANT:
        holds = None
    duration_s = SCENARIOS[name].duration_s
    mods_per_interval = [count * INTERVAL_S / duration_s for count in measured.noted(name, control, "meter_mods")]
    meters = ", ".join(map(str, sorted(set(measured.noted(name, control, "meters"))))) or "-"
    cpu = show([1e3 * cpu_s / duration_s for cpu_s in measured.noted(name, control, "controller_cpu_s")], "count")
    verdict = {True: "yes", False: "**no**", UNDECIDED: "undecided", None: "-"}[holds if values else None]
    use = measured.shown(name, control, "use_of_oracle")
    return [system, values_text, verdict, reaction, use, show(mods_per_interval, "count"), meters, cpu]


INSIDE = ("comparison-dets-fig6", "comparison-hygenicc-fig3")
"""Experiments with the senders of one tenant begin with these."""

NOTE = (
    "*No borrowing*: a VN's ceiling is its limit. *Borrowing*: ceilings are the link's rate; systems that never borrow "
    "are not run again. Limits are what all VNs can keep, and weights are in proportion to them. *As published* is the "
    "paper's law with its own constants, scaled to intervals of 55 ms. Gatekeeper promises nothing to the senders of "
    "one tenant. The receiver's queue helps every system in figure 5 of DETS, and wherever there is no borrowing: so "
    "Open vSwitch runs only what borrows."
)


def _tables() -> Iterable[ResultTable]:
    """Yield the table of each traffic without borrowing, then those with borrowing."""
    for block, block_title in BLOCKS.items():
        for traffic, figure, criterion, value_head, judge in TRAFFIC:
            name = f"comparison-{traffic}-{block}"
            if name in SCENARIOS:
                cells = gatekeeper.BOTH if block == ALONE else (*gatekeeper.BOTH, *gatekeeper.ONE)
                systems = tuple(SYSTEMS) if block == ALONE else BORROWERS
                title = f"{block_title}: {figure}: {criterion}"
                yield ResultTable(title, _rows(name, value_head, judge or _cells(cells), systems))


TABLES = tuple(_tables())

paper = Paper("comparison", "All systems on the same traffic", (), tables=TABLES, note=NOTE, page="comparison.md")
