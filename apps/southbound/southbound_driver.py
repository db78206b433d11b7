"""The southbound driver: it brings up switches that connect, runs the control interval, and sends messages.

The interval waits for switches only while it polls them, for a part of its length (docs/adr/0077).
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, Protocol

import numpy as np

from apps.runtime.connection.connection_limits import EvictionReason, LogRateLimiter, MessageCounts
from apps.runtime.logs import EventLines
from apps.runtime.loop_stats import LoopStats
from apps.runtime.memory_tuning import freeze_gc_if_large, with_gc_freezing
from apps.runtime.ryu_adapter import Reply, SwitchConnection, hub
from apps.southbound.agent_frames import AgentFrames
from apps.southbound.async_messages import AsyncMessageHandler
from apps.southbound.audits import Audits
from apps.southbound.bring_up import InstalledState, read_switch
from apps.southbound.capability_tests import test_meters
from apps.southbound.connected_switches import Batch, ConnectedSwitch, ConnectedSwitches, SwitchState
from apps.southbound.dpid_arbitration import DpidArbiter
from apps.southbound.edge_ports import EdgePorts
from apps.southbound.link_discovery import LinkDiscovery
from apps.southbound.polling import poll
from controller.capability import capabilities
from controller.capability.meter_monitor import MeterMonitor
from controller.capability.queue_monitor import QueueMonitor
from controller.central import edge_ports, port_enforceability
from controller.central.controller import CentralController
from controller.columns import IntArray, UInt32Array
from controller.errors import ProtocolError
from controller.events import EventKind
from controller.fabric.config_model import Config
from controller.forwarding.host_probing import HostProbe
from controller.forwarding.pipeline import OWN_COOKIE, OWN_COOKIE_MASK
from controller.limits.effective_settings import EffectiveSettings
from controller.openflow import constants as ofp
from controller.openflow.actions import Output
from controller.openflow.bounded_reader import MAX_XID
from controller.openflow.flows import encode_flow_delete_by_cookie
from controller.openflow.messages import encode_packet_out
from controller.openflow.meters import encode_meter_deletes
from controller.switch.flow_stats_reader import InstalledFlows
from controller.switch.switch_record import SwitchUpdate, encode_updates

LOG = logging.getLogger("dets.southbound")
# A switch without a barrier reply for this time does not execute its messages. An idle switch gets a barrier request,
# too: it may have stalled, or a malformed message may have made the rest of the stream unreadable.
BARRIER_TIMEOUT_S = 5.0
BARRIER_INTERVAL_S = 2.5
# If a round is late by more than this time, the process was stopped and read nothing: missing messages prove nothing.
STALL_S = 0.5


class Roles(Protocol):
    """The role manager of a cluster: switches wait until this node is their master (``apps.cluster.role_manager``)."""

    def connection(self, dpid: int) -> SwitchConnection | None:
        """Return the connection of a switch, under control or not."""

    def on_connected(self, connection: SwitchConnection) -> None:
        """Handle a new connection of a configured switch."""

    def on_demoted(self, connection: SwitchConnection) -> None:
        """Handle a switch that reports another controller as its master."""


class SouthboundDriver:
    """Connects a central controller to real switches.

    ``clock`` is monotonic. ``on_ports`` is called with a dpid when a switch's ports have been read or have changed.
    ``yield_control`` lets other greenlets run, and returns when the control loop is idle. Inside the context
    ``waiting`` the loop waits, so other work may run. With ``roles``, the role manager gets the connections first, and
    calls ``control`` and ``release``.
    """

    def __init__(
        self,
        config: Config,
        clock: Callable[[], float],
        on_ports: Callable[[int], None],
        yield_control: Callable[[], None] = lambda: None,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
        roles: Roles | None = None,
    ) -> None:
        self.roles = roles
        self.lines = EventLines(yield_control, hub.Event())
        self.central = CentralController(config, self.lines.note, random.getrandbits(32))
        self.peers = ConnectedSwitches(self.central, clock)
        self.link_discovery = LinkDiscovery(self.peers, yield_control)
        self.agents = AgentFrames(self.peers)
        self.edge_ports = EdgePorts(self.peers)
        self.audits = Audits(self.peers, self.push, yield_control)
        self.unmanaged: set[SwitchConnection] = set()  # connected, not controlled
        self.counts: dict[int, MessageCounts] = {}  # by configured dpid
        self.times = LoopStats(config.interval_s)
        self.switch_lock = hub.Semaphore()  # held while a switch is brought up, or the configuration changes
        self._config = config
        self._clock = clock
        self._on_ports = on_ports
        self._yield_control, self._waiting = yield_control, waiting
        self._push_due = False
        self._awake_s = math.inf  # when the process was last known to run
        self._async_messages = AsyncMessageHandler(
            self.peers, self.link_discovery, self.agents, self.edge_ports, self.push_soon, on_ports, self._demoted
        )
        self._dpid_arbiter = DpidArbiter(self.peers, self._owner)
        self._log_limiter = LogRateLimiter(clock)

    def now_s(self) -> float:
        """Return the time of the driver's clock."""
        return self._clock()

    def is_ready(self, dpid: int) -> bool:
        """Return whether a switch is under control."""
        peer = self.peers.get(dpid)
        return peer is not None and peer.state == SwitchState.READY

    def health(self) -> dict[str, Any]:
        """Return the state of every switch by name, the faults of ready ones, and whether all is well.

        ``enforceable`` are numbers of ports, ``full_vns`` is the number of VNs that may have no more hosts.
        """
        states = {
            record.switch.name: str(self.peers[dpid].state if dpid in self.peers else self._uncontrolled_state(dpid))
            for dpid, record in self.central.switches.items()
        }
        now_s = self._clock()
        all_faults = {self.central.switches[dpid].switch.name: peer.faults(now_s) for dpid, peer in self.peers.items()}
        for dpid in self.peers.ready():
            record = self.central.switches[dpid]
            all_faults[record.switch.name] += capabilities.faults(record.capabilities, record.switch.ports)
            all_faults[record.switch.name] += edge_ports.faults(record)
        faults = {name: texts for name, texts in all_faults.items() if texts}
        ready = not faults and all(state == SwitchState.READY for state in states.values())
        status = "ready" if ready else "degraded"
        counts = port_enforceability.verdict_counts(self.central.fabric)
        health: dict[str, Any] = {"status": status, "switches": states, "enforceable": counts}
        if full_vns := int(self.central.network.known.full_vns().sum()):
            health["full_vns"] = full_vns
        return {**health, "faults": faults} if faults else health

    def _uncontrolled_state(self, dpid: int) -> SwitchState:
        """Return the state of a switch that this node does not control: connected as standby, or disconnected."""
        return SwitchState.STANDBY if self._owner(dpid) is not None else SwitchState.DISCONNECTED

    def _owner(self, dpid: int) -> SwitchConnection | None:
        """Return the present connection of a switch, under control or not; None if it is disconnected."""
        if self.roles is not None:
            return self.roles.connection(dpid)
        peer = self.peers.get(dpid)
        return None if peer is None else peer.connection

    # -- switches come and go

    def connected(self, connection: SwitchConnection) -> None:
        """Handle a new connection: bring up a configured switch, or pass it to the role manager; ignore others."""
        dpid = connection.dpid
        self.unmanaged.add(connection)
        connection.on_close = partial(self.unmanaged.discard, connection)
        if connection.closed:
            self.unmanaged.discard(connection)
        elif dpid not in self.central.switches:
            if self._log_limiter.due(connection.address[0]):
                LOG.warning("switch %016x from %s is not in the configuration; ignored", dpid, connection.address)
        # ``admit`` may wait; a reload may remove the switch in the meantime.
        elif self._dpid_arbiter.admit(connection) and dpid in self.central.switches:
            if self.roles is None:
                self.control(connection)
            else:
                self.unmanaged.discard(connection)
                self.roles.on_connected(connection)

    def release(self, connection: SwitchConnection) -> None:
        """Stop controlling a switch that has another master now; the switch and its connection stay as they are."""
        dpid = connection.dpid
        peer = self.peers.get(dpid)
        if peer is None or peer.connection is not connection:
            return
        if self.central.fabric.share.is_whole:  # not sharded: without the switch, this node has no use of its state
            self.disconnected(peer)
            return
        del self.peers[dpid]
        if self.central.switches[dpid].connected:
            self.central.on_switch_released(dpid, self._clock())

    def start_over(self, config: Config, values: EffectiveSettings) -> None:
        """Release all switches and begin anew with ``config`` and ``values``: another controller changed the fabric."""
        for peer in list(self.peers.values()):
            self.disconnected(peer)
        self.central.reset(config, values, random.getrandbits(32))

    def _demoted(self, peer: ConnectedSwitch) -> None:
        """Pass a switch that reports another controller as its master to the role manager."""
        if self.roles is not None:
            self.roles.on_demoted(peer.connection)

    def control(self, connection: SwitchConnection) -> None:
        """Take a switch under control and bring it up."""
        dpid = connection.dpid
        if dpid not in self.central.switches:  # a reload has removed it
            connection.disconnect()
            return
        before = self.peers.get(dpid)
        if before is not None:
            self.disconnected(before)
            before.connection.disconnect(EvictionReason.REPLACED)
        self.unmanaged.discard(connection)
        peer = self.peers[dpid] = self._new_peer(connection)
        connection.count = self.counts.setdefault(dpid, connection.count)  # goes on from the switch's last connection
        connection.on_report = partial(self._async_messages.handle, peer)
        connection.on_close = partial(self.disconnected, peer)
        connection.keep()
        try:
            self._bring_up(dpid, peer)
        except Exception as error:  # the switch must reconnect, since its bring-up is incomplete
            if not isinstance(error, ProtocolError):
                LOG.exception("bringing up switch %016x failed", dpid)
            if self.peers.is_current(peer):
                peer.state = SwitchState.FAILED
                self.peers.report_fault(dpid, f"could not be brought up: {error}")
                connection.disconnect()

    def _new_peer(self, connection: SwitchConnection) -> ConnectedSwitch:
        """Return the state of a new connection: no flow entries yet, and fresh monitors of the meters and queues."""
        dpid = connection.dpid
        ports = self.central.switches[dpid].switch.ports

        def settings(meter_id: IntArray) -> tuple[UInt32Array, UInt32Array]:
            return self.central.fabric.meter_settings(dpid, meter_id)

        meters = MeterMonitor(np.array(list(ports), dtype=np.int64), settings)
        queues = QueueMonitor({port.port_no: port.vlan_vids for port in ports.values()})
        return ConnectedSwitch(connection, meters, queues, InstalledFlows())

    def disconnected(self, peer: ConnectedSwitch) -> None:
        """Handle the end of a switch's connection (unless the switch has a newer one by now)."""
        dpid = peer.connection.dpid
        if self.peers.get(dpid) is not peer:
            return
        del self.peers[dpid]
        reason = peer.connection.cut_off
        if reason is not None and dpid in self.central.switches:
            name = self.central.switches[dpid].switch.name
            text = f"switch {name} ({dpid:016x}) at {peer.connection.address[0]} was evicted: {reason}"
            self.central.note(EventKind.SWITCH_EVICTED, text, self._clock(), dpid=dpid)
        if dpid in self.central.switches and self.central.switches[dpid].connected:
            self.central.switch_disconnected(dpid, self._clock())
            self.push_soon()

    def _bring_up(self, dpid: int, peer: ConnectedSwitch) -> None:
        """Read and test a new switch, adopt its tables, and bring it under control."""
        yield_control = with_gc_freezing(self._yield_control)
        installed = read_switch(self.peers, peer, self.edge_ports, yield_control)
        if not self.peers.is_current(peer):
            return
        test_meters(self.peers, peer, installed.meter_ids)
        peer.count_by_flows(not self.central.switches[dpid].capabilities.counts_meters)
        if not self._adopt_tables(dpid, peer, installed, yield_control):
            return
        self.push()
        self.peers.answer(peer.connection.barrier())
        if not self.peers.is_current(peer):
            return
        peer.state = SwitchState.READY
        peer.counted_s = self._clock()
        freeze_gc_if_large(len(self.central.switches[dpid].installed))
        self._on_ports(dpid)
        for port_no in list(peer.ports):
            self.link_discovery.send_probe(dpid, port_no)

    def _adopt_tables(
        self, dpid: int, peer: ConnectedSwitch, tables: InstalledState, yield_control: Callable[[], None]
    ) -> bool:
        """Adopt a switch's installed tables in batches; return whether the switch is still connected."""
        with self.switch_lock:
            if not self.peers.is_current(peer):
                return False
            now_s = self._clock()
            for _ in self.central.reconciler.bring_up(dpid, tables.flows, tables.foreign, tables.meters, now_s):
                yield_control()
                if not self.peers.is_current(peer):
                    return False
        self.central.reconciler.record_switch_up(dpid, self._clock())
        self._async_messages.replay_port_status(peer)
        return True

    # -- the interval

    def run_interval(self) -> None:
        """Read the counters, run one control step, send its messages."""
        started_s = self._clock()
        self._extend_timeouts(started_s)
        # The last fifth of the interval is left for the step and the messages.
        counters = poll(self.peers, started_s, started_s + self._config.interval_s * 0.8, self._waiting)
        now_s = self._clock()
        self._extend_timeouts(now_s)
        result = self.central.interval(counters.meters, counters.received_s, now_s, counters.confirmed_s)
        self.central.tick(now_s)
        decided_s = self._clock()
        self.push()
        self.agents.send_due()
        self.link_discovery.resend_overdue(now_s)
        self.times.record_round(
            (started_s, now_s, decided_s, self._clock()),
            pair_count=len(self.central.state.entries),
            read=len(counters.meters.whole),
            changed=len(result.changes.rows),
            timeouts=counters.unanswered,
        )
        self._check_barriers(now_s)

    def _extend_timeouts(self, now_s: float) -> None:
        """Extend all timeouts by the time in which the process was stopped, because it read no messages then.

        Call it when a round begins and after it has polled: a stop shows as a long time since the last call.
        """
        stalled_s = now_s - self._awake_s - self._config.interval_s
        self._awake_s = now_s
        if stalled_s > STALL_S:
            self.peers.collect_confirmations()
            self.central.extend_timeouts(stalled_s)
            for peer in self.peers.values():
                peer.extend_timeouts(stalled_s)

    # -- sending

    def push_soon(self) -> None:
        """Schedule ``push``: it runs after the asynchronous messages that have already arrived are processed."""
        if not self._push_due:
            self._push_due = True
            hub.spawn(self._push_now)

    def _push_now(self) -> None:
        self._push_due = False
        self.push()

    def push(self) -> None:
        """Send the messages that are due: one batch with a barrier per switch, and the host probes."""
        self.edge_ports.check_touched()
        updates = self.central.drain_updates()
        if updates:
            self._send(updates)
        for probe in self.central.drain_host_probes(self._clock()):
            self._send_host_probe(probe)

    def _send(self, updates: Mapping[int, SwitchUpdate]) -> None:
        """Send each connected switch its update as one batch that ends with a barrier.

        Updates of disconnected switches are dropped: bring-up compares all tables.
        """
        due = [(self.peers[dpid], update) for dpid, update in updates.items() if dpid in self.peers]
        counts = [len(update) for _, update in due]
        first_xids = [peer.connection.reserve(count + 1) for (peer, _), count in zip(due, counts, strict=True)]
        encoded = encode_updates([update for _, update in due], first_xids)
        batches = []
        for (peer, update), count, first_xid, data in zip(due, counts, first_xids, encoded, strict=True):
            meter_ids = update.meter_mods()[1]
            if peer.counting is not None:
                peer.counting.modified(meter_ids.tolist(), self._clock())
            if len(meter_ids) and peer.poll is not None:
                peer.stale_meter_ids.append(meter_ids)
            barrier_xid = (first_xid + count) & MAX_XID
            batches.append(Batch(peer, data, count + 1, barrier_xid, update.restarts_counts))
        self.peers.send_all(batches)

    def _send_host_probe(self, probe: HostProbe) -> None:
        """Let a switch process a probe as if it had arrived at the probe's port (OpenFlow 1.3.5, section 7.3.7)."""
        peer = self.peers.get(probe.port.dpid)
        if peer is not None and probe.port not in self.central.network.fenced:
            actions, number = (Output(ofp.PORT_TABLE),), self.central.network.numbers.number(probe.port)
            peer.connection.send(lambda xid: encode_packet_out(xid, number, actions, probe.frame), 1)

    def _check_barriers(self, now_s: float) -> None:
        """Close connections with a late barrier reply, and send a barrier request to idle switches."""
        for dpid, peer in list(self.peers.items()):
            unconfirmed = peer.unfinished and peer.unconfirmed()
            if unconfirmed and now_s - unconfirmed[0][0] > BARRIER_TIMEOUT_S:
                self.peers.report_fault(dpid, f"no barrier reply for {BARRIER_TIMEOUT_S:g} s; connection closed")
                peer.connection.disconnect()
            elif peer.state == SwitchState.READY and now_s - peer.barrier_requested_s >= BARRIER_INTERVAL_S:
                peer.await_barrier(peer.connection.barrier(), self._clock())

    def finalize_meters(self) -> None:
        """Set the switches' meters to the exact rates of their limits, and wait for the barrier replies."""
        self.central.finalize(self._clock())
        self.push()
        self._await_all([peer.connection.barrier() for peer in list(self.peers.values())])

    def sync_switches(self) -> None:
        """After a change of the configuration, replace each switch's monitors, and check its edge ports."""
        for dpid, peer in self.peers.items():
            if dpid in self.central.switches:
                fresh = self._new_peer(peer.connection)
                peer.meters, peer.queues = fresh.meters, fresh.queues
                if peer.ports:
                    self.edge_ports.check(peer)

    def reconnect(self, peer: ConnectedSwitch, meters: list[int] | None) -> None:
        """Close a switch's connection, so that the switch reconnects.

        With ``meters`` (meter ids), first remove these meters and the controller's flow entries from the switch.
        """
        if meters is not None:
            self._await_all([self._remove_own_state(peer, meters)])
        peer.connection.close()
        peer.connection.disconnect()

    def _remove_own_state(self, peer: ConnectedSwitch, meters: list[int]) -> Reply:
        """Delete meters and the controller's flow entries; return the pending barrier reply."""
        delete = partial(encode_flow_delete_by_cookie, OWN_COOKIE, OWN_COOKIE_MASK)
        peer.connection.send(delete, 1)
        peer.connection.send(partial(encode_meter_deletes, meters), len(meters))
        return peer.connection.barrier()

    def remove_all(self) -> None:
        """Remove the controller's flow entries and meters from all switches, and wait for the barrier replies."""
        peers = list(self.peers.items())
        tables = self.central.reconciler.tables
        self._await_all([self._remove_own_state(peer, sorted(tables(dpid).meters)) for dpid, peer in peers])

    def _await_all(self, replies: Iterable[Reply]) -> None:
        """Wait for replies, at most BARRIER_TIMEOUT_S in all."""
        deadline_s = self._clock() + BARRIER_TIMEOUT_S
        for reply in replies:
            with suppress(ProtocolError):  # an error reply or a disconnected switch must not end the wait for others
                reply.wait(deadline_s - self._clock())
