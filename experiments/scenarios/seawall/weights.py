"""Shares by weight, for any traffic (sections 1 and 4): the paper does not measure them."""

from experiments.scenarios.scenario import LimitChange, Source
from experiments.scenarios.seawall import CONTROLS, LINK_BPS, shared

MORE_BPS = LINK_BPS * 11 // 10  # a single sender offers more than the link, too
_WEIGHTS = {1: 1.0, 2: 2.0, 3: 4.0}


def _sources(kinds: list[str]) -> tuple[Source, ...]:
    return tuple(Source(vid, vid, 4, kind, LINK_BPS if kind == "udp" else None) for vid, kind in enumerate(kinds, 1))


scenarios = (
    *(
        shared(f"seawall-weights-{name}", f"weights of 1, 2 and 4: {name}", _WEIGHTS, pns=4, sources=_sources(kinds))
        for name, kinds in {"udp": ["udp"] * 3, "tcp": ["tcp"] * 3, "mixed": ["tcp", "udp", "tcp"]}.items()
    ),
    shared(
        "seawall-weights-change",
        "UDP: one joins, a weight of 1 becomes 3, one leaves",
        {1: None, 2: None},
        pns=3,
        sources=(
            Source(1, 1, 3, "udp", MORE_BPS),
            Source(2, 2, 3, "udp", MORE_BPS, spans=((8.0, 28.0),)),
        ),
        events=(LimitChange(18.0, 1, 1, weight=3.0),),
        duration_s=36.0,
        phases={"join": (8.0, 18.0), "reweigh": (18.0, 28.0), "leave": (28.0, 36.0)},
        controls=(*CONTROLS[1:], "seawall-dctcp"),
        seeds=3,
    ),
)
