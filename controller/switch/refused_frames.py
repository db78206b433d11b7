"""Frames of hosts that no VLAN of their edge port takes, counted by reason: counters of the entries that drop them."""

from __future__ import annotations

from collections.abc import Callable, Container

from controller.forwarding.pipeline import Refusal
from controller.openflow.bounded_reader import Buffer
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.flows import Flow, decode_flow_stats

REASONS = {refusal.cookie: refusal.name.lower().replace("_", "-") for refusal in Refusal}


class RefusedFrames:
    """Frames that one switch has dropped at each edge port, by reason, since the controller first counted them."""

    def __init__(self) -> None:
        self._total: dict[int, dict[str, int]] = {}
        self._listed: dict[Flow, int] = {}

    def read(self, body: Buffer, port_of: Callable[[int], int], ports: Container[int]) -> None:
        """Add what has come to these ports since the last listing; ``port_of`` returns the port that has a number.

        An entry that was made again counts from zero. Raises ProtocolError when malformed, with nothing added.
        """
        stats = decode_flow_stats(body)
        listed = {
            flow: count
            for flow, count in zip(stats.flows, stats.packet_count.tolist(), strict=True)
            if isinstance(flow, Flow) and flow.cookie in REASONS and count != COUNTER_UNAVAILABLE
        }
        for flow, count in listed.items():
            port_no = port_of(flow.match.in_port or 0)
            if port_no in ports:
                before = self._listed.get(flow, 0)
                of_port = self._total.setdefault(port_no, dict.fromkeys(REASONS.values(), 0))
                of_port[REASONS[flow.cookie]] += count - before if count >= before else count
        self._listed = listed

    def of_port(self, port_no: int) -> dict[str, int] | None:
        """Return the frames by reason; None where nothing was counted yet."""
        return self._total.get(port_no)
