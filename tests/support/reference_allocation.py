"""The paper's four algorithms as its pseudo-code has them, and Fair Level: plain Python, one receiver at a time.

It is what the vectorised algorithms of ``controller.allocation`` are tested and timed against. It shares no code with
them, only the choices that their docstrings state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class SenderNode:
    """A sending node as its receiver sees it; rates in bits per second."""

    measured: float
    granted: float
    available: float
    dropped: float
    weight: float
    active: bool
    grant: float = 0.0

    @property
    def full(self) -> bool:
        """Whether the node fully uses its allocated rate."""
        return self.active and (math.isinf(self.granted) or self.measured >= 0.95 * self.granted or self.dropped > 0)


def distribute(amount: float, nodes: list[SenderNode]) -> float:
    """Add ``amount`` to the grants, by weight, within sending capacities; return the last share per unit of weight."""
    while True:
        able = [node for node in nodes if node.grant < node.available]
        if not able or amount <= 0:
            return math.inf if amount > 0 or not able else 0.0
        share = amount / sum(node.weight for node in able)
        small = [node for node in able if node.available - node.grant <= share * node.weight]
        if not small:
            for node in able:
                node.grant += share * node.weight
            return share
        for node in small:
            amount -= node.available - node.grant
            node.grant = node.available


def fair_share(limit: float, nodes: list[SenderNode]) -> None:
    """Set every node's grant by RAA-FS."""
    for node in nodes:
        node.grant = 0.0
    distribute(limit, [node for node in nodes if node.active])


def slow_probe(limit: float, nodes: list[SenderNode], inflation: float, floor: float, headroom: float = 0.0) -> None:
    """Set every node's grant by RAA-SP (Algorithm 1)."""
    active = [node for node in nodes if node.active]
    for node in nodes:
        node.grant = 0.0
    if not active:
        return
    total_weight = sum(node.weight for node in active)
    requested = []
    for node in active:
        request = node.measured
        if node.full:
            request = (node.measured if math.isinf(node.granted) else node.granted) * (1 + inflation)
        requested.append(max(request, floor * limit * node.weight / total_weight))
    ratio = limit / sum(requested)
    kept = {}
    if headroom > 0 and any(node.full for node in active):
        for node, request in zip(active, requested, strict=True):
            near = node.measured * (1 + 2 * headroom) >= node.granted
            keep = max(node.granted if near else node.measured * (1 + headroom), request)
            if not node.full and keep <= limit * node.weight / total_weight:
                kept[id(node)] = min(keep, node.available)
        others = sum(request for node, request in zip(active, requested, strict=True) if id(node) not in kept)
        ratio = (limit - sum(kept.values())) / others
    for node, request in zip(active, requested, strict=True):
        node.grant = kept.get(id(node), min(request * ratio, node.available))
    distribute(limit - sum(node.grant for node in active), active)


def fast_probe(limit: float, nodes: list[SenderNode], d: float, inflation: float, floor: float) -> None:
    """Set every node's grant by RAA-FP (Algorithm 2)."""
    slow_probe(limit, nodes, inflation, floor)
    full = [node for node in nodes if node.full]
    if not full:
        return
    # What the mean is when nobody's capacity is below it; see the deviation in FastProbe.
    copies = [SenderNode(0, 0, node.available, 0, node.weight, True) for node in full]
    mean = distribute(sum(node.grant for node in full), copies)
    target = [min(mean * node.weight, node.available) for node in full]
    if all(abs(node.grant - goal) <= 0.01 * goal for node, goal in zip(full, target, strict=True)):
        for node, goal in zip(full, target, strict=True):
            node.grant = goal
        return
    order = sorted(range(len(full)), key=lambda i: full[i].grant / full[i].weight)
    lowers = [i for i in order if full[i].grant < target[i]]
    order = sorted(range(len(full)), key=lambda i: -full[i].grant / full[i].weight)
    uppers = [i for i in order if full[i].grant > target[i]]
    while lowers and uppers:
        raised_now = lowers[: len(uppers)]
        for low, high in zip(raised_now, uppers, strict=False):
            _give(full[high], full[low], target[high], d)
        lowers = lowers[len(raised_now) :]
        uppers = [i for i in uppers if full[i].grant > target[i]]


def _give(upper: SenderNode, lower: SenderNode, mean: float, d: float) -> None:
    """Multiply the lower node's rate by d at the cost of the upper, or average the two if that is too much for it."""
    both = lower.grant + upper.grant
    raised = min(lower.grant * d, lower.available)
    if both - raised < mean:
        raised = min(both * lower.weight / (lower.weight + upper.weight), lower.available)
    lower.grant, upper.grant = raised, both - raised


def forward_explicit(
    limit: float, received: float, nodes: list[SenderNode], rate: float | None, k: float, floor: float
) -> float | None:
    """Set every node's grant by RAA-FE; return the fair rate, which is ``rate`` the next time."""
    active = [node for node in nodes if node.active]
    for node in nodes:
        node.grant = 0.0
    if not active:
        return rate
    fair = limit / len(active)
    stepped = None if rate is None else rate * max(1 - k * (received - limit) / limit, 0.5)
    rate = fair if stepped is None else min(max(stepped, floor * fair), limit)
    for node in active:
        node.grant = min(rate, node.available)
    return rate


def fair_level(limit: float, received: float, nodes: list[SenderNode], booked: float | None, booking: float) -> float:
    """Set every node's grant by Fair Level, which is not the paper's; return ``booked`` for the next time."""
    booked = 1.0 if booked is None else booked * max(1 - 0.5 * (received - limit) / limit, 0.5)
    booked = min(max(booked, 1.0), 1.0 + booking)
    limit *= booked
    for node in nodes:
        node.grant = 0.0
    active = [node for node in nodes if node.active]
    if not active:
        return booked
    wants = [node.available if node.full else min(node.measured, node.available) for node in active]
    copies = [SenderNode(0, 0, want, 0, node.weight, True) for want, node in zip(wants, active, strict=True)]
    level = distribute(limit, copies)
    if sum(wants) <= limit:
        highest = max(want / node.weight for want, node in zip(wants, active, strict=True))
        level = highest + (limit - sum(wants)) / sum(node.weight for node in active)
    for node in active:
        node.grant = min(level * node.weight, node.available)
    return booked
