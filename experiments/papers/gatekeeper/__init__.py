"""Gatekeeper (HPL-2010-151): what it claims, and what this project aims at.

Of its figures only numbers in the text are known. Rates are on the wire: the scheduler gives 860 Mb/s, of which A is
promised 645 and B 215; a fabric that carries less is compared with its part of them. Start with tenant_claims.py.
"""

from __future__ import annotations

from experiments.evaluation.claims import Claim, Paper
from experiments.papers.gatekeeper.job_claims import (
    background,
    best_effort,
    job_takes,
    messages_not_needed,
    time_falls_with_guarantee,
)
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
from experiments.scenarios.gatekeeper.fig5 import CELLS, LITERAL, SILENT
from experiments.scenarios.gatekeeper.hadoop import SHARES

HOST_INTERVALS, EDGE_INTERVALS = 5, 1
METERED_CELLS = tuple(cell for cell in CELLS if "UDP" not in cell)


def _within(ratio: float) -> bool:
    return ratio <= 1.10


CLAIMS = (
    Claim("fig5a-rx", "3.2, fig. 5a", "without control a receiving tenant is starved", starved_receiving),
    Claim("fig5a-tx", "3.2, fig. 5a", "without control a sending tenant is not at its share", starved_sending),
    Claim("fig5b-rx", "3.2, fig. 5b", "receiving: guarantees within 5 %, idle capacity used", as_promised(RX)),
    Claim("fig5b-tx", "3.2, fig. 5b", "sending: the same, scheduled on the host", as_promised(TX)),
    Claim("fig5b-tx-agent", "-", "aim: the same by an agent", as_promised(f"{TX}-agent")),
    Claim(
        "fig5b-tx-meters",
        "-",
        "aim: sending TCP keeps guarantees within 10 % with meters alone",
        as_promised(f"{TX}-meters", cells=METERED_CELLS, near=0.10),
    ),
    Claim("literal", "3.2, fig. 5b", "the same of the paper's law to the letter", as_promised(RX, LITERAL)),
    Claim("literal-160", "3.1", "the same, and its queues of 160 packets", as_promised(f"{RX}-160", LITERAL)),
    Claim("queue-160", "-", "aim: the default keeps them with queues of 160 packets", as_promised(f"{RX}-160")),
    Claim("messages", "5", "without messages UDP starves others before the scheduler", needs_messages),
    Claim(
        "fig6-none",
        "3.3, fig. 6",
        "with best effort a job takes 1.5 times as long as alone (paper: 1.83)",
        best_effort,
    ),
    Claim("fig6-shares", "3.3, fig. 6", "its time falls with its guarantee", time_falls_with_guarantee),
    Claim(
        "fig6-static",
        "3.3, fig. 6",
        "next to TCP it takes at most 10 % longer than with static limits (paper: 8 % at 75 %)",
        job_takes("of static's", _within, "tcp", (50, 75), (NAME, "static")),
    ),
    Claim(
        "fig6-static-25",
        "3.3, fig. 6",
        "and no longer with 25 %",
        job_takes("of static's", lambda ratio: ratio <= 1.0, "tcp", (25,), (NAME, "static")),
    ),
    Claim("fig6-background", "3.3, fig. 6", "the pairs get 1.3 times what static limits give", background("tcp", 1.3)),
    Claim(
        "fig6-quiet",
        "3.3, fig. 6",
        "without messages the job takes as long (3 %), and 1 % of the receivers send any",
        messages_not_needed,
    ),
    Claim(
        "fig7-static",
        "3.3, fig. 7",
        "next to UDP it takes at most 10 % longer than with static limits",
        job_takes("of static's", _within, "udp", SHARES, (NAME, "static")),
    ),
    Claim("fig7-background", "3.3, fig. 7", "the pairs get more than static limits give", background("udp", 1.0)),
    Claim(
        "fig7-messages",
        "3.3, fig. 7",
        "without messages it takes 20 % longer at least",
        job_takes("of its time with messages", lambda ratio: ratio >= 1.2, "udp", SHARES, (SILENT, NAME)),
    ),
    Claim("queue", "3.1", "256 TCP connections drop at most 2 % of the link, fewer from more hosts", queue),
    Claim("quiet", "2", "TCP causes no messages", quiet),
    Claim("quiet-start", "2", "nor do 64 connections that start at once (2 in 10 s)", quiet_start),
    Claim(
        "prompt-host",
        "-",
        "aim: TCP is back within 5 intervals",
        recovers_within("gatekeeper-blast-host", HOST_INTERVALS),
    ),
    Claim(
        "prompt-ten",
        "-",
        "aim: the same next to ten senders",
        recovers_within("gatekeeper-blast-host-ten", HOST_INTERVALS),
    ),
    Claim(
        "prompt-ten-udp",
        "-",
        "aim: the same where the victim sends UDP, which waits for no timer",
        recovers_within("gatekeeper-blast-host-ten-udp", HOST_INTERVALS),
    ),
    Claim("prompt-edge", "-", "aim: at the edge within one", recovers_within("gatekeeper-blast-edge", EDGE_INTERVALS)),
    Claim("beat-host", "-", "to beat: as soon as max-min, 2", recovers_within("gatekeeper-blast-host", 2)),
    Claim("beat-edge", "-", "to beat: the same at the edge, 0", recovers_within("gatekeeper-blast-edge", 0)),
    Claim(
        "beat-guarantees",
        "-",
        "to beat, receiving: TCP keeps 99 % of its guarantee and UDP 97 %, in every cell",
        guarantees(RX),
    ),
    Claim("beat-guarantees-tx", "-", "to beat: the same, sending", guarantees(TX)),
    Claim("beat-use", "-", "to beat: one alone has 99 % of what the scheduler gives", uses_idle_capacity(RX)),
    Claim("beat-use-160", "-", "to beat: the same, queues of 160 packets", uses_idle_capacity(f"{RX}-160")),
    Claim("beat-use-edge", "-", "to beat: TCP alone has 99 % of the link at the edge, without headroom", use_of_edge),
    Claim("beat-mods", "-", "to beat: at most 8 changes of a meter a second", meter_mods),
)

paper = Paper(NAME, "Gatekeeper", CLAIMS, best="max-min", best_title="max-min", tables=TABLES)
