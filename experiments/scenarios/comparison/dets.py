"""The traffic of DETS's figures 5 and 6, both shorter: 9 and 15 s."""

import dataclasses

from experiments.scenarios import dets_fig5, dets_fig6
from experiments.scenarios.comparison import alone, lending

_FIG5 = dets_fig5.joined_by_udp("dets-fig5", dets_fig5.scenario.title, warmup_s=3.0, blast_s=5.0, cooldown_s=1.0)
_FIG6 = dataclasses.replace(dets_fig6.scenario.lasting(15.0), emulated_s=None)

scenarios = (alone(_FIG5), lending(_FIG5, _FIG5.link_rate_bps), alone(_FIG6))
