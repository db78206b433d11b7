"""Looks at ports between two rounds of the control loop, and lets the next one begin sooner (docs/adr/0261).

A look is a hint: what is wrong with a switch's answer is found where rounds read its ports
(``apps.southbound.polling``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from apps.runtime.ryu_seam import MOST_PORTS, PORT_CALL, Reply, call_all
from apps.southbound.peers import MOST_BYTES, POLL_PATIENCE_S, Peer
from apps.southbound.shell import Shell
from controller.errors import ProtocolError
from controller.loop.early_rounds import SOONEST_S, EarlyRounds, PortCounters
from controller.openflow.stats import PORT_BYTES, decode_port_stats, encode_port_stats_request

MOST_SHARE = 0.05
"""Looks come so seldom that asking and deciding take no more of the process than this part."""


class Looks:
    """Waits for the rounds of a shell's loop; every ``look_s`` meanwhile it looks at all ports.

    ``clock`` is monotonic, ``sleep`` lets others run. ``guard`` makes of the look one that fails without ending the
    loop. A switch that has not answered is not asked again before it has, or for POLL_PATIENCE_S; nobody waits for it
    for longer than half of ``look_s``.
    """

    def __init__(
        self,
        shell: Shell,
        look_s: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        guard: Callable[[Callable[[], None]], Callable[[], None]] = lambda look: look,
    ) -> None:
        self._shell, self._look_s, self._clock, self._sleep = shell, look_s, clock, sleep
        self._look = guard(self._look_once)
        self._rounds = EarlyRounds()
        self._due_s = clock()  # the next look
        self._began = False
        self._others: dict[Peer, tuple[float, Reply]] = {}  # who is not in a roll call: asked when, and the answer

    def wait(self, left_s: float) -> None:
        """Return when the next round is due, in so many seconds, or sooner if it is to begin at once."""
        round_due_s = self._clock() + left_s
        last = self._shell.times.last
        readable_s = -np.inf if last is None else last.started_s + SOONEST_S
        while (at_s := max(self._due_s, self._clock())) < round_due_s:
            self._sleep(at_s - self._clock())
            self._due_s, self._began = at_s + self._look_s, False
            self._look()
            if self._began:
                self._shell.times.early_rounds += 1
                self._sleep(max(readable_s - self._clock(), 0.0))
                return
        self._sleep(max(round_due_s - self._clock(), 0.0))

    def _look_once(self) -> None:
        now_s, fabric = self._clock(), self._shell.central.fabric
        called = self._ask_all(now_s)
        asked_s, until_s = self._clock(), now_s + self._look_s / 2
        PORT_CALL.wait(until_s - asked_s)
        others = {peer: reply for peer, (at_s, reply) in self._others.items() if at_s == now_s}
        came = [peer for peer, reply in others.items() if _comes(reply, until_s - self._clock())]
        read_s = self._clock()
        counters = _joined(self._told(called, now_s), [(peer, others[peer]) for peer in came])
        counters = self._configured(counters)
        self._began = self._rounds.look(fabric.vns, fabric.congestion.congested, counters, now_s)
        took_s = asked_s - now_s + self._clock() - read_s
        self._due_s = max(self._due_s, self._clock() + took_s / MOST_SHARE)

    def _configured(self, counters: PortCounters) -> PortCounters:
        """Return the counters by the numbers that the configuration has for ports."""
        numbers, port_no, first = self._shell.central.network.numbers, counters.port_no, 0
        for dpid, end in zip(counters.dpids, counters.ends.tolist(), strict=True):
            if numbers.bound(dpid):
                port_no = port_no.copy() if port_no is counters.port_no else port_no
                port_no[first:end] = numbers.ports(dpid, port_no[first:end])
            first = end
        return counters._replace(port_no=port_no)

    def _ask_all(self, now_s: float) -> list[Peer]:
        """Ask the switches that owe no answer for the counters of their ports; return whom a roll call awaits."""
        peers = self._shell.peers
        self._others = {peer: asked for peer, asked in self._others.items() if peers.holds(peer)}
        to_ask = [peer for peer in peers.ready().values() if peer.poll is None and not self._owes(peer, now_s)]
        to_call = [peer for peer in to_ask if 0 < peer.ports_listed <= MOST_PORTS]
        lanes = call_all(PORT_CALL, [peer.connection for peer in to_call], encode_port_stats_request)
        called = {peer: lane for peer, lane in zip(to_call, lanes, strict=True) if lane is not None}
        for peer in to_ask:
            if peer not in called:
                self._others[peer] = now_s, peer.connection.ask(encode_port_stats_request)
        PORT_CALL.expect([peer.ports_listed for peer in called])
        PORT_CALL.call([fileno for fileno, _ in called.values()], [xid for _, xid in called.values()])
        return list(called)

    def _owes(self, peer: Peer, now_s: float) -> bool:
        """Return whether a switch has still to answer; an answer that is there says how many ports it has."""
        if peer not in self._others:
            return False
        asked_s, reply = self._others[peer]
        if not reply.done and now_s - asked_s < POLL_PATIENCE_S:
            return True
        del self._others[peer]
        peer.connection.forget(reply)
        if reply.done and reply.error is None:
            peer.ports_listed = sum(map(len, reply.parts)) // PORT_BYTES
        return False

    def _told(self, called: list[Peer], now_s: float) -> PortCounters:
        """Return what the roll call was told; the answers of the others are awaited still."""
        told = ~np.isnan(PORT_CALL.at_s)
        if told.all():
            for peer in called:
                peer.connection.count.received += 1
            dpids = [peer.connection.dpid for peer in called]
            return PortCounters(dpids, PORT_CALL.port_no, PORT_CALL.sent_bytes, PORT_CALL.ends)
        for number in np.flatnonzero(~told).tolist():
            self._others[called[number]] = now_s, called[number].connection.recall(PORT_CALL)
        answered = [called[number] for number in np.flatnonzero(told).tolist()]
        for peer in answered:
            peer.connection.count.received += 1
        ports = np.diff(PORT_CALL.ends, prepend=0)
        here = np.repeat(told, ports)
        dpids = [peer.connection.dpid for peer in answered]
        return PortCounters(dpids, PORT_CALL.port_no[here], PORT_CALL.sent_bytes[here], np.cumsum(ports[told]))


def _comes(reply: Reply, timeout_s: float) -> bool:
    """Return whether a whole answer comes in time that is no refusal, and not far too long."""
    try:
        return reply.comes(timeout_s) and reply.octets <= MOST_BYTES
    except ProtocolError:
        return False


def _joined(counters: PortCounters, answers: list[tuple[Peer, Reply]]) -> PortCounters:
    """Return the counters with those of these answers, as far as they can be read."""
    dpids, stats = [], []
    for peer, reply in answers:
        try:
            stats.append(decode_port_stats(b"".join(reply.parts)))
        except ProtocolError:
            continue
        dpids.append(peer.connection.dpid)
    if not stats:
        return counters
    ports = np.concatenate(stats)
    return PortCounters(
        counters.dpids + dpids,
        np.concatenate((counters.port_no, ports["port_no"].astype(np.int64))),
        np.concatenate((counters.sent_bytes, ports["tx_bytes"])),
        np.append(counters.ends, len(counters.port_no) + np.cumsum([len(one) for one in stats])),
    )
