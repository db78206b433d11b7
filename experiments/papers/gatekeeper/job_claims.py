"""Figures 6 and 7: how long a job takes next to pairs of TCP or UDP, and what they get meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from experiments.evaluation.claims import ClaimVerdict, Judge, Measured, all_of
from experiments.papers.gatekeeper.tenant_claims import NAME, UNKNOWN
from experiments.scenarios.gatekeeper.fig5 import SILENT
from experiments.scenarios.gatekeeper.hadoop import ALONE, PNS, SHARES, name_of

PAIRS = PNS // 2


def job_s(measured: Measured, kind: str, share: int, control: str) -> float | None:
    """Return when the job was done, mean over seeds; None: not by the end of the run."""
    return measured.mean(name_of(kind, share), control, "transferred_after_s")


def background_bps(measured: Measured, kind: str, share: int, control: str) -> float | None:
    """Return what a pair got on average until the job was done."""
    rates = measured.values(name_of(kind, share), control, "received_bps_by_receiver_until_transferred").values()
    means = [sum(one[-PAIRS:]) / PAIRS / measured.scale for one in rates]
    return sum(means) / len(means) if means else None


def _slower(measured: Measured, kind: str, share: int, control: str, other: str) -> float | None:
    """Return the job's time under a control over that under another; infinite: it was not done."""
    base_s, took_s = job_s(measured, kind, share, other), job_s(measured, kind, share, control)
    if base_s is None:
        return None
    if took_s is None:
        return float("inf") if measured.runs(name_of(kind, share), control) else None
    return took_s / base_s


def _ratio(value: float | None) -> str:
    return "-" if value is None else "not done" if value == float("inf") else f"{value:.2f}"


def job_takes(
    say: str, judge: Callable[[float], bool], kind: str, shares: tuple[int, ...], pair: tuple[str, str]
) -> Judge:
    """The job's time under the first control of a pair over that under the second."""

    def verdict(measured: Measured) -> ClaimVerdict:
        ratios = [_slower(measured, kind, share, *pair) for share in shares]
        holds = all_of(*(None if one is None else judge(one) for one in ratios))
        times = ", ".join(f"{_ratio(one)} at {share} %" for share, one in zip(shares, ratios, strict=True))
        central = _slower(measured, kind, 50, "max-min", pair[1])
        return ClaimVerdict(f"{say}: {times}" if holds is not None else "-", holds, _ratio(central))

    return verdict


def best_effort(measured: Measured) -> ClaimVerdict:
    """Judge how much longer the job takes next to TCP without control."""
    alone_s, took_s = measured.mean(ALONE, "none", "transferred_after_s"), job_s(measured, "tcp", 50, "none")
    if alone_s is None or took_s is None:
        return UNKNOWN
    return ClaimVerdict(f"{took_s:.1f} s, alone {alone_s:.1f}: {took_s / alone_s:.2f} times", took_s >= 1.5 * alone_s)


def time_falls(measured: Measured, control: str = NAME) -> ClaimVerdict:
    """Judge whether more guaranteed to the job is less time."""
    times = [job_s(measured, "tcp", share, control) for share in SHARES]
    if None in times:
        return UNKNOWN
    known = [one for one in times if one is not None]
    return ClaimVerdict(
        ", ".join(f"{one:.1f} s" for one in known) + " at 25, 50, 75 %", known == sorted(known, reverse=True)
    )


def background(kind: str, least: float, own: str = NAME) -> Judge:
    """What the pairs get, over what they get with static limits: means over the three shares."""

    def judge(measured: Measured) -> ClaimVerdict:
        rates = {
            control: [background_bps(measured, kind, share, control) for share in SHARES] for control in (own, "static")
        }
        known = {control: [one for one in values if one is not None] for control, values in rates.items()}
        if any(len(values) < len(SHARES) for values in known.values()):
            return UNKNOWN
        times = sum(known[own]) / sum(known["static"])
        each = ", ".join(f"{one / 1e6:.0f} for {static / 1e6:.0f}" for one, static in zip(*known.values(), strict=True))
        return ClaimVerdict(f"{times:.2f} times ({each} Mb/s at 25, 50, 75 %)", times > least)

    return judge


def messages_not_needed(measured: Measured) -> ClaimVerdict:
    """Judge whether messages matter next to TCP: times without them, and who sends any."""
    ratios = [_slower(measured, "tcp", share, SILENT, NAME) for share in SHARES]
    told = [
        one / (PNS + PAIRS)
        for share in SHARES
        for one in measured.values(name_of("tcp", share), NAME, "notified_receivers").values()
    ]
    known = [one for one in ratios if one is not None]
    if len(known) < len(SHARES) or not told:
        return UNKNOWN
    found = f"times without messages: {', '.join(map(_ratio, known))}; {max(told):.1%} of the receivers notify"
    return ClaimVerdict(found, all(abs(one - 1) <= 0.03 for one in known) and max(told) <= 0.01)
