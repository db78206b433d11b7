"""Figure 6 (section IV): ten senders of bursts, TCP and UDP, three of them with a low rate, 1,500 intervals."""

from experiments.scenarios.scenario import CONTROLS, INTERVAL_S, Limits, Scenario, Source

RECEIVER = 11
# Choice: the paper gives no receive limit here; it is that of figure 5's first VLAN. The paper does not say either
# which senders are held to 20 Mb/s, which use TCP, and what UDP offers in a burst. Every other sender uses TCP; the
# three are of both kinds, with short, medium and long bursts. Their hosts hold them, so no allocator knows it
# beforehand.
HELD = (2, 5, 8)
HELD_BPS = 20_000_000
UDP_BPS = 150_000_000
SWEEP = ("fp d=1.1", "fp d=1.5", "fp d=4", "fp d=10")


def _source(number: int) -> Source:
    protocol = "tcp" if number % 2 else "udp"
    rate_bps = HELD_BPS if number in HELD else UDP_BPS if protocol == "udp" else None
    max_burst_s = 0.5 * 20 ** ((number - 1) / 9)  # 0.5 s for the first to 10 s for the last
    return Source(1, number, RECEIVER, protocol, rate_bps, max_burst_s=max_burst_s)


scenario = Scenario(
    name="dets-fig6",
    title="ten senders of TCP and UDP bursts to one receiver, by algorithm",
    limits={1: Limits(send_bps=400_000_000, receive_bps=400_000_000)},
    sources=tuple(_source(number) for number in range(1, RECEIVER)),
    duration_s=1500 * INTERVAL_S,
    emulated_s=545 * INTERVAL_S,
    controls=(*CONTROLS, *SWEEP, "fe k=0.07", "fe k=0.02"),
    emulated_controls=("static", "fs", "sp", "fp", "fe", "fe k=0.07", "max-min", "level"),
    paper_controls=("fs", "sp", "fp", *SWEEP, "fe", "fe k=0.07", "fe k=0.02", "level"),
)
