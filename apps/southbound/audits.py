"""Audits: the tables of switches are compared with what they should hold, and what is the controller's is mended."""

from __future__ import annotations

from collections.abc import Callable

from apps.runtime.garbage import give_back, keep_entries
from apps.southbound.peers import REPEAT_S, Peer, Peers, SwitchState
from controller.errors import ProtocolError
from controller.forwarding.pipeline import OWN_COOKIE, OWN_COOKIE_MASK
from controller.openflow.meters import decode_meter_config
from controller.openflow.stats import encode_flow_stats_request, encode_meter_config_request


class Audits:
    """Audits all switches now and then, and one that refused something soon.

    ``push`` sends what is due; ``breathe`` lets others run.
    """

    def __init__(self, peers: Peers, push: Callable[[], None], breathe: Callable[[], None]) -> None:
        self._peers, self._push, self._breathe = peers, push, breathe

    def run_all(self) -> None:
        """Audit every switch that is ready; once some have been compared as a whole, give back what that took."""
        ready = self._ready()
        whole = not all(peer.compared for peer in ready)
        for peer in ready:
            self._run(peer)
        if whole:
            self._breathe()
            give_back()

    def run_wanted(self) -> None:
        """Audit the switches that have refused something, each no more than once in REPEAT_S."""
        for peer in self._ready():
            now_s = self._peers.clock()
            if peer.audit_wanted and now_s - peer.hurried_s >= REPEAT_S:
                peer.hurried_s = now_s
                self._run(peer)

    def _ready(self) -> list[Peer]:
        return [peer for peer in self._peers.values() if peer.state == SwitchState.READY and not peer.in_audit]

    def _run(self, peer: Peer) -> None:
        peer.audit_wanted, peer.in_audit = False, True
        try:
            self._compare(peer)
        except ProtocolError as error:
            if self._peers.holds(peer):
                text = f"could not be compared with what it should hold: {error}"
                self._peers.complain(peer.connection.dpid, text)
        finally:
            peer.in_audit = False

    def _compare(self, peer: Peer) -> None:
        peers, dpid = self._peers, peer.connection.dpid
        self._breathe()
        if not peers.holds(peer):
            return
        self._push()
        central, record = peers.central, peers.central.switches[dpid]

        def is_over() -> bool:  # the switch has gone, or the configuration has become another
            return not peers.holds(peer) or central.switches.get(dpid) is not record

        expected, touched, record.touched = central.reconciler.tables(dpid), record.touched, set()
        flows = peer.connection.ask(lambda xid: encode_flow_stats_request(xid, OWN_COOKIE, OWN_COOKIE_MASK))
        meters = peer.connection.ask(encode_meter_config_request)
        try:
            body, config = peers.answer(flows), peers.answer_or_refusal(meters)
            self._breathe()
            if is_over():
                return
            changed = peer.listing.read(body, self._breathe)
            if is_over():
                return
        except ProtocolError:
            record.touched |= touched
            raise
        # Of what the last comparison has put right only what has changed since, here or there, is looked at again.
        only = changed | touched if peer.compared else None
        peer.compared = False  # unless this comparison comes to its end
        all_there = not central.fabric.awaits_switches(peers.clock())
        standing = decode_meter_config(config or b"")[0]
        for _ in central.reconciler.audit(dpid, expected, peer.listing.own, standing, peers.clock(), only):
            self._breathe()
            if is_over():
                return
        peer.compared = all_there  # what may be of use to one that is on its way is looked at again
        if only is None:
            keep_entries(len(record.installed))
        self._push()
