"""Gatekeeper (HPL-2010-151): its claims, and the aims of this project.

Only numbers in the paper's text are known, not its curves. Rates are those on the wire: the scheduler gives 860 Mb/s,
of which tenant A is guaranteed 645 and tenant B 215. On a fabric with lower rates these numbers are scaled down. Start
with tenant_claims.py.
"""

from __future__ import annotations

import math

from experiments.evaluation.claims import Aim, Claim, Judge, Paper, Published
from experiments.papers.gatekeeper.job_claims import background, best_effort, job_takes, messages_not_needed, time_falls
from experiments.papers.gatekeeper.reaction_claims import (
    meter_mods,
    queue,
    quiet,
    quiet_start,
    recovers_within,
    use_of_edge,
)
from experiments.papers.gatekeeper.result_tables import TABLES
from experiments.papers.gatekeeper.tenant_claims import (
    NAME,
    RX,
    TX,
    as_promised,
    guarantees,
    needs_messages,
    starved_receiving,
    starved_sending,
    uses_idle_capacity,
)
from experiments.scenarios.gatekeeper import fig5
from experiments.scenarios.gatekeeper.fig5 import LITERAL, PUBLISHED, PUBLISHED_SILENT, SILENT
from experiments.scenarios.gatekeeper.hadoop import APART, HIGHER, SHARES

HOST_INTERVALS, EDGE_INTERVALS = 5, 1  # until a guarantee is regained, by the place of the scheduler
METERED_CELLS = tuple(cell for cell in fig5.CELLS if "UDP" not in cell)


FORM = "paper's parameters, samples of 10 ms averaged over 100 ms"
FORM_160 = f"{FORM}, queues of 160 packets"
RX_10_MS = f"{RX}-10ms"
DEEP = "queues of 30 ms"


def _job(title: str, key: str, kind: str, shares: tuple[int, ...], maximum: float) -> Claim:
    """Return a claim that the job takes at most ``maximum`` times as long as under static limits.

    It is judged at each guarantee in ``shares`` (percent), with the traffic ``kind`` next to the job.
    """
    label = "job time relative to static limits"
    ours, published = (
        job_takes(label, (0.0, maximum), kind, shares, (system, "static")) for system in (NAME, PUBLISHED)
    )
    figure = "6" if kind == "tcp" else "7"
    return Claim(key, f"3.3, fig. {figure}", title, ours, Published(FORM, published))


def _without_messages(silent: str, control: str, kind: str = "udp", shares: tuple[int, ...] = SHARES) -> Judge:
    """Judge whether the job takes at least 1.2 times as long without notifications.

    ``silent`` and ``control`` are the controls without and with notifications.
    """
    return job_takes("job time relative to that with notifications", (1.2, math.inf), kind, shares, (silent, control))


def _apart(silent: str, control: str) -> tuple[tuple[str, Judge], ...]:
    """Return a change, (name, judge), to ``_without_messages``: UDP comes from hosts that take no part in the job."""
    return (("UDP from hosts without the job, guarantee of 50 %", _without_messages(silent, control, APART, (50,))),)


def _at_75(control: str) -> tuple[tuple[str, Judge], ...]:
    """Return a change, (name, judge), to the claim on the background rate: only a guarantee of 75 %."""
    return (("guarantee of 75 % alone", background("tcp", 1.3, control, (75,))),)


def _higher(silent: str, control: str) -> tuple[tuple[str, Judge], ...]:
    """Return a change, (name, judge), to ``messages_not_needed``: the law has the parameter HIGHER."""
    name = f"`{HIGHER}`, guarantee of 25 %"
    return ((name, messages_not_needed(silent, f"{control} {HIGHER}", (25,))),)


_CELLS_DECIDE = (
    *((name, as_promised(f"{RX_10_MS}-udp", control, fig5.UDP_CELLS)) for name, control in fig5.SWEPT.items()),
    *((name, as_promised(RX_10_MS, control)) for name, control in fig5.DEVIATIONS.items()),
    (DEEP, as_promised(f"{RX_10_MS}-deep", PUBLISHED)),
    (f"{fig5.DEFAULT_LAW}, {DEEP}", as_promised(f"{RX_10_MS}-deep", fig5.DEVIATIONS[fig5.DEFAULT_LAW])),
)

CLAIMS = (
    Claim(
        "fig5a-rx",
        "3.2, fig. 5a",
        "Figure 5, receiving, without control: one TCP flow of A gets less than 50 % of its guarantee next to ten TCP "
        "flows, less than 5 % next to UDP",
        starved_receiving,
    ),
    Claim(
        "fig5a-tx",
        "3.2, fig. 5a",
        "Figure 5, sending, without control: one TCP flow of A deviates from its guarantee by more than 20 % next to "
        "ten TCP flows or UDP",
        starved_sending,
    ),
    Claim(
        "fig5b-rx",
        "3.2, fig. 5b",
        "Figure 5, receiving: guarantees within 5 % and idle capacity used, in all 15 cells",
        as_promised(RX),
        Published(FORM_160, as_promised(RX_10_MS, PUBLISHED), decides=_CELLS_DECIDE),
    ),
    Claim(
        "fig5b-tx",
        "3.2, fig. 5b",
        "Figure 5, sending, scheduler on the host: guarantees within 5 % and idle capacity used, in all 15 cells",
        as_promised(TX),
        Published(FORM, as_promised(f"{TX}-10ms", PUBLISHED)),
    ),
    Claim(
        "messages",
        "5",
        "Figure 5, receiving: without notifications TCP next to UDP gets less than 80 % of its guarantee, with them "
        "at least 80 %",
        needs_messages(RX, SILENT, NAME),
        Published(FORM_160, needs_messages(RX_10_MS, PUBLISHED_SILENT, PUBLISHED)),
    ),
    Claim(
        "fig6-none",
        "3.3, fig. 6",
        "Figure 6, without control: a job next to TCP takes at least 1.5 times as long as alone (paper: 1.83)",
        best_effort,
    ),
    Claim(
        "fig6-shares",
        "3.3, fig. 6",
        "Figure 6: the job's time next to TCP falls as its guarantee rises from 25 to 50 to 75 %",
        time_falls,
        Published(FORM, lambda measured: time_falls(measured, PUBLISHED)),
    ),
    _job(
        "Figure 6, guarantees of 50 and 75 %: the job next to TCP takes at most 10 % longer than with static limits "
        "(paper: 8 % at 75 %)",
        "fig6-static",
        "tcp",
        (50, 75),
        1.10,
    ),
    _job(
        "Figure 6, guarantee of 25 %: the job next to TCP takes no longer than with static limits",
        "fig6-static-25",
        "tcp",
        (25,),
        1.0,
    ),
    Claim(
        "fig6-background",
        "3.3, fig. 6",
        "Figure 6: the TCP pairs next to the job get more than 1.3 times their rate under static limits",
        background("tcp", 1.3),
        Published(FORM, background("tcp", 1.3, PUBLISHED), decides=_at_75(PUBLISHED)),
        _at_75(NAME),
    ),
    Claim(
        "fig6-quiet",
        "3.3, fig. 6",
        "Figure 6: without notifications the job's time changes by at most 3 %; with them at most 1 % of receivers "
        "notify",
        messages_not_needed(SILENT, NAME),
        Published(FORM, messages_not_needed(PUBLISHED_SILENT, PUBLISHED), decides=_higher(PUBLISHED_SILENT, PUBLISHED)),
        _higher(SILENT, NAME),
    ),
    _job(
        "Figure 7: the job next to UDP takes at most 10 % longer than with static limits (25, 50, 75 %)",
        "fig7-static",
        "udp",
        SHARES,
        1.10,
    ),
    Claim(
        "fig7-background",
        "3.3, fig. 7",
        "Figure 7: the UDP pairs next to the job get more than under static limits",
        background("udp", 1.0),
        Published(FORM, background("udp", 1.0, PUBLISHED)),
    ),
    Claim(
        "fig7-messages",
        "3.3, fig. 7",
        "Figure 7: without notifications the job next to UDP takes at least 20 % longer",
        _without_messages(SILENT, NAME),
        Published(FORM, _without_messages(PUBLISHED_SILENT, PUBLISHED), decides=_apart(PUBLISHED_SILENT, PUBLISHED)),
        _apart(SILENT, NAME),
    ),
    Claim(
        "queue",
        "3.1",
        "256 TCP connections to one VN: queue drops of at most 2 % of the link, fewer when spread over more hosts",
        queue(NAME),
        Published(FORM_160, queue(PUBLISHED), decides=(("the first second left out", queue(PUBLISHED, "settled")),)),
        (("the first second left out", queue(NAME, "settled")),),
    ),
    Claim("quiet", "2", "Figure 5, TCP cells: no notifications", quiet(NAME), Published(FORM, quiet(PUBLISHED))),
    Claim(
        "quiet-start",
        "2",
        "64 TCP connections started at once: at most 2 notifications in 10 s",
        quiet_start(NAME),
        Published(FORM, quiet_start(PUBLISHED)),
    ),
)

_BEHIND = "Scheduler behind the core: TCP regains its guarantee within"
_UNTIL_THERE = "Target set by max-min"
AIMS = (
    Aim(
        "literal",
        "Figure 5, receiving, paper's parameters at 55 ms: guarantees kept and idle capacity used, in all 15 cells",
        as_promised(RX, LITERAL),
    ),
    Aim(
        "literal-160",
        "Figure 5, receiving, paper's parameters at 55 ms, queues of 160 packets: guarantees kept in all 15 cells",
        as_promised(f"{RX}-160", LITERAL),
    ),
    Aim(
        "fig5b-tx-agent",
        "Figure 5, sending, scheduled by the host agent: guarantees within 5 % and idle capacity used, in all 15 cells",
        as_promised(f"{TX}-agent"),
    ),
    Aim(
        "fig5b-tx-meters",
        "Figure 5, sending, switch meters only: guarantees within 10 % in the 8 cells without UDP",
        as_promised(f"{TX}-meters", cells=METERED_CELLS, near=0.10),
    ),
    Aim(
        "queue-160",
        "Figure 5, receiving, default parameters, queues of 160 packets: guarantees within 5 %, in all 15 cells",
        as_promised(f"{RX}-160"),
    ),
    Aim(
        "prompt-host",
        f"{_BEHIND} 5 intervals after one host's UDP blast",
        recovers_within("gatekeeper-blast-host", HOST_INTERVALS),
    ),
    Aim(
        "prompt-ten",
        f"{_BEHIND} 5 intervals after UDP blasts of ten hosts",
        recovers_within("gatekeeper-blast-host-ten", HOST_INTERVALS),
    ),
    Aim(
        "prompt-ten-udp",
        "Scheduler behind the core: a UDP victim regains its guarantee within 5 intervals after ten UDP blasts",
        recovers_within("gatekeeper-blast-host-ten-udp", HOST_INTERVALS),
    ),
    Aim(
        "prompt-edge",
        "Scheduler at the edge port: TCP regains its guarantee within 1 interval after a UDP blast",
        recovers_within("gatekeeper-blast-edge", EDGE_INTERVALS),
    ),
    Aim(
        "beat-host",
        f"{_UNTIL_THERE}: TCP regains its guarantee within 2 intervals, scheduler behind the core",
        recovers_within("gatekeeper-blast-host", 2),
    ),
    Aim(
        "beat-edge",
        f"{_UNTIL_THERE}: TCP regains its guarantee within 0 intervals, scheduler at the edge port",
        recovers_within("gatekeeper-blast-edge", 0),
    ),
    Aim(
        "beat-guarantees",
        "Target, figure 5, receiving: TCP keeps 99 % and UDP 97 % of its guarantee in every cell in which both send",
        guarantees(RX),
    ),
    Aim(
        "beat-guarantees-tx",
        "Target, figure 5, sending: TCP keeps 99 % and UDP 97 % of its guarantee in every cell in which both send",
        guarantees(TX),
    ),
    Aim(
        "beat-use",
        "Target, figure 5, receiving: a tenant alone gets 99 % of the scheduled capacity",
        uses_idle_capacity(RX),
    ),
    Aim(
        "beat-use-160",
        "Target, figure 5, receiving, queues of 160 packets: a tenant alone gets 99 % of the scheduled capacity",
        uses_idle_capacity(f"{RX}-160"),
    ),
    Aim("beat-use-edge", "Target: TCP alone gets 99 % of an edge link without headroom", use_of_edge),
    Aim("beat-mods", "Target: at most 8 meter-mods per second and pair", meter_mods),
)

paper = Paper(NAME, "Gatekeeper", CLAIMS, AIMS, best="max-min", best_title="max-min", tables=TABLES)
