"""Section V with both placements: figure 5, and one host's uplink, shaped by switches' meters or by agents on hosts."""

from dataclasses import replace

from experiments.scenarios import dets_uplink
from experiments.scenarios.dets_fig5 import joined_by_udp

FIG5, UPLINK = "agents-fig5", "agents-uplink"
PLACEMENTS = {
    "meter": "meters alone",
    "agent": "agents, and no meter at all",
    "mixed": "agents at every second port, and meters at the others",
}

scenarios = (
    *(
        joined_by_udp(
            f"{FIG5}-{shaping}",
            f"figure 5 by {title}",
            shaping=shaping,
            controls=("fp",),
            emulated_controls=("fp",),
            emulated_seeds=3,
            seeds=3,
        )
        for shaping, title in PLACEMENTS.items()
    ),
    *(
        replace(
            dets_uplink.scenario,
            name=f"{UPLINK}-{shaping}",
            title=f"UDP fills an uplink, by {PLACEMENTS[shaping]}",
            shaping=shaping,
        )
        for shaping in ("meter", "agent")
    ),
)
