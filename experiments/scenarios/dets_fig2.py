"""Figure 2 (section I): without control, TCP starves as soon as UDP of another VLAN joins."""

from experiments.scenarios.dets_fig5 import joined_by_udp

scenario = joined_by_udp(
    # TCP that starves backs off in time-outs that double; what it gets shows after some of these, so this is not cut.
    "dets-fig2",
    "no control: a TCP tenant starves once another tenant sends UDP",
    controls=("none",),
)
