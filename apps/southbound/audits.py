"""Audits: compare the installed tables of switches with the desired ones, and repair the controller's part."""

from __future__ import annotations

from collections.abc import Callable

from apps.runtime.memory_tuning import freeze_gc_if_large, trim_heap
from apps.southbound.connected_switches import (
    AUDIT_INTERVAL_S,
    FIRST_AUDIT_S,
    REPEAT_S,
    ConnectedSwitch,
    ConnectedSwitches,
    SwitchState,
)
from controller.errors import ProtocolError
from controller.forwarding.pipeline import OWN_COOKIE, OWN_COOKIE_MASK, REFUSAL_COOKIE, REFUSAL_COOKIE_MASK, Table
from controller.openflow.meters import decode_meter_config
from controller.openflow.multipart import encode_flow_stats_request, encode_meter_config_request


class Audits:
    """Audits all switches periodically, and a switch soon after an error reply.

    ``push`` sends due messages; ``yield_control`` lets other greenlets run.
    """

    def __init__(self, peers: ConnectedSwitches, push: Callable[[], None], yield_control: Callable[[], None]) -> None:
        self._peers, self._push, self._yield_control = peers, push, yield_control
        self._unaudited_s: dict[int, float] = {}  # by dpid: connection time of switches that were never compared

    def run_all(self) -> None:
        """Audit every switch that is due; after full comparisons, trim the heap."""
        due = self.due()
        whole = not all(peer.cleaned_up for peer in due)
        for peer in due:
            self._run(peer)
        if whole:
            self._yield_control()
            trim_heap()

    def run_requested(self) -> None:
        """Audit the switches with error replies, each at most once in REPEAT_S."""
        for peer in self._ready():
            now_s = self._peers.clock()
            if peer.audit_requested and now_s - peer.early_audit_s >= REPEAT_S:
                peer.early_audit_s = now_s
                self._run(peer)

    def due(self) -> list[ConnectedSwitch]:
        """Return the switches to audit now: those that are ready and, while others are awaited, did not just connect.

        A switch that reconnects again and again does not delay its audit: the time since its last audit counts.
        """
        ready, fabric, now_s = self._ready(), self._peers.central.fabric, self._peers.clock()
        if not fabric.awaits_switches(now_s):
            return ready
        self._unaudited_s = {dpid: at_s for dpid, at_s in self._unaudited_s.items() if dpid in fabric.switches}
        # It connected before the round that first sees it.
        longest_s = FIRST_AUDIT_S - AUDIT_INTERVAL_S
        return [
            peer
            for peer in ready
            if peer.compared or now_s - self._unaudited_s.setdefault(peer.connection.dpid, now_s) >= longest_s
        ]

    def _ready(self) -> list[ConnectedSwitch]:
        return [peer for peer in self._peers.values() if peer.state == SwitchState.READY and not peer.in_audit]

    def _run(self, peer: ConnectedSwitch) -> None:
        """Audit one switch; a failure is a fault of the switch."""
        peer.audit_requested, peer.in_audit = False, True
        try:
            self._compare(peer)
        except ProtocolError as error:
            if self._peers.is_current(peer):
                text = f"could not be audited: {error}"
                self._peers.report_fault(peer.connection.dpid, text)
        finally:
            peer.in_audit = False

    def _compare(self, peer: ConnectedSwitch) -> None:
        """Compare the installed tables of one switch with the desired ones, and repair the differences."""
        peers, dpid = self._peers, peer.connection.dpid
        self._yield_control()
        if not peers.is_current(peer):
            return
        self._push()
        central, record = peers.central, peers.central.switches[dpid]

        def is_over() -> bool:  # the switch has disconnected, or the configuration has changed
            return not peers.is_current(peer) or central.switches.get(dpid) is not record

        expected, touched, record.changed_keys = central.reconciler.tables(dpid), record.changed_keys, set()
        flows = peer.connection.ask(lambda xid: encode_flow_stats_request(xid, OWN_COOKIE, OWN_COOKIE_MASK))
        meters = peer.connection.ask(encode_meter_config_request)
        dropping = (REFUSAL_COOKIE, REFUSAL_COOKIE_MASK, Table.CLASSIFY)
        refused = peer.connection.ask(lambda xid: encode_flow_stats_request(xid, *dropping))
        try:
            body, config = peers.answer(flows), peers.answer_or_refusal(meters)
            numbers = central.network.numbers
            record.refused.read(
                peers.answer(refused), lambda number: numbers.port(dpid, number).port_no, record.switch.ports
            )
            self._yield_control()
            if is_over():
                return
            changed = peer.listing.read(body, self._yield_control)
            if is_over():
                return
        except ProtocolError:
            record.changed_keys |= touched
            raise
        # Of what the last comparison repaired, only later changes, desired or installed, are compared again. What
        # another switch may need while it connects is compared once that switch is connected.
        tidy = not central.fabric.awaits_switches(peers.clock())
        only = changed | touched if peer.compared and (peer.cleaned_up or not tidy) else None
        peer.compared = False  # until this comparison ends
        installed = decode_meter_config(config or b"")[0]
        for _ in central.reconciler.audit(dpid, expected, peer.listing.own, installed, peers.clock(), only):
            self._yield_control()
            if is_over():
                return
        peer.compared, peer.cleaned_up = True, tidy
        self._unaudited_s.pop(dpid, None)
        if only is None:
            freeze_gc_if_large(len(record.installed))
        self._push()
