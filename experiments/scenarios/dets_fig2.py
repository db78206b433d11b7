"""Figure 2 (section I): without control, TCP starves as soon as UDP of another VLAN joins.

Deviation: the paper has figure 1's five PNs here; with figure 5's eleven the two figures are one run, without control
and with it.
"""

from experiments.scenarios.dets_fig5 import joined_by_udp

scenario = joined_by_udp(
    # Starving TCP doubles its time-outs; its rate is known after some of these, so the run is not shortened.
    "dets-fig2",
    "no control: a TCP tenant starves once another tenant sends UDP",
    controls=("none",),
)
