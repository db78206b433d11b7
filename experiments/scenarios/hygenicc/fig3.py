"""HyGenICC's figure 3: four and eight senders to one receiver; the last sender is tagged."""

from experiments.scenarios.hygenicc.fig2 import CUTS, competition

SENDERS = (4, 8)
COMPETITORS = ("tcp", "udp")

scenarios = tuple(
    competition(
        f"hygenicc-fig3-{senders}-{competitor}",
        f"a tagged TCP sender next to {senders - 1} of {competitor.upper()}",
        senders,
        competitor,
        CUTS,
    )
    for senders in SENDERS
    for competitor in COMPETITORS
)
