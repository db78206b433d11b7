"""Figure 5 (section IV): TCP of one VLAN from many PNs to one; UDP of another VLAN joins, and stops again."""

from typing import Any

from experiments.scenarios.scenario import Limits, Scenario, Source

BEFORE, DURING, AFTER = "TCP alone", "UDP blast", "TCP alone again"


def joined_by_udp(
    name: str,
    title: str,
    *,
    topology: str = "dets-fig5",
    senders: int = 10,
    link_rate_bps: int = 1_000_000_000,
    victim_limit_bps: int = 400_000_000,
    aggressor_limit_bps: int = 500_000_000,
    udp_rate_bps: int = 320_000_000,
    warmup_s: float = 6.0,
    blast_s: float = 9.0,
    cooldown_s: float = 4.0,
    **more: Any,
) -> Scenario:
    """Return the run of figures 2 and 5: every sender has a TCP source in VLAN 1 and a UDP source in VLAN 2.

    TCP is alone for ``warmup_s``, whose second half is measured, and again for ``cooldown_s``. ``udp_rate_bps`` is the
    offered rate of each UDP sender. Choice: the paper does not give it; this is more than the link carries. Deviation:
    the paper's UDP begins at about unit 320 (17.6 s), and in figure 2 lasts 700 units; here rates settle sooner.
    """
    receiver, stop_s = senders + 1, warmup_s + blast_s
    end_s = stop_s + cooldown_s
    blast = (warmup_s, stop_s)
    return Scenario(
        name,
        title,
        topology=topology,
        pns=receiver,
        link_rate_bps=link_rate_bps,
        limits={1: Limits(victim_limit_bps, victim_limit_bps), 2: Limits(aggressor_limit_bps, aggressor_limit_bps)},
        sources=(
            *(Source(1, number, receiver, "tcp") for number in range(1, receiver)),
            *(Source(2, number, receiver, "udp", udp_rate_bps, spans=(blast,)) for number in range(1, receiver)),
        ),
        duration_s=end_s,
        phases={BEFORE: (warmup_s / 2, warmup_s), DURING: blast, AFTER: (stop_s, end_s)},
        isolation=(BEFORE, DURING),
        **more,
    )


scenario = joined_by_udp(
    "dets-fig5",
    "control: the same TCP tenant keeps its rate",
    controls=("static", "fs", "sp", "fp", "fe", "max-min", "level"),
    emulated_controls=("static", "fp", "level"),
    emulated_s=11.0,
    paper_controls=("none", "static", "fp", "level"),
    emulated_seeds={"fp": 10, "level": 2},  # many: TCP's recovery time is random, too
)
