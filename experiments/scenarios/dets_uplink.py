"""Section V, at a host: two VNs of one PN fill its uplink, before any switch receives their frames.

No meter behind the uplink can separate them; an agent on the PN can (``--shaping agent`` or ``both``).
"""

from experiments.scenarios.scenario import Limits, Scenario, Source

PN, TCP_TO, UDP_TO = 1, 2, 3  # the numbers of the sending PN, and of the receivers
BEFORE, DURING, AFTER = "TCP alone", "UDP fills the uplink", "TCP alone again"
BLAST_S, STOP_S, END_S = 4.0, 10.0, 12.0

scenario = Scenario(
    name="dets-uplink",
    title="one PN's UDP fills the uplink that its TCP shares",
    pns=3,
    limits={1: Limits(400_000_000, 400_000_000), 2: Limits(500_000_000, 500_000_000)},
    sources=(
        Source(1, PN, TCP_TO, "tcp"),
        # More than the link carries.
        Source(2, PN, UDP_TO, "udp", 1_200_000_000, spans=((BLAST_S, STOP_S),)),
    ),
    duration_s=END_S,
    phases={BEFORE: (BLAST_S / 2, BLAST_S), DURING: (BLAST_S, STOP_S), AFTER: (STOP_S, END_S)},
    isolation=(BEFORE, DURING),
    controls=("fp",),
    emulated_controls=("fp",),
    seeds=3,
)
