"""The shell around the core: asks the switches, runs the interval, sends what follows. All I/O to switches is here."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from apps.runtime.garbage import keep_entries, keeping
from apps.runtime.logs import EventLines
from apps.runtime.loop_times import LoopTimes
from apps.runtime.ryu_seam import Reply, SwitchConnection, hub
from apps.southbound.bring_up import SwitchHoldings, introduce, note_port
from apps.southbound.peers import REPEAT_S, Peer, Peers, SwitchState
from apps.southbound.polling import poll
from apps.southbound.probing import test_meters
from controller.capability import capabilities
from controller.capability.meter_watch import MeterWatch
from controller.capability.queue_watch import QueueWatch
from controller.central import enforceable
from controller.central.controller import CentralController
from controller.columns import FloatArray, IntArray
from controller.errors import ProtocolError, SwitchRefusedError
from controller.fabric.description import Config
from controller.fabric.topology import PortId
from controller.forwarding.host_search import Question
from controller.forwarding.pipeline import OWN_COOKIE, OWN_COOKIE_MASK, Table
from controller.openflow import constants as ofp
from controller.openflow import lldp
from controller.openflow.actions import Output
from controller.openflow.flows import encode_flow_delete_by_cookie
from controller.openflow.messages import ErrorMessage, FlowRemoved, PacketIn, PortStatus, encode_packet_out
from controller.openflow.meters import (
    decode_meter_config,
    encode_meter_deletes,
)
from controller.openflow.stats import (
    encode_flow_stats_request,
    encode_meter_config_request,
)

LOG = logging.getLogger("dets.shell")
# A switch that answers no barrier for so long is not doing what it is told. One that has been told nothing for a while
# is asked all the same: it may have stalled, or a malformed message may have left the rest of the stream unreadable.
BARRIER_TIMEOUT_S = 5.0
BARRIER_INTERVAL_S = 2.5


class Shell:
    """Drives a central controller with the switches of one framework.

    ``clock`` is monotonic; ``on_ports`` is called with a dpid when a switch's ports are known or have changed;
    ``breathe`` lets others run, and returns when the interval has time to spare.
    """

    def __init__(
        self,
        config: Config,
        clock: Callable[[], float],
        on_ports: Callable[[int], None],
        breathe: Callable[[], None] = lambda: None,
    ) -> None:
        self.lines = EventLines(breathe)
        self.central = CentralController(config, self.lines.note)
        self.peers = Peers(self.central, clock)
        self.times = LoopTimes(config.interval_s)
        self.standing_still = hub.Semaphore()  # held while a switch is brought up, or the configuration changes
        self._config = config
        self._clock = clock
        self._on_ports = on_ports
        self._breathe = breathe
        self._key = secrets.token_bytes(32)
        self._push_due = False

    def now_s(self) -> float:
        """Return the time on the shell's clock."""
        return self._clock()

    def is_ready(self, dpid: int) -> bool:
        """Whether a switch is under control."""
        peer = self.peers.get(dpid)
        return peer is not None and peer.state == SwitchState.READY

    def health(self) -> dict[str, Any]:
        """Return the state of every switch by name, what is wrong with those that are ready, and if all is well."""
        states = {
            record.switch.name: str(self.peers[dpid].state if dpid in self.peers else SwitchState.DISCONNECTED)
            for dpid, record in self.central.switches.items()
        }
        now_s = self._clock()
        told = {self.central.switches[dpid].switch.name: peer.troubles(now_s) for dpid, peer in self.peers.items()}
        for dpid in self.peers.ready():
            record = self.central.switches[dpid]
            told[record.switch.name] += capabilities.troubles(record.can, record.switch.ports)
        troubles = {name: texts for name, texts in told.items() if texts}
        ready = not troubles and all(state == SwitchState.READY for state in states.values())
        status = "ready" if ready else "degraded"
        health = {"status": status, "switches": states, "enforceable": enforceable.counts(self.central.fabric)}
        return {**health, "troubles": troubles} if troubles else health

    # -- switches come and go

    def connected(self, connection: SwitchConnection) -> None:
        """A switch has connected: learn what it is and holds, then bring its tables to the desired state."""
        dpid = connection.dpid
        if dpid not in self.central.switches:
            LOG.warning("switch %016x from %s is not in the configuration; left alone", dpid, connection.address)
            return
        self.disconnected(dpid)
        peer = self.peers[dpid] = self._new_peer(connection)
        try:
            self._bring_up(dpid, peer)
        except Exception as error:  # whatever it is, the switch must not stay half brought up: it is to connect anew
            if not isinstance(error, ProtocolError):
                LOG.exception("bringing up switch %016x failed", dpid)
            if self.peers.holds(peer):
                peer.state = SwitchState.FAILED
                self.peers.complain(dpid, f"could not be brought up: {error}")
                connection.disconnect()

    def _new_peer(self, connection: SwitchConnection) -> Peer:
        dpid = connection.dpid
        ports = self.central.switches[dpid].switch.ports

        def settings(meter_id: IntArray) -> tuple[FloatArray, FloatArray]:
            return self.central.fabric.meter_settings(dpid, meter_id)

        meters = MeterWatch(np.array(list(ports), dtype=np.int64), settings)
        return Peer(connection, meters, QueueWatch({port.port_no: port.vlan_vids for port in ports.values()}))

    def disconnected(self, dpid: int, connection: SwitchConnection | None = None) -> None:
        """A connection has gone (unless the switch has a newer one by now)."""
        peer = self.peers.get(dpid)
        if peer is None or (connection is not None and peer.connection is not connection):
            return
        del self.peers[dpid]
        peer.connection.close()
        if self.central.switches[dpid].connected:
            self.central.switch_disconnected(dpid, self._clock())
            self.push()

    def _bring_up(self, dpid: int, peer: Peer) -> None:
        breathe = keeping(self._breathe)
        holds = introduce(self.peers, peer, breathe)
        if not self.peers.holds(peer):
            return
        test_meters(self.peers, peer, holds.meter_ids)
        peer.count_by_flows(not self.central.switches[dpid].can.counts_meters)
        if not self._take_over(dpid, peer, holds, breathe):
            return
        self.push()
        self.peers.answer(peer.connection.barrier())
        if not self.peers.holds(peer):
            return
        peer.state = SwitchState.READY
        peer.counted_s = self._clock()
        keep_entries(len(self.central.switches[dpid].installed))
        self._on_ports(dpid)
        for port_no in list(peer.ports):
            self._say_hello(dpid, port_no)

    def _take_over(self, dpid: int, peer: Peer, holds: SwitchHoldings, breathe: Callable[[], None]) -> bool:
        """Take over what a switch holds; tell whether it is still there."""
        with self.standing_still:
            if not self.peers.holds(peer):
                return False
            for _ in self.central.reconciler.bring_up(dpid, holds.flows, holds.meters, self._clock()):
                breathe()
                if not self.peers.holds(peer):
                    return False
        self.central.reconciler.note_up(dpid, self._clock())
        early, peer.early = peer.early, []
        for status in early:
            self.port_changed(dpid, status)
        return True

    # -- what switches report

    def frame_reported(self, dpid: int, packet: PacketIn) -> None:
        """A packet-in; ignored before it is known what the switch holds, for its entries may say more than a frame."""
        peer = self.peers.get(dpid)
        if peer is not None and peer.probe is not None and peer.probe.heard(packet):
            return
        if not self.central.switches[dpid].connected or packet.in_port > ofp.PORT_MAX:
            return
        if packet.table_id == Table.CLASSIFY:
            self._hello_heard(dpid, packet)
        else:
            self.central.frame_reported(dpid, packet, self._clock())
        self.push_soon()

    def entry_removed(self, dpid: int, removed: FlowRemoved) -> None:
        """A flow-removed."""
        ours = removed.cookie & OWN_COOKIE_MASK == OWN_COOKIE
        if ours and removed.reason == ofp.FlowRemovedReason.IDLE_TIMEOUT and self.central.switches[dpid].connected:
            self.central.entry_removed(dpid, removed, self._clock())
            self.push_soon()

    def port_changed(self, dpid: int, status: PortStatus) -> None:
        """A port-status."""
        peer = self.peers.get(dpid)
        if peer is None:
            return
        if not self.central.switches[dpid].connected:
            peer.early.append(status)
            return
        note_port(peer, status)
        port = status.port
        if status.reason == ofp.PortReason.DELETE or not port.up:
            self.central.port_down(dpid, port.port_no, self._clock())
        else:
            self._say_hello(dpid, port.port_no)
        self._on_ports(dpid)
        self.push_soon()

    def error_reported(self, dpid: int, error: ErrorMessage) -> None:
        """A switch refused something: say so, and compare its tables with what they should hold.

        Both no more than once in REPEAT_S for the same reason.
        """
        peer = self.peers.get(dpid)
        if peer is None or peer.connection.fail(error.xid, SwitchRefusedError(error.text)):
            return
        if peer.probe is not None and peer.probe.failed(error):
            return
        refused = ofp.MessageType(error.data[1]).name if len(error.data) > 1 else "a message"
        text = f"refused {refused}: {error.text}"
        now_s = self._clock()
        if refused == ofp.MessageType.METER_MOD.name:
            peer.meters_refused_s = now_s
        if now_s - peer.complaints.get(text, -math.inf) >= REPEAT_S:
            peer.complaints[text] = now_s
            self.peers.complain(dpid, text)
        peer.audit_wanted = True

    # -- links

    def say_hellos(self) -> None:
        """Send a hello out of every port that may lead to another switch."""
        for dpid, peer in list(self.peers.items()):  # sending may wait, and switches and ports come and go meanwhile
            for port_no in list(peer.ports):
                self._say_hello(dpid, port_no)

    def _say_hello(self, dpid: int, port_no: int) -> None:
        peer = self.peers.get(dpid)
        port = peer.ports.get(port_no) if peer is not None else None
        if peer is None or port is None or not port.up or port_no > ofp.PORT_MAX:
            return
        if self.central.network.edge_port(PortId(dpid, port_no)) is not None:
            return
        frame = lldp.build(dpid, port_no, lldp.authenticator(self._key, dpid, port_no))
        action = (Output(port_no),)
        peer.connection.send(lambda xid: encode_packet_out(xid, ofp.PORT_CONTROLLER, action, frame), 1)

    def _hello_heard(self, dpid: int, packet: PacketIn) -> None:
        info = lldp.parse(packet.data)
        if info is None or not lldp.is_authentic(info, self._key):
            return  # a neighbour's own LLDP, or somebody's forgery
        receiver = PortId(dpid, packet.in_port)
        news = not self.central.network.topology.is_linked(receiver)
        self.central.hello_heard(PortId(info.dpid, info.port_no), receiver, self._clock())
        if news:  # answer at once, so that a link is up after one round trip
            self._say_hello(*receiver)

    # -- the interval

    def run_interval(self) -> None:
        """Read the counters, run one control step, send what it decides."""
        started_s = self._clock()
        counters = poll(self.peers, started_s, started_s + self._config.interval_s * 0.8)
        now_s = self._clock()
        result = self.central.interval(counters.meters, counters.received_s, now_s, counters.confirmed_s)
        self.central.tick(now_s)
        decided_s = self._clock()
        self.push()
        self.times.note(
            (started_s, now_s, decided_s, self._clock()),
            entries=len(self.central.state.entries),
            read=sum(map(len, counters.meters.values())),
            changed=len(result.changes.rows),
            unanswered=counters.unanswered,
        )
        self._check_barriers(now_s)

    # -- sending

    def push_soon(self) -> None:
        """Send what is due once the reports that are here already have been handled."""
        if not self._push_due:
            self._push_due = True
            hub.spawn(self._push_now)

    def _push_now(self) -> None:
        self._push_due = False
        self.push()

    def push(self) -> None:
        """Send what is due: one batch and one barrier per switch."""
        for dpid, update in self.central.take_updates().items():
            peer = self.peers.get(dpid)
            if peer is not None:
                peer.connection.send(update.encode, len(update))
                if peer.counting is not None:
                    peer.counting.modified(update.meter_id)
                done = self._ask_barrier(peer)
                if len(update.meter_mods()[0]):
                    peer.meters_set = done
                    if peer.poll is not None:
                        peer.overtaken.append(update.meter_mods()[1])
        for question in self.central.take_questions(self._clock()):
            self._ask_host(question)

    def _ask_host(self, question: Question) -> None:
        """Let a switch handle a frame as if it had come in by one of its ports (OpenFlow 1.3.5, section 7.3.7)."""
        peer = self.peers.get(question.port.dpid)
        if peer is not None:
            actions = (Output(ofp.PORT_TABLE),)
            peer.connection.send(lambda xid: encode_packet_out(xid, question.port.port_no, actions, question.frame), 1)

    def _ask_barrier(self, peer: Peer) -> Reply:
        peer.asked_s = self._clock()
        reply = peer.connection.barrier()
        peer.unfinished.append((peer.asked_s, reply))
        return reply

    def _check_barriers(self, now_s: float) -> None:
        for dpid, peer in list(self.peers.items()):
            peer.unfinished = [(at_s, reply) for at_s, reply in peer.unfinished if not reply.done]
            if peer.unfinished and now_s - peer.unfinished[0][0] > BARRIER_TIMEOUT_S:
                self.peers.complain(dpid, f"did not confirm its messages for {BARRIER_TIMEOUT_S:g} s; connecting anew")
                peer.connection.disconnect()
            elif peer.state == SwitchState.READY and now_s - peer.asked_s >= BARRIER_INTERVAL_S:
                self._ask_barrier(peer)

    def settle_all(self) -> None:
        """Leave the switches with meters at the exact rates of their limits, and wait until it is done."""
        self.central.settle(self._clock())
        self.push()
        self._await_all([peer.connection.barrier() for peer in list(self.peers.values())])

    def renew_peers(self) -> None:
        """The configuration is another: look at the ports that it names, and at none that it does not."""
        for dpid, peer in self.peers.items():
            if dpid in self.central.switches:
                fresh = self._new_peer(peer.connection)
                peer.meters, peer.queues = fresh.meters, fresh.queues

    def let_go(self, peer: Peer, meters: list[int] | None) -> None:
        """Let a switch connect anew; before, take all of ours off it if these are its meters, and no longer ours."""
        if meters is not None:
            self._await_all([self._remove_ours(peer, meters)])
        peer.connection.close()
        peer.connection.disconnect()

    def _remove_ours(self, peer: Peer, meters: list[int]) -> Reply:
        delete = partial(encode_flow_delete_by_cookie, OWN_COOKIE, OWN_COOKIE_MASK)
        peer.connection.send(delete, 1)
        peer.connection.send(partial(encode_meter_deletes, meters), len(meters))
        return peer.connection.barrier()

    def remove_all(self) -> None:
        """Take everything of ours off the switches, and wait until it is done."""
        peers = list(self.peers.items())
        tables = self.central.reconciler.tables
        self._await_all([self._remove_ours(peer, sorted(tables(dpid).meters)) for dpid, peer in peers])

    def _await_all(self, replies: Iterable[Reply]) -> None:
        deadline_s = self._clock() + BARRIER_TIMEOUT_S
        for reply in replies:
            reply.wait(deadline_s - self._clock())

    # -- audits

    def run_audits(self, *, only_wanted: bool) -> None:
        """Compare the tables of the switches with what they should hold, and mend what is ours."""
        for dpid, peer in list(self.peers.items()):
            wanted = peer.audit_wanted and self._clock() - peer.hurried_s >= REPEAT_S
            if peer.state == SwitchState.READY and (wanted or not only_wanted) and not peer.in_audit:
                peer.audit_wanted = False
                if only_wanted:
                    peer.hurried_s = self._clock()
                peer.in_audit = True
                try:
                    self._audit(dpid, peer)
                except ProtocolError as error:
                    self.peers.complain(dpid, f"could not be compared with what it should hold: {error}")
                finally:
                    peer.in_audit = False

    def _audit(self, dpid: int, peer: Peer) -> None:
        self._breathe()
        if not self.peers.holds(peer):
            return
        self.push()
        record = self.central.switches[dpid]

        def is_over() -> bool:  # the switch has gone, or the configuration has become another
            return not self.peers.holds(peer) or self.central.switches.get(dpid) is not record

        expected, touched, record.touched = self.central.reconciler.tables(dpid), record.touched, set()
        flows = peer.connection.ask(lambda xid: encode_flow_stats_request(xid, OWN_COOKIE, OWN_COOKIE_MASK))
        meters = peer.connection.ask(encode_meter_config_request)
        try:
            body, config = self.peers.answer(flows), self.peers.answer_or_refusal(meters)
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
        all_there = not self.central.fabric.awaits_switches(self._clock())
        standing = decode_meter_config(config or b"")[0]
        for _ in self.central.reconciler.audit(dpid, expected, peer.listing.own, standing, self._clock(), only):
            self._breathe()
            if is_over():
                return
        peer.compared = all_there  # what may be of use to one that is on its way is looked at again
        if only is None:
            keep_entries(len(record.installed))
        self.push()
