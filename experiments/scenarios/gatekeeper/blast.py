"""Recovery of a tenant's TCP after UDP of another tenant begins: of one PN or ten, scheduled on hosts or at the edge.

Ten simultaneous blasts lose all of TCP's packets, and TCP waits for its timer. A UDP victim does not wait.
"""

from typing import Any

from experiments.scenarios.gatekeeper.fig5 import A_BPS, B_BPS, LINK_BPS, LITERAL, SCHEDULED_BPS
from experiments.scenarios.limits import Limits
from experiments.scenarios.scenario import Scenario
from experiments.scenarios.traffic import Source

BEFORE, DURING = "TCP alone", "UDP blast"
WARMUP_S, BLAST_S = 3.0, 6.0


def _blast(name: str, title: str, pns: int, rate_bps: int, kind: str = "tcp", **more: Any) -> Scenario:
    """Return the run: PN 1 sends A's TCP to the last PN, or UDP at A's guarantee, and the others B's UDP at link rate.

    Ten blasts are for the model: on Open vSwitch they would use all of two processors, and rounds would be missed.
    """
    end_s = WARMUP_S + BLAST_S
    limits = {1: (A_BPS, A_BPS), 2: (B_BPS, B_BPS)}
    blast = (WARMUP_S, end_s)
    return Scenario(
        name,
        title,
        pns=pns,
        link_rate_bps=LINK_BPS,
        limits={vid: Limits(*both, rate_bps, rate_bps) for vid, both in limits.items()},
        sources=(
            Source(1, 1, pns, kind, A_BPS if kind == "udp" else None),
            *(Source(2, number, pns, "udp", LINK_BPS, spans=(blast,)) for number in range(2, pns)),
        ),
        duration_s=end_s,
        phases={BEFORE: (WARMUP_S / 2, WARMUP_S), DURING: blast},
        isolation=(BEFORE, DURING),
        promise="ceilings",
        controls=("none", "gatekeeper", LITERAL, "max-min"),
        emulated_controls=("gatekeeper", LITERAL) if pns == 3 else (),
        **more,
    )


def _hosts(pns: int) -> dict[str, Any]:
    """Return the options of a fabric of ``pns`` PNs whose last PN receives through the scheduler, behind the core."""
    options = {"access_rates_bps": {pns: SCHEDULED_BPS}}
    return {"topology": "gatekeeper-hosts", "topology_options": options, "pns": pns, "rate_bps": SCHEDULED_BPS}


scenarios = (
    _blast("gatekeeper-blast-host", "UDP of one PN begins; scheduler behind the core", **_hosts(3)),
    _blast("gatekeeper-blast-host-ten", "UDP of ten PNs begins; scheduler behind the core", **_hosts(12)),
    _blast("gatekeeper-blast-host-ten-udp", "the same, and the victim sends UDP", kind="udp", **_hosts(12)),
    _blast("gatekeeper-blast-edge", "UDP of one PN begins; scheduler at the edge port", pns=3, rate_bps=LINK_BPS),
)
