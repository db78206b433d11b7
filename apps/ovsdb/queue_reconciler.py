"""Keeps the receiving queues of the switches equal to the desired ones."""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from apps.ovsdb.ovsdb_client import OvsdbQueueWriter
from apps.ovsdb.ovsdb_listener import OvsdbListener
from apps.runtime.ryu_adapter import hub
from apps.runtime.tls import RenewableContext, renewable_client, renewable_server
from apps.southbound.southbound_driver import SouthboundDriver
from controller.config.value_types import ovsdb_endpoint
from controller.errors import DetsError
from controller.events import EventKind
from controller.fabric.config_model import ClientTls, Switch, Tls
from controller.fabric.topology import PortId
from controller.switch.desired_queues import PortQueues, desired_queues

LOG = logging.getLogger("dets.queues")
RETRY_S = 5.0
# Interval of comparisons: other programs may change rows without notice. Reading the rows takes milliseconds.
AUDIT_S = 30.0
# Time between two rounds, each of which reads all databases: ports that flap wake the reconciler repeatedly.
PAUSE_S = 0.5


class OvsdbTls(NamedTuple):
    """TLS for connections to databases, and for connections from databases."""

    client: RenewableContext | None = None
    server: RenewableContext | None = None


WITHOUT_TLS = OvsdbTls()


def ovsdb_tls(tls: ClientTls | None) -> OvsdbTls:
    """Return the TLS contexts for databases; raises InvalidValueError for unusable files."""
    if tls is None:
        return WITHOUT_TLS
    client = renewable_client("ovsdb_tls", tls.ca, tls.certificate, tls.key, check_hostname=False)
    if tls.certificate is None or tls.key is None:
        return OvsdbTls(client)
    return OvsdbTls(client, renewable_server("ovsdb_tls", Tls(tls.certificate, tls.key, tls.ca)))


class QueueReconciler:
    """Writes queues over OVSDB whenever it is woken, one transaction per switch; failed ones are retried."""

    def __init__(self, shell: SouthboundDriver, tls: OvsdbTls = WITHOUT_TLS) -> None:
        self._shell, self._tls = shell, tls
        self._wake = hub.Event()
        self._writers: dict[str, OvsdbQueueWriter | OvsdbListener] = {}
        self._unused: set[str] = set()  # addresses without a switch at the beginning of the last round
        self._problems: dict[int, list[str]] = {}
        self._written: dict[int, dict[str, PortQueues]] = {}  # the queues last written to each switch
        self.applied = self.failed = 0
        self._ended_s = -math.inf  # the end of the last round
        self.reconciled_s = -math.inf  # the queues desired at that time are written

    def wake(self) -> None:
        """Schedule a reconciliation soon, because limits or ports have changed."""
        self._wake.set()

    def wait(self) -> None:
        """Return when a reconciliation is due: after ``wake``, RETRY_S after a failure, or after AUDIT_S.

        A reconciliation is due PAUSE_S after the last one at the earliest.
        """
        self._wake.wait(RETRY_S if any(self._problems.values()) else AUDIT_S)
        pause_s = self._ended_s + PAUSE_S - self._shell.now_s()
        if pause_s > 0.0:
            hub.sleep(pause_s)

    def run_round(self) -> None:
        """Write the desired queues of all connected switches whose queues differ."""
        self._wake.clear()
        started_s = self._shell.now_s()
        self._close_unused()
        for dpid in list(self._shell.peers):
            self._apply(dpid)
        if not self.failing():
            self.reconciled_s = started_s
        self._ended_s = self._shell.now_s()

    def failing(self) -> list[int]:
        """Return the dpids of the switches whose queues could not be written completely."""
        return [dpid for dpid, problems in self._problems.items() if problems]

    def remove_all(self) -> None:
        """Remove the controller's queues from all switches."""
        for record in self._shell.central.switches.values():
            self.remove(record.switch)

    def remove(self, switch: Switch) -> None:
        """Remove the controller's queues from a switch, and what is recorded of the switch; log a failure."""
        self._problems.pop(switch.dpid, None)
        self._written.pop(switch.dpid, None)
        if switch.ovsdb is not None:
            try:
                self._writer(switch.ovsdb).remove(switch.dpid)
            except DetsError as error:
                LOG.warning("queues of switch %s stay: %s", switch.name, error)

    def _apply(self, dpid: int) -> None:
        """Write a switch's desired queues to its database; record repairs, failures, and which ports have queues."""
        record = self._shell.central.switches.get(dpid)
        if record is None:  # a reload has removed it
            return
        peer = self._shell.peers.get(dpid)
        if record.switch.ovsdb is None or peer is None or not peer.ports:
            return
        desired = desired_queues(self._shell.central.config, self._shell.central.vns).get(dpid, {})
        if not record.capabilities.sets_queues:
            desired = {}
        # The switch may number a port differently from the configuration, which then gives the port by its name.
        numbers = self._shell.central.network.numbers
        switch_numbers = {port_no: numbers.number(PortId(dpid, port_no)) for port_no in desired}
        present = {port_no: number for port_no, number in switch_numbers.items() if number in peer.ports}
        name_counts = Counter(peer.ports[number].name for number in present.values())
        # By the name for the database. OpenFlow truncates names, so two ports may have the same; these are called "port
        # NUMBER". The writer finds a port by its number first.
        port_nos = {}
        for port_no, number in present.items():
            name = peer.ports[number].name
            port_nos[name if name_counts[name] == 1 else f"port {number}"] = port_no
        queues = {name: replace(desired[port_no], port_no=present[port_no]) for name, port_no in port_nos.items()}
        self.applied += 1
        try:
            writer = self._writer(record.switch.ovsdb)
            writes_before = writer.writes
            problems = writer.apply(dpid, queues)
        except DetsError as error:
            self.failed += 1
            problems = [str(error)]
            record.capabilities.queues_set = dict.fromkeys(port_nos.values(), str(error))
        else:
            names_and_reasons = [(problem.partition(":")[0], problem.partition(": ")[2]) for problem in problems]
            reasons = {port_nos[name]: reason for name, reason in names_and_reasons if name in port_nos}
            absent = dict.fromkeys(desired.keys() - port_nos.values(), "the switch has no such port")
            record.capabilities.queues_set = {
                **{port_no: reasons.get(port_no) for port_no in port_nos.values()},
                **absent,
            }
            if writer.writes > writes_before and self._written.get(dpid) == queues:
                text = f"switch {record.switch.name}: queues repaired that another program had changed"
                self._shell.central.note(EventKind.TABLES_REPAIRED, text, self._shell.now_s(), dpid=dpid)
            self._written[dpid] = queues
        for problem in problems:
            if problem not in self._problems.get(dpid, []):
                text = f"switch {record.switch.name} ({dpid:016x}): {problem}"
                self._shell.central.note(EventKind.QUEUE_WRITE_FAILED, text, self._shell.now_s(), dpid=dpid)
        self._problems[dpid] = problems

    def _writer(self, address: str) -> OvsdbQueueWriter | OvsdbListener:
        """Return the writer for an address, a new one for a new address. Raises OvsdbError if it cannot listen."""
        writer = self._writers.get(address)
        if writer is None and ovsdb_endpoint(address) is None:
            writer = self._writers[address] = OvsdbQueueWriter(address, tls=self._tls.client)
        elif writer is None:
            tls = self._tls.server if address.startswith("pssl:") else None
            writer = self._writers[address] = OvsdbListener(address, tls, self.wake)
        if isinstance(writer, OvsdbListener):
            switches = (record.switch for record in self._shell.central.switches.values())
            writer.dpids = frozenset(switch.dpid for switch in switches if switch.ovsdb == address)
        return writer

    def _close_unused(self) -> None:
        """Close the writers of addresses that the configuration has not had since the last round.

        The delay lets the queues of removed switches be deleted first.
        """
        unused = self._writers.keys() - {record.switch.ovsdb for record in self._shell.central.switches.values()}
        for address in unused & self._unused:
            self._writers.pop(address).close()
        self._unused = unused
