"""Figures 6 and 7: how long a job takes next to pairs of TCP or UDP, and the pairs' rates, seed by seed."""

from __future__ import annotations

import math
from itertools import pairwise

from experiments.evaluation.claims import ClaimVerdict, Judge, Measured, above, all_of, show, within
from experiments.papers.gatekeeper.tenant_claims import NAME, UNKNOWN
from experiments.scenarios.gatekeeper.hadoop import ALONE, PNS, SHARES, name_of

PAIRS = PNS // 2
"""Pairs of the background: the TCP or UDP next to the job."""


def job_times_s(measured: Measured, experiment: str, control: str) -> dict[int, float]:
    """Return the time in seconds at which the job was done, by seed; infinite: not by the end of the run."""
    runs = measured.by_seed(experiment, control)
    times = {seed: figures.get("transferred_after_s") for seed, figures in runs.items()}
    return {seed: math.inf if seconds is None else seconds for seed, seconds in times.items()}


def background_bps(measured: Measured, kind: str, share: int, control: str) -> dict[int, float]:
    """Return the mean received rate of a background pair until the job was done, by seed, at the paper's scale."""
    name = name_of(kind, share, control)
    by_seed = measured.values(name, control, "received_bps_by_receiver_until_transferred")
    return {seed: sum(rates_bps[-PAIRS:]) / PAIRS / measured.scale for seed, rates_bps in by_seed.items()}


def _ratios(values: dict[int, float], base: dict[int, float]) -> list[float]:
    """Return values over those in ``base``, seed by seed, without seeds whose base is absent or infinite."""
    return [value / base[seed] for seed, value in values.items() if math.isfinite(base.get(seed, math.inf))]


def _slower(measured: Measured, kind: str, share: int, control: str, other: str) -> list[float]:
    """Return the job's time under a control over that under another, seed by seed."""
    times_s = [job_times_s(measured, name_of(kind, share, system), system) for system in (control, other)]
    return _ratios(*times_s)


def job_takes(
    label: str, bounds: tuple[float, float], kind: str, shares: tuple[int, ...], pair: tuple[str, str]
) -> Judge:
    """Judge the job's time under the first control of ``pair`` over its time under the second, at each share.

    ``bounds`` are (low, high) of that ratio; ``kind`` is the traffic next to the job; ``label`` begins the text.
    """

    def verdict(measured: Measured) -> ClaimVerdict:
        ratios = [_slower(measured, kind, share, *pair) for share in shares]
        holds = all_of(*(within(ratio, *bounds) for ratio in ratios))
        times = ", ".join(f"{show(ratio, 'plain')} at {share} %" for share, ratio in zip(shares, ratios, strict=True))
        central = _slower(measured, kind, 50, "max-min", pair[1])  # max-min runs at a share of 50 % only
        return ClaimVerdict(f"{label}: {times}" if all(ratios) else "-", holds, show(central, "plain"))

    return verdict


def best_effort(measured: Measured) -> ClaimVerdict:
    """Judge how much longer the job takes next to TCP without control."""
    alone_s, took_s = (job_times_s(measured, name, "none") for name in (ALONE, name_of("tcp", 50)))
    ratios = _ratios(took_s, alone_s)
    if not ratios:
        return UNKNOWN
    took, alone = (show(list(seconds.values()), "count") for seconds in (took_s, alone_s))
    return ClaimVerdict(f"{took} s, alone {alone}: {show(ratios, 'plain')} times", within(ratios, 1.5))


def time_falls(measured: Measured, control: str = NAME) -> ClaimVerdict:
    """Judge whether a larger guarantee shortens the job."""
    times_by_share = [job_times_s(measured, name_of("tcp", share, control), control) for share in SHARES]
    if not all(times_by_share):
        return UNKNOWN
    decreases = [
        [smaller_share[seed] - larger_share[seed] for seed in smaller_share if seed in larger_share]
        for smaller_share, larger_share in pairwise(times_by_share)
    ]
    times_text = ", ".join(f"{show(list(seconds.values()), 'count')} s" for seconds in times_by_share)
    return ClaimVerdict(f"{times_text} at 25, 50, 75 %", all_of(*map(above, decreases)))


def _sums_by_seed(tables: list[dict[int, float]]) -> dict[int, float]:
    """Return the sum of the tables' values for each seed that is in all tables."""
    return {seed: sum(by_seed[seed] for by_seed in tables) for seed in set.intersection(*map(set, tables))}


def background(kind: str, minimum: float, own: str = NAME, shares: tuple[int, ...] = SHARES) -> Judge:
    """Judge whether the background pairs get more under ``own`` than ``minimum`` times their rate under static limits.

    The rates are summed over the guarantees in ``shares`` (percent), seed by seed.
    """

    def judge(measured: Measured) -> ClaimVerdict:
        own_bps, static_bps = (  # by seed, for each share
            [background_bps(measured, kind, share, control) for share in shares] for control in (own, "static")
        )
        ratios = _ratios(_sums_by_seed(own_bps), _sums_by_seed(static_bps))
        if not ratios:
            return UNKNOWN
        own_mbps, static_mbps = (
            [sum(by_seed.values()) / len(by_seed) / 1e6 for by_seed in by_share] for by_share in (own_bps, static_bps)
        )
        means = ", ".join(f"{mean:.0f} for {static:.0f}" for mean, static in zip(own_mbps, static_mbps, strict=True))
        percents = ", ".join(map(str, shares))
        return ClaimVerdict(f"{show(ratios, 'plain')} times ({means} Mb/s at {percents} %)", above(ratios, minimum))

    return judge


def messages_not_needed(silent: str, control: str, shares: tuple[int, ...] = SHARES) -> Judge:
    """Judge whether notifications hardly matter next to TCP: the job takes as long without, and few receivers notify.

    ``silent`` and ``control`` are the controls without and with notifications.
    """

    def judge(measured: Measured) -> ClaimVerdict:
        ratios = [_slower(measured, "tcp", share, silent, control) for share in shares]
        names = [name_of("tcp", share, control) for share in shares]
        counts = [measured.values(name, control, "notified_receivers").values() for name in names]
        # Each PN has a receiver of the job, and each pair of PNs one of the other tenant.
        notified = [[count / (PNS + PAIRS) for count in by_seed] for by_seed in counts]
        if not (all(ratios) and all(notified)):
            return UNKNOWN
        holds = all_of(*(within(part, 0.97, 1.03) for part in ratios), *(within(part, high=0.01) for part in notified))
        ratios_text = ", ".join(show(ratio, "plain") for ratio in ratios)
        most_text = f"{max(map(max, notified)):.1%} of receivers notify"
        return ClaimVerdict(f"job time without notifications / with them: {ratios_text}; {most_text}", holds)

    return judge
