"""The traffic of a scenario: datagrams, TCP flows, files, web requests with their answers, and a job's shuffle.

Random numbers depend on a seed and the number of the source, so they are the same on every fabric, under every control.
Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from controller.errors import InvalidValueError

PROTOCOLS = ("udp", "tcp")
_MODELLED = ("cubic", "reno", "dctcp")
CONGESTION_CONTROLS = {"ovs": ("cubic", "reno", "bbr"), "wire": _MODELLED, "model": _MODELLED}
"""The congestion controls of each fabric."""
MAX_FLOWS = 1000
MIN_RATE_BPS = 100_000
# WebStone's mix of files, as (bytes, part of the requests). Choice: Seawall (section 6.2) names WebStone and 500 B to 5
# MB, not the parts.
WEBSTONE = ((500, 0.35), (5_000, 0.50), (50_000, 0.14), (500_000, 0.009), (5_000_000, 0.001))

Span = tuple[float, float]
VnPair = tuple[int, int, int]
"""(VLAN, sending PN, receiving PN)"""
Session = tuple[float, tuple[int, ...]]
"""The beginning of a session of web requests, and the bytes of its answers, one after another."""


@dataclass(frozen=True, slots=True)
class WebRequests:
    """A client's web requests: sessions that begin as a Poisson process, each of some requests, one after another.

    The number of requests in a session is exponential with a mean of ``mean_requests``, at least one. ``sizes`` holds
    the bytes of answers with the probability of each.
    """

    sessions_per_s: float
    mean_requests: float = 10.0
    sizes: tuple[tuple[int, float], ...] = WEBSTONE

    def check(self, key: str) -> None:
        """Raise InvalidValueError naming an invalid value below ``key``."""
        require(self.sessions_per_s > 0, f"{key}.sessions_per_s", self.sessions_per_s, "is not above 0")
        require(self.mean_requests >= 1, f"{key}.mean_requests", self.mean_requests, "is below 1")
        good = bool(self.sizes) and all(octets >= 1 and part > 0 for octets, part in self.sizes)
        require(good, f"{key}.sizes", self.sizes, "must be bytes of 1 or more, each with a probability above 0")
        total = sum(part for _, part in self.sizes)
        require(abs(total - 1) < 1e-6, f"{key}.sizes", self.sizes, f"have probabilities of {total:g} together, not 1")

    def sessions(self, rng: Random, spans: tuple[Span, ...]) -> tuple[Session, ...]:
        """Return the sessions that begin within the spans, as (time, bytes of the answers)."""
        octets, probabilities = zip(*self.sizes, strict=True)
        found: list[Session] = []
        for begin_s, end_s in spans:
            at_s = begin_s + rng.expovariate(self.sessions_per_s)
            while at_s < end_s:
                answers = max(1, round(rng.expovariate(1 / self.mean_requests)))
                found.append((at_s, tuple(rng.choices(octets, probabilities, k=answers))))
                at_s += rng.expovariate(self.sessions_per_s)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Source:
    """The traffic from one VN to another.

    ``rate_bps`` is UDP's offered rate, or the rate of the application behind TCP (None: as much as the network
    carries). The source is active in each of ``spans``, or all the time. With ``max_burst_s`` it is the generator of
    section IV instead: bursts and pauses of random length, uniform between 0 and that. With ``octets`` a TCP source
    begins to transfer that many bytes at the start of each span, and then stops. With ``requests`` the sender is a web
    server and the receiver its client, which keeps ``flows`` connections: a session takes a free connection, or waits
    for one.

    ``flows`` TCP connections carry the traffic of a source; they share ``rate_bps`` equally. ``congestion_control`` is
    the source's own; None: that of the run. With ``ecn`` TCP reacts to marks, in packet-by-packet runs only.
    """

    vlan_vid: int
    sender: int
    receiver: int
    protocol: str
    rate_bps: int | None = None
    spans: tuple[Span, ...] = ()
    max_burst_s: float | None = None
    octets: int | None = None
    flows: int = 1
    requests: WebRequests | None = None
    congestion_control: str | None = None
    ecn: bool = field(default=False, repr=False)  # not in digests of completed runs

    @property
    def pair(self) -> VnPair:
        """The VLAN and the two PNs: the pair that has one meter."""
        return self.vlan_vid, self.sender, self.receiver

    def check(self, key: str, vlans: tuple[int, ...], pns: int, duration_s: float) -> None:
        """Raise InvalidValueError naming an invalid value below ``key``, in a scenario of these VLANs and PNs."""
        require(self.protocol in PROTOCOLS, f"{key}.protocol", self.protocol, "is neither udp nor tcp")
        require(self.vlan_vid in vlans, f"{key}.vlan_vid", self.vlan_vid, "is not a VLAN of limits")
        for end in ("sender", "receiver"):
            number = getattr(self, end)
            require(1 <= number <= pns, f"{key}.{end}", number, f"is outside 1 to {pns}")
        require(self.sender != self.receiver, f"{key}.receiver", self.receiver, "is the sender too")
        if self.rate_bps is None:
            require(self.protocol == "tcp", f"{key}.rate_bps", None, "is needed: UDP has no rate of its own")
        else:
            require(self.rate_bps > 0, f"{key}.rate_bps", self.rate_bps, "is not above 0")
        for begin_s, end_s in self.spans:
            good = 0 <= begin_s < end_s <= duration_s
            require(good, f"{key}.spans", (begin_s, end_s), f"is not within 0 to {duration_s:g} seconds")
        if self.max_burst_s is not None:
            require(self.max_burst_s > 0, f"{key}.max_burst_s", self.max_burst_s, "is not above 0")
            require(not self.spans, f"{key}.spans", self.spans, "and max_burst_s exclude each other")
        if self.octets is not None:
            require(self.octets > 0, f"{key}.octets", self.octets, "is not above 0")
        self._check_tcp(key)

    def _check_tcp(self, key: str) -> None:
        """Raise InvalidValueError for values that only TCP has, or that exclude each other."""
        require(1 <= self.flows <= MAX_FLOWS, f"{key}.flows", self.flows, f"is outside 1 to {MAX_FLOWS}")
        only_tcp = {"octets": None, "flows": 1, "requests": None, "congestion_control": None, "ecn": False}
        for name, default in only_tcp.items():
            value = getattr(self, name)
            require(self.protocol == "tcp" or value == default, f"{key}.{name}", value, "needs TCP")
        require(self.octets is None or self.flows == 1, f"{key}.flows", self.flows, "and octets exclude each other")
        if self.requests is not None:
            for name in ("rate_bps", "max_burst_s", "octets"):
                value = getattr(self, name)
                require(value is None, f"{key}.{name}", value, "and requests exclude each other")
            self.requests.check(f"{key}.requests")
        known = sorted({law for laws in CONGESTION_CONTROLS.values() for law in laws})
        good = self.congestion_control is None or self.congestion_control in known
        reason = f"is not one of {', '.join(known)}"
        require(good, f"{key}.congestion_control", self.congestion_control, reason)

    def check_on(self, key: str, fabric: str) -> None:
        """Raise InvalidValueError for a congestion control that a fabric does not have."""
        known = CONGESTION_CONTROLS[fabric]
        good = self.congestion_control is None or self.congestion_control in known
        reason = f"is not on the {fabric} fabric: it has {', '.join(known)}"
        require(good, f"{key}.congestion_control", self.congestion_control, reason)

    def scaled(self, factor: float) -> Source:
        """Return the source with its rate, the size of its file and the frequency of its sessions times ``factor``."""
        scaled: Source = scaled_fields(self, ("rate_bps", "octets"), factor)
        if self.requests is None:
            return scaled
        per_s = self.requests.sessions_per_s * factor
        return replace(scaled, requests=replace(self.requests, sessions_per_s=per_s))

    def spans_of(self, number: int, seed: int, duration_s: float) -> tuple[Span, ...]:
        """Return the spans of traffic of the source, the scenario's ``number``-th, for a seed."""
        if self.max_burst_s is None:
            return self.spans or ((0.0, duration_s),)
        rng, spans, now_s = Random(f"{seed}/{number}"), [], 0.0
        while now_s < duration_s:
            end_s = now_s + rng.uniform(0.0, self.max_burst_s)
            spans.append((now_s, min(end_s, duration_s)))
            now_s = end_s + rng.uniform(0.0, self.max_burst_s)
        return tuple(spans)

    def sessions_of(self, number: int, seed: int, duration_s: float) -> tuple[Session, ...]:
        """Return the sessions of web requests for a seed; () for a source without requests."""
        if self.requests is None:
            return ()
        return self.requests.sessions(Random(f"{seed}/{number}/requests"), self.spans or ((0.0, duration_s),))


@dataclass(frozen=True, slots=True)
class Job:
    """A job of map and reduce tasks on the PNs of a VLAN, whose TCP sources carry it: one for each pair of the PNs.

    Each PN runs ``maps`` map tasks one after another; the n-th (from 0) ends at a random time between n and n + 1 times
    ``map_s``. There are ``reduces`` reduce tasks for each PN; a PN runs one at a time, and the next goes to the first
    free PN. It fetches ``fetch_bytes`` from each map task that has ended, at most ``fetches`` at once and one per PN,
    and then computes for ``reduce_s``. Data of its own PN need no fetch.
    """

    vlan_vid: int
    maps: int
    map_s: float
    reduces: int
    reduce_s: float
    fetch_bytes: int
    fetches: int = 5

    def check(self, sources: tuple[Source, ...]) -> None:
        """Raise InvalidValueError naming an invalid value in a scenario with these sources."""
        for name in ("maps", "map_s", "reduces", "reduce_s", "fetch_bytes", "fetches"):
            value = getattr(self, name)
            require(value > 0, f"job.{name}", value, "is not above 0")
        job_sources = [source for source in sources if source.vlan_vid == self.vlan_vid]
        ends = [(source.sender, source.receiver) for source in job_sources]
        all_plain = job_sources == [Source(self.vlan_vid, *pair, "tcp") for pair in ends]
        require(all_plain, "job.vlan_vid", self.vlan_vid, "has sources of its own: a job needs plain TCP of one flow")
        pns = {pn for pair in ends for pn in pair}
        complete = len(pns) > 1 and len(ends) == len(set(ends)) == len(pns) * (len(pns) - 1)
        require(complete, "job.vlan_vid", self.vlan_vid, "has not one source for each pair of its PNs")

    def map_ends(self, seed: int, pns: Sequence[int]) -> list[tuple[float, int]]:
        """Return the end of each map task and its PN, in order."""
        rng = Random(f"{seed}/maps")
        ends = [(self.map_s * (wave + rng.random()), pn) for pn in pns for wave in range(self.maps)]
        return sorted(ends)


def require(condition: bool, key: str, value: object, reason: str) -> None:
    """Raise InvalidValueError unless a condition holds."""
    if not condition:
        raise InvalidValueError(key, value, reason)


def scaled_rate_bps(rate_bps: float, factor: float) -> int:
    """Return a rate times ``factor``, at least MIN_RATE_BPS."""
    return max(round(rate_bps * factor), MIN_RATE_BPS)


def scaled_fields(item: Any, names: tuple[str, ...], factor: float) -> Any:
    """Return a dataclass with those of the fields that exist and are not None times ``factor``."""
    found = {name: getattr(item, name) for name in names if getattr(item, name, None) is not None}
    return replace(item, **{name: scaled_rate_bps(rate, factor) for name, rate in found.items()})
