"""Figures 6 and 7: how long a job takes next to pairs of TCP or UDP, and the pairs' rates, seed by seed."""

from __future__ import annotations

import math
from itertools import pairwise

from experiments.evaluation.claims import ClaimVerdict, Judge, Measured, above, all_of, show, within
from experiments.papers.gatekeeper.tenant_claims import NAME, UNKNOWN
from experiments.scenarios.gatekeeper.hadoop import ALONE, PNS, SHARES, name_of

PAIRS = PNS // 2


def job_times_s(measured: Measured, experiment: str, control: str) -> dict[int, float]:
    """Return when the job was done, by seed; infinite: not by the end of the run."""
    runs = measured.by_seed(experiment, control)
    times = {seed: figures.get("transferred_after_s") for seed, figures in runs.items()}
    return {seed: math.inf if seconds is None else seconds for seed, seconds in times.items()}


def background_bps(measured: Measured, kind: str, share: int, control: str) -> dict[int, float]:
    """Return a pair's mean rate until the job was done, by seed."""
    name = name_of(kind, share, control)
    rates = measured.values(name, control, "received_bps_by_receiver_until_transferred")
    return {seed: sum(rate[-PAIRS:]) / PAIRS / measured.scale for seed, rate in rates.items()}


def _ratios(times: dict[int, float], of: dict[int, float]) -> list[float]:
    """Return times over others, seed by seed, without seeds whose other time is infinite."""
    return [seconds / of[seed] for seed, seconds in times.items() if math.isfinite(of.get(seed, math.inf))]


def _slower(measured: Measured, kind: str, share: int, control: str, other: str) -> list[float]:
    """Return the job's time under a control over that under another, seed by seed."""
    times = [job_times_s(measured, name_of(kind, share, system), system) for system in (control, other)]
    return _ratios(*times)


def job_takes(
    say: str, bounds: tuple[float, float], kind: str, shares: tuple[int, ...], pair: tuple[str, str]
) -> Judge:
    """Judge whether the job's time under the first control of a pair over that under the second lies within bounds."""

    def verdict(measured: Measured) -> ClaimVerdict:
        ratios = [_slower(measured, kind, share, *pair) for share in shares]
        holds = all_of(*(within(ratio, *bounds) for ratio in ratios))
        times = ", ".join(f"{show(ratio, 'plain')} at {share} %" for share, ratio in zip(shares, ratios, strict=True))
        central = _slower(measured, kind, 50, "max-min", pair[1])
        return ClaimVerdict(f"{say}: {times}" if all(ratios) else "-", holds, show(central, "plain"))

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
    times = [job_times_s(measured, name_of("tcp", share, control), control) for share in SHARES]
    if not all(times):
        return UNKNOWN
    falls = [[before[seed] - other[seed] for seed in before if seed in other] for before, other in pairwise(times)]
    shown = ", ".join(f"{show(list(seconds.values()), 'count')} s" for seconds in times)
    return ClaimVerdict(f"{shown} at 25, 50, 75 %", all_of(*map(above, falls)))


def background(kind: str, minimum: float, own: str = NAME, shares: tuple[int, ...] = SHARES) -> Judge:
    """Judge the pairs' rates over some shares together, relative to those with static limits."""

    def judge(measured: Measured) -> ClaimVerdict:
        rates = {
            control: [background_bps(measured, kind, share, control) for share in shares] for control in (own, "static")
        }
        sums = {
            control: {seed: sum(rate_of[seed] for rate_of in of) for seed in set.intersection(*map(set, of))}
            for control, of in rates.items()
        }
        times = _ratios(sums[own], sums["static"])
        if not times:
            return UNKNOWN
        means = {control: [sum(job.values()) / len(job) / 1e6 for job in of] for control, of in rates.items()}
        each = ", ".join(f"{mean:.0f} for {static:.0f}" for mean, static in zip(*means.values(), strict=True))
        at = ", ".join(map(str, shares))
        return ClaimVerdict(f"{show(times, 'plain')} times ({each} Mb/s at {at} %)", above(times, minimum))

    return judge


def messages_not_needed(silent: str, control: str, shares: tuple[int, ...] = SHARES) -> Judge:
    """Judge whether notifications matter next to TCP: times without them, and the share of receivers that notify."""

    def judge(measured: Measured) -> ClaimVerdict:
        ratios = [_slower(measured, "tcp", share, silent, control) for share in shares]
        counts = [
            measured.values(name_of("tcp", share, control), control, "notified_receivers").values() for share in shares
        ]
        notified = [[count / (PNS + PAIRS) for count in of] for of in counts]
        if not (all(ratios) and all(notified)):
            return UNKNOWN
        holds = all_of(*(within(part, 0.97, 1.03) for part in ratios), *(within(part, high=0.01) for part in notified))
        found = ", ".join(show(ratio, "plain") for ratio in ratios)
        return ClaimVerdict(
            f"job time without notifications / with them: {found}; {max(map(max, notified)):.1%} of receivers notify",
            holds,
        )

    return judge
