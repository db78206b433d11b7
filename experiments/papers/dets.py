"""DETS: Distributed Ethernet Traffic Shaping. What it claims, and aims of this project that go beyond it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from experiments.evaluation.claims import Claim, ClaimVerdict, Measured, Paper, all_of, show
from experiments.evaluation.measures import confidence
from experiments.measure.rate_series import RECOVERED_SHARE

BEST = "level"
NEARLY_NOTHING = 0.05
WITHIN_LIMIT = 1.02
PROMPT_INTERVALS = 2
SEEDS_OF_TEN = 0.9
ORACLE_TARGET = 0.97
FE_PAPER = "fe k=0.07"  # the paper gives no k; with this one FE takes 39 intervals where nothing else delays it
SLOW = (20, 60)  # intervals that still are "about 40"
UNDISTURBED = 0.95


def _starving(measured: Measured) -> ClaimVerdict:
    runs = measured.runs("dets-fig2", "none")
    shares = [run["victim_goodput_bps_during"] / run["victim_goodput_bps_before"] for run in runs]
    if not shares:
        return ClaimVerdict("-", None)
    ours = [_kept(run) for run in measured.runs("dets-fig5", BEST)]
    best = f"{show(ours)} of what its limit allows" if ours else "-"
    return ClaimVerdict(f"{show(shares)} of what it had before", max(shares) < NEARLY_NOTHING, best)


def _kept(run: dict[str, Any]) -> float:
    return float(run["victim_goodput_bps_during"] / run["victim_goodput_limit_bps"])


def _isolation(measured: Measured) -> ClaimVerdict:
    def told(control: str) -> tuple[str, bool | None]:
        runs = measured.runs("dets-fig5", control)
        if not runs:
            return "-", None
        kept = [_kept(run) for run in runs]
        others = [run["aggressor_received_bps_during"] / run["aggressor_limit_bps"] for run in runs]
        good = min(kept) >= RECOVERED_SHARE and all(RECOVERED_SHARE <= other <= WITHIN_LIMIT for other in others)
        return f"TCP {show(kept)}, UDP {show(others)} of their limits", good

    found, holds = told("fp")
    return ClaimVerdict(found, holds, told(BEST)[0])


def _recovery(most_intervals: int, least_share: float) -> Callable[[Measured], ClaimVerdict]:
    def judge(measured: Measured) -> ClaimVerdict:
        def told(control: str) -> tuple[str, bool | None]:
            runs = measured.runs("dets-fig5", control)
            if not runs:
                return "-", None
            took = [run["victim_recovery_intervals"] for run in runs]
            good = sum(one is not None and one <= most_intervals for one in took)
            worst = "never" if None in took else str(max(took))
            return f"{good} of {len(runs)} seeds, worst {worst}", good >= least_share * len(runs)

        found, holds = told("fp")
        return ClaimVerdict(found, holds, told(BEST)[0])

    return judge


def _use_against_fair_share(measured: Measured) -> ClaimVerdict:
    uses = {control: measured.shown("dets-fig6", control, "use_of_oracle") for control in ("sp", "fp", "fs", BEST)}
    holds = all_of(*(measured.more("dets-fig6", one, "fs", "use_of_oracle") for one in ("sp", "fp")))
    return ClaimVerdict(f"SP {uses['sp']}, FP {uses['fp']}, FS {uses['fs']} of the oracle's", holds, uses[BEST])


def _slow_over_fast(measured: Measured) -> ClaimVerdict:
    uses = [measured.shown("dets-fig6", control, "use_of_oracle") for control in ("sp", "fp", BEST)]
    return ClaimVerdict(f"SP {uses[0]}, FP {uses[1]}", measured.more("dets-fig6", "sp", "fp", "use_of_oracle"), uses[2])


def _spread(measured: Measured) -> ClaimVerdict:
    spreads = [measured.shown("dets-fig6", control, "grant_spread") for control in ("fp", "sp", BEST)]
    holds = measured.more("dets-fig6", "sp", "fp", "grant_spread")
    return ClaimVerdict(f"FP {spreads[0]}, SP {spreads[1]} of the mean grant", holds, spreads[2])


def _slow(explicit: str) -> Callable[[Measured], ClaimVerdict]:
    """FE is slow with this ``explicit`` control; what other gains give is shown as well."""

    def judge(measured: Measured) -> ClaimVerdict:
        took = {
            control: list(measured.values("dets-fe-convergence", control, "settled_after", "five send").values())
            for control in ("fe", "fe k=0.2", "fe k=0.1", FE_PAPER, "fe k=0.05", "fp", BEST)
        }
        if not took[explicit]:
            runs = measured.runs("dets-fe-convergence", explicit)
            return ClaimVerdict("did not settle" if runs else "-", None)
        gains = {"fe": "k=0.5", **{control: control[3:] for control in took if control.startswith("fe ")}}
        shown = ", ".join(f"{show(took[c], 'count')} with {gain}" for c, gain in gains.items() if took[c])
        holds = SLOW[0] <= confidence(took[explicit])[0] <= SLOW[1]
        found = f"intervals: {shown}; FP {show(took['fp'], 'count')}"
        return ClaimVerdict(found, holds, f"{show(took[BEST], 'count')} intervals")

    return judge


def _uses_least(explicit: str) -> Callable[[Measured], ClaimVerdict]:
    def judge(measured: Measured) -> ClaimVerdict:
        others = ("sp", "fp", "fs")
        uses = {control: measured.shown("dets-fig6", control, "use_of_oracle") for control in (explicit, *others, BEST)}
        holds = all_of(*(measured.more("dets-fig6", other, explicit, "use_of_oracle") for other in others))
        found = f"FE {uses[explicit]}, SP {uses['sp']}, FP {uses['fp']}, FS {uses['fs']}"
        return ClaimVerdict(found, holds, uses[BEST])

    return judge


def _swings(explicit: str) -> Callable[[Measured], ClaimVerdict]:
    def judge(measured: Measured) -> ClaimVerdict:
        swings = {c: measured.shown("dets-fig6", c, "received_swing") for c in (explicit, "fp", BEST)}
        holds = measured.more("dets-fig6", explicit, "fp", "received_swing")
        return ClaimVerdict(f"FE {swings[explicit]}, FP {swings['fp']} of the limit", holds, swings[BEST])

    return judge


def _trade_off(measured: Measured) -> ClaimVerdict:
    names = ("fp d=1.1", "fp d=1.5", "fp", "fp d=4", "fp d=10")
    uses = [measured.mean("dets-fig6", control, "use_of_oracle") for control in names]
    fair = [measured.mean("dets-fig6", control, "jain_backlogged") for control in names]
    if None in uses or None in fair:
        return ClaimVerdict("-", None)
    holds = all_of(
        measured.more("dets-fig6", names[0], names[-1], "use_of_oracle"),
        measured.more("dets-fig6", names[-1], names[0], "jain_backlogged"),
    )
    rows = zip(("1.1", "1.5", "2", "4", "10"), uses, fair, strict=True)
    found = "; ".join(f"d={d}: use {use:.1%}, Jain {jain:.3f}" for d, use, jain in rows if use and jain)
    use, jain = (measured.mean("dets-fig6", BEST, name) for name in ("use_of_oracle", "jain_backlogged"))
    return ClaimVerdict(found, holds, f"use {use:.1%}, Jain {jain:.3f}" if use and jain else "-")


def _independent(measured: Measured) -> ClaimVerdict:
    def told(control: str) -> tuple[str, bool | None]:
        alone = measured.values("dets-fig1", control, "received_bps_by_receiver", "TCP alone")
        worst = []
        for phase in ("one flooded", "all flooded"):
            during = measured.values("dets-fig1", control, "received_bps_by_receiver", phase)
            worst.append([min(during[s][n] / alone[s][n] for n in range(5)) for s in alone if s in during])
        if not all(worst):
            return "-", None
        found = f"least of five TCP VNs keeps {show(worst[0])}, then {show(worst[1])} of its rate"
        return found, min(map(min, worst)) >= UNDISTURBED

    found, holds = told("fp")
    return ClaimVerdict(found, holds, told(BEST)[0])


def _behind_edges(measured: Measured) -> ClaimVerdict:
    def told(control: str) -> tuple[str, bool | None]:
        alone = measured.values("dets-fig7", control, "received_bps_by_receiver", "TCP alone")
        during = measured.values("dets-fig7", control, "received_bps_by_receiver", "with UDP")
        kept = [during[seed][0] / alone[seed][0] for seed in alone if seed in during]
        return (f"TCP keeps {show(kept)} of its rate", min(kept) >= UNDISTURBED) if kept else ("-", None)

    found, holds = told("fp")
    return ClaimVerdict(found, holds, told(BEST)[0])


def _wasted(measured: Measured) -> ClaimVerdict:
    phase, controls = "first stopped", ("static", "fs", "sp", "fp", BEST)
    uses = {c: measured.shown("dets-example", c, "use_of_oracle", phase) for c in controls}
    holds = all_of(*(measured.more("dets-example", one, "fs", "use_of_oracle", phase) for one in ("sp", "fp")))
    found = f"FS {uses['fs']}, SP {uses['sp']}, FP {uses['fp']} of the oracle's (static limits {uses['static']})"
    return ClaimVerdict(found, holds, uses[BEST])


def _fairness(measured: Measured) -> ClaimVerdict:
    phase = "others want more"
    jain = [measured.shown("dets-example", c, "jain_backlogged", phase, "plain") for c in ("sp", "fp", BEST)]
    holds = measured.more("dets-example", "fp", "sp", "jain_backlogged", phase)
    return ClaimVerdict(f"Jain's index: SP {jain[0]}, FP {jain[1]}", holds, jain[2])


def _oracle(measured: Measured) -> ClaimVerdict:
    values = list(measured.values("dets-fig6", BEST, "use_of_oracle").values())
    if not values:
        return ClaimVerdict("-", None)
    paper = max(measured.mean("dets-fig6", c, "use_of_oracle") or 0.0 for c in ("fs", "sp", "fp", "fe"))
    return ClaimVerdict(
        f"{show(values)} (best of the paper's {paper:.1%})", confidence(values)[0] >= ORACLE_TARGET, show(values)
    )


CLAIMS = (
    Claim("starving", "I, fig. 2", "without control, UDP of another VLAN takes TCP to almost zero", _starving),
    Claim("isolation", "IV, fig. 5", "each VLAN keeps its limit, 400 and 500 Mb/s (FP, d = 2)", _isolation),
    Claim("recovery", "IV, fig. 5", "TCP is back at its limit within two intervals", _recovery(PROMPT_INTERVALS, 1.0)),
    Claim("prompt", "-", "aim: within one interval, in 9 of 10 seeds", _recovery(1, SEEDS_OF_TEN)),
    Claim("use", "IV, fig. 6", "SP and FP use the receive limit better than FS", _use_against_fair_share),
    Claim("slow-over-fast", "IV, fig. 6", "SP uses it better than FP", _slow_over_fast),
    Claim("spread", "IV, fig. 6", "FP's grants differ less between senders than SP's", _spread),
    Claim("explicit-slow", "III.A", "FE takes about 40 intervals to the fair rate (k = 0.5)", _slow("fe")),
    Claim("explicit-use", "IV, fig. 6", "FE uses the limit less than the others (k = 0.5)", _uses_least("fe")),
    Claim("explicit-unrest", "IV, fig. 6", "FE does not get stable: it swings more than FP (k = 0.5)", _swings("fe")),
    Claim("trade-off", "III.A", "small d: better use, larger d: fairer", _trade_off),
    Claim("wasted", "III.A", "example: without probing, what somebody leaves is wasted", _wasted),
    Claim("fairness", "III.A", "example: SP keeps unfair shares, FP evens them out", _fairness),
    Claim("independent", "I, II", "VNs are watched and controlled independently of each other (FP)", _independent),
    Claim("edges", "V, fig. 7", "the same at the ports of several edge switches (FP)", _behind_edges),
    Claim("oracle", "-", "aim: 97 % of what one who knows all demands would get", _oracle),
)


def _with_gain(claim: Claim, judge: Callable[[Measured], ClaimVerdict]) -> Claim:
    return replace(
        claim, key=f"{claim.key}-k", title=claim.title.replace(" (k = 0.5)", "") + " (k = 0.07)", judge=judge
    )


_BY_KEY = {claim.key: claim for claim in CLAIMS}
COMPARED = (
    *(_BY_KEY[key] for key in ("use", "slow-over-fast", "spread", "wasted", "fairness")),
    _BY_KEY["explicit-slow"],
    _with_gain(_BY_KEY["explicit-slow"], _slow(FE_PAPER)),
    _BY_KEY["explicit-use"],
    _with_gain(_BY_KEY["explicit-use"], _uses_least(FE_PAPER)),
    _BY_KEY["explicit-unrest"],
    _with_gain(_BY_KEY["explicit-unrest"], _swings(FE_PAPER)),
)
"""The claims that are judged under several conditions; those about FE with two gains k, since the paper gives none."""

paper = Paper("dets", "DETS", CLAIMS, COMPARED, BEST, "Fair Level")
