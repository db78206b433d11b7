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
        self._first_seen_s: dict[int, float] = {}  # by dpid: when ``due`` first saw a switch that was never compared

    def run_all(self) -> None:
        """Audit every switch that is due. A comparison of whole tables needs much memory: trim the heap after it."""
        due = self.due()
        compares_whole_tables = not all(peer.cleaned_up for peer in due)
        for peer in due:
            self._run(peer)
        if compares_whole_tables:
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
        """Return the switches to audit now: all that are ready, except new ones while configured switches are missing.

        A new switch is audited about FIRST_AUDIT_S after it first connected; reconnecting does not delay the audit.
        """
        ready, fabric, now_s = self._ready(), self._peers.central.fabric, self._peers.clock()
        if not fabric.awaits_switches(now_s):
            return ready
        self._first_seen_s = {dpid: seen_s for dpid, seen_s in self._first_seen_s.items() if dpid in fabric.switches}
        # A switch may have connected up to AUDIT_INTERVAL_S before the round that first sees it.
        min_age_s = FIRST_AUDIT_S - AUDIT_INTERVAL_S
        return [
            peer
            for peer in ready
            if peer.compared or now_s - self._first_seen_s.setdefault(peer.connection.dpid, now_s) >= min_age_s
        ]

    def _ready(self) -> list[ConnectedSwitch]:
        """Return the switches that can be audited: under control, and not in an audit."""
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
        """Compare the installed tables of one switch with the desired ones, and repair the differences.

        Ends early if the switch disconnects or the configuration changes. Raises ProtocolError for a bad or late reply.
        """
        peers, dpid = self._peers, peer.connection.dpid
        self._yield_control()
        if not peers.is_current(peer):
            return
        self._push()
        central, record = peers.central, peers.central.switches[dpid]

        def is_obsolete() -> bool:  # the switch has disconnected, or the configuration has changed
            return not peers.is_current(peer) or central.switches.get(dpid) is not record

        expected = central.reconciler.tables(dpid)
        desired_changes, record.changed_keys = record.changed_keys, set()
        flows_reply = peer.connection.ask(lambda xid: encode_flow_stats_request(xid, OWN_COOKIE, OWN_COOKIE_MASK))
        meters_reply = peer.connection.ask(encode_meter_config_request)
        # The flow entries that drop frames at edge ports: ``record.refused`` reads their counters.
        drop_entries = (REFUSAL_COOKIE, REFUSAL_COOKIE_MASK, Table.CLASSIFY)
        drops_reply = peer.connection.ask(lambda xid: encode_flow_stats_request(xid, *drop_entries))
        try:
            flow_stats, meter_config = peers.answer(flows_reply), peers.answer_or_refusal(meters_reply)
            numbers = central.network.numbers
            record.refused.read(
                peers.answer(drops_reply), lambda number: numbers.port(dpid, number).port_no, record.switch.ports
            )
            self._yield_control()
            if is_obsolete():
                return
            installed_changes = peer.listing.read(flow_stats, self._yield_control)
            if is_obsolete():
                return
        except ProtocolError:
            record.changed_keys |= desired_changes
            raise
        # After a whole comparison, only entries that changed since, desired or installed, are compared. While
        # configured switches are missing, flow entries that they may need are not removed, so the first comparison
        # after they have connected is whole again.
        all_connected = not central.fabric.awaits_switches(peers.clock())
        only_changes = peer.compared and (peer.cleaned_up or not all_connected)
        compared_keys = installed_changes | desired_changes if only_changes else None
        peer.compared = False  # until this comparison ends
        meters = decode_meter_config(meter_config or b"")[0]
        for _ in central.reconciler.audit(dpid, expected, peer.listing.own, meters, peers.clock(), compared_keys):
            self._yield_control()
            if is_obsolete():
                return
        peer.compared, peer.cleaned_up = True, all_connected
        self._first_seen_s.pop(dpid, None)
        if compared_keys is None:
            freeze_gc_if_large(len(record.installed))
        self._push()
