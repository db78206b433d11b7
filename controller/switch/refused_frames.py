"""Host frames that no VLAN of their edge port accepts, by reason: counters of the flow entries that drop them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from controller.forwarding.pipeline import Refusal
from controller.openflow.bounded_reader import Buffer
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.flows import Flow, decode_flow_stats

REASONS = {refusal.cookie: refusal.name.lower().replace("_", "-") for refusal in Refusal}


class RefusedFrames:
    """The frames that one switch has dropped at each edge port, by reason, since the controller first counted them."""

    def __init__(self) -> None:
        self._total: dict[int, dict[str, int]] = {}
        self._listed: dict[Flow, int] = {}
        self._known: Mapping[bytes, Flow] = {}

    def read(self, body: Buffer, port_of: Callable[[int], int], ports: Container[int]) -> None:
        """Add the counts since the last reply at these ports; ``port_of`` returns the port with a number.

        A recreated flow entry counts from zero. Raises ProtocolError if malformed, with nothing added.
        """
        stats = decode_flow_stats(body, self._known)
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
        self._listed, self._known = listed, stats.known

    def counts_at_port(self, port_no: int) -> dict[str, int] | None:
        """Return the frames by reason; None before the first count."""
        return self._total.get(port_no)
