"""Queues as rows of the Open_vSwitch database: RFC 7047 operations from the present to the desired rows.

Pure: rows in, operations out. A port's queues are a QoS row (type linux-htb) that maps queue ids to Queue rows, and the
Port row refers to it (ovs-vswitchd.conf.db(5)). Rates are bit/s and bursts bits, written as whole numbers because
ovs-vswitchd silently ignores anything else.

The controller's rows have ``dets`` (the dpid) in their ``external_ids``; nothing else is ever changed except the
``qos`` of a port that has none. QoS and Queue rows outlive their port, so the planner also looks for rows of earlier
runs:

1. Every desired port: update the controller's row, or insert one; foreign QoS rows stay.
2. The controller's QoS row on any other port of this switch: unset it; delete it unless another configured switch uses
   it.
3. The controller's unreferenced QoS and Queue rows, of any switch: delete. Each row that is touched must still be what
   it was when read, or the transaction fails as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from controller.errors import InvalidValueError, ProtocolError
from controller.switch.desired_queues import PortQueues, Queue
from controller.units import BITS_PER_BYTE, format_rate

DATABASE = "Open_vSwitch"
OWNER_KEY = "dets"
PORT_KEY = "dets-port"
VLAN_KEY = "dets-vlan"
QOS_TYPE = "linux-htb"

Row: TypeAlias = dict[str, Any]
Operation: TypeAlias = dict[str, Any]

# Before 3.2 ovs-vswitchd kept HTB rates as 32-bit bytes/s: 100 Gb/s silently became 31.28 Gb/s.
WIDE_RATES_VERSION = (3, 2)
NARROW_MAX_RATE_BPS = (2**32 - 1) * BITS_PER_BYTE

_COLUMNS = {
    "Open_vSwitch": ("ovs_version",),
    "Bridge": ("name", "datapath_id", "ports"),
    "Port": ("name", "interfaces", "qos"),
    "Interface": ("name", "ofport"),
    "QoS": ("type", "queues", "other_config", "external_ids"),
    "Queue": ("other_config", "external_ids"),
}
_MAPS = ("queues", "other_config", "external_ids")
_SETS = ("ports", "interfaces", "qos", "datapath_id", "ovs_version", "ofport")


@dataclass(frozen=True, slots=True)
class OvsdbTables:
    """The rows of the database, by table and row UUID; maps are dicts, sets are tuples, references are UUIDs."""

    root: Mapping[str, Row]
    bridges: Mapping[str, Row]
    ports: Mapping[str, Row]
    interfaces: Mapping[str, Row]
    qos: Mapping[str, Row]
    queues: Mapping[str, Row]


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The operations that install the desired rows (none if they are installed), and the problems."""

    operations: list[Operation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_operations() -> list[Operation]:
    """Return the operations whose results are the input of ``read_tables``."""
    return [
        {"op": "select", "table": table, "where": [], "columns": ["_uuid", *columns]}
        for table, columns in _COLUMNS.items()
    ]


def read_tables(results: Sequence[Any]) -> OvsdbTables:
    """Return the tables from the results of ``read_operations``; raise ProtocolError if they are malformed."""
    try:
        tables = [
            {row["_uuid"][1]: {name: _plain(name, row[name]) for name in columns} for row in result["rows"]}
            for columns, result in zip(_COLUMNS.values(), results, strict=True)
        ]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ProtocolError(f"select results: expected rows of {', '.join(_COLUMNS)}: {error!r}") from error
    return OvsdbTables(*tables)


def plan_rows(tables: OvsdbTables, dpid: int, desired: Mapping[str, PortQueues]) -> RowPlan:
    """Return the plan that installs a switch's ``desired`` queues; without any it removes all of the controller's.

    ``desired`` are by the ports' names in ``problems``. Their interfaces are found by OpenFlow number, since OpenFlow
    truncates names; an interface without a number (yet) is found by its whole name. Raises InvalidValueError if queues
    are wanted and no bridge has this dpid: the address is wrong, or ovs-vswitchd does not run or has not written it yet
    (the column does not outlive ovsdb-server). Then the present rows must not be changed.
    """
    planner = _Planner(tables, f"{dpid:016x}")
    ports = planner.find_ports({name: queues.port_no for name, queues in desired.items()})
    for name, port_uuid in ports.items():
        if planner.can_shape(name, desired[name].max_rate_bps):
            planner.plan_port(name, port_uuid, desired[name])
    planner.sweep_qos()
    planner.sweep_queues()
    return planner.plan


class _Planner:
    """Collects the operations for the queues of one switch; ``owner`` is its dpid in ``external_ids``."""

    def __init__(self, tables: OvsdbTables, owner: str) -> None:
        self.plan = RowPlan()
        self._tables = tables
        self._owner = owner
        self._bridge_ports: set[str] = set()
        self._kept_qos: dict[str, str] = {}  # by UUID of the QoS row: the UUID of the port that keeps it
        self._kept_queues: set[str] = set()  # UUIDs of Queue rows
        self._set_ports: set[str] = set()  # UUIDs of the Port rows whose ``qos`` the plan sets
        self._deleted: set[str] = set()  # UUIDs of QoS and Queue rows
        self._named = 0  # the number of inserted rows

    def find_ports(self, desired: Mapping[str, int]) -> dict[str, str]:
        """Return the UUID of the Port row of each wanted number on the switch's bridge; missing ones are problems."""
        bridge = next((b for b in self._tables.bridges.values() if b["datapath_id"] == (self._owner,)), None)
        if bridge is None:
            if desired:
                raise InvalidValueError("dpid", self._owner, "is the datapath id of no bridge in this database (now)")
            return {}
        self._bridge_ports.update(bridge["ports"])
        port_of: dict[int | str, str] = {}  # by number, or by name if it has none
        for uuid in bridge["ports"]:
            for interface in self._tables.ports[uuid]["interfaces"] if uuid in self._tables.ports else ():
                row = self._tables.interfaces.get(interface)
                if row is not None:
                    port_of[row["ofport"][0] if row["ofport"] else row["name"]] = uuid
        ports = {}
        for name, number in sorted(desired.items()):
            uuid = port_of.get(number, port_of.get(name))
            if uuid is None:
                self._problem(f"{name}: is not a port of bridge {bridge['name']}")
            elif len(self._tables.ports[uuid]["interfaces"]) > 1:
                bond = self._tables.ports[uuid]["name"]
                self._problem(f"{name}: is part of bond {bond}, whose queues would be for all its links together")
            else:
                ports[name] = uuid
        return ports

    def can_shape(self, name: str, rate_bps: int) -> bool:
        """Return whether this Open vSwitch supports a rate.

        If not, add a problem: no queues are better than wrong ones. An unknown version counts as one that does.
        """
        version = next((text for row in self._tables.root.values() for text in row["ovs_version"]), "")
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
        if rate_bps <= NARROW_MAX_RATE_BPS or len(numbers) < 2 or numbers >= WIDE_RATES_VERSION:
            return True
        limit = f"Open vSwitch {version} shapes to {format_rate(NARROW_MAX_RATE_BPS)} at most, 3.2 and later to more"
        self._problem(f"{name}: has no queues, for its capacity is {format_rate(rate_bps)}: {limit}")
        return False

    def plan_port(self, name: str, port_uuid: str, desired: PortQueues) -> None:
        """Plan the queues of one port."""
        port = self._tables.ports[port_uuid]
        uuid = port["qos"][0] if port["qos"] else None
        if uuid is not None and OWNER_KEY not in self._tables.qos[uuid]["external_ids"]:
            kind = self._tables.qos[uuid]["type"]
            self._problem(f"{name}: has a QoS row ({kind}) of another application, so its VLANs get no queues here")
            return
        ids = {OWNER_KEY: self._owner, PORT_KEY: str(desired.port_no)}
        row: Row = {"type": QOS_TYPE, "other_config": {"max-rate": str(desired.max_rate_bps)}}
        if uuid is None or uuid in self._kept_qos:  # another port keeps a row that both ports have
            row |= {"queues": self._queues({}, desired, ids), "external_ids": ids}
            self._set_qos_of_port(port_uuid, self._insert("QoS", row))
            return
        self._kept_qos[uuid] = port_uuid
        old = self._tables.qos[uuid]
        row |= {"queues": self._queues(old["queues"], desired, ids), "external_ids": old["external_ids"] | ids}
        self._update("QoS", uuid, old, row)

    def sweep_qos(self) -> None:
        """Unset the controller's QoS rows at ports that should have none, and delete unneeded rows."""
        users_of: dict[str, set[str]] = {}  # the Port rows that refer to each QoS row
        for port_uuid, port in self._tables.ports.items():
            for uuid in port["qos"]:
                users_of.setdefault(uuid, set()).add(port_uuid)
        for uuid, row in self._tables.qos.items():
            if OWNER_KEY not in row["external_ids"]:
                continue
            users = users_of.get(uuid, set())
            keeper = self._kept_qos.get(uuid)
            useless = keeper is None and self._is_useless(row, in_use=bool(users - self._bridge_ports))
            for port_uuid in sorted(users if useless else users & self._bridge_ports):
                if port_uuid != keeper and port_uuid not in self._set_ports:
                    self._set_qos_of_port(port_uuid, None)
            if useless:
                self._delete("QoS", uuid, row)

    def sweep_queues(self) -> None:
        """Delete the controller's unneeded Queue rows."""
        users: dict[str, str] = {}  # by Queue row: a remaining QoS row that this plan does not write
        for uuid, row in self._tables.qos.items():
            if uuid not in self._kept_qos and uuid not in self._deleted:
                users |= dict.fromkeys(row["queues"].values(), uuid)
        for uuid, row in self._tables.queues.items():
            if uuid in self._kept_queues or not self._is_useless(row, uuid in users):
                continue
            if uuid in users:
                self._problem(f"Queue row {uuid} is the controller's, but foreign QoS row {users[uuid]} uses it")
            else:
                self._delete("Queue", uuid, row)

    def _is_useless(self, row: Row, in_use: bool) -> bool:
        """Return whether a row that this switch does not need may be deleted.

        A row of another switch may be once nothing refers to it: rows are inserted and referred to in one transaction.
        """
        owner = row["external_ids"].get(OWNER_KEY)
        return owner == self._owner or (owner is not None and not in_use)

    def _queues(self, old: Mapping[int, str], desired: PortQueues, ids: Mapping[str, str]) -> dict[int, Any]:
        """Plan the Queue rows of one port and return the QoS row's map of them."""
        queues: dict[int, Any] = {}
        for queue in desired.queues:
            row = _queue_row(queue, ids)
            uuid = old.get(queue.queue_id)
            present = self._tables.queues[uuid] if uuid is not None else None
            if uuid is None or present is None or OWNER_KEY not in present["external_ids"] or uuid in self._kept_queues:
                queues[queue.queue_id] = self._insert("Queue", row)
            else:
                self._kept_queues.add(uuid)
                self._update(
                    "Queue", uuid, present, row | {"external_ids": present["external_ids"] | row["external_ids"]}
                )
                queues[queue.queue_id] = uuid
        return queues

    def _set_qos_of_port(self, port_uuid: str, reference: Any) -> None:
        new = () if reference is None else (reference,)
        self._set_ports.add(port_uuid)
        self._update("Port", port_uuid, {"qos": self._tables.ports[port_uuid]["qos"]}, {"qos": new})

    def _insert(self, table: str, row: Row) -> _NewRow:
        self._named += 1
        name = f"row{self._named}"
        self.plan.operations.append({"op": "insert", "table": table, "row": _wire_row(row), "uuid-name": name})
        return _NewRow(name)

    def _update(self, table: str, uuid: str, old: Row, new: Row) -> None:
        changed = {name: value for name, value in new.items() if value != old[name]}
        if changed:
            self._expect(table, uuid, {name: old[name] for name in changed})
            self.plan.operations.append({"op": "update", "table": table, "where": _is(uuid), "row": _wire_row(changed)})

    def _delete(self, table: str, uuid: str, old: Row) -> None:
        self._deleted.add(uuid)
        self._expect(table, uuid, {"external_ids": old["external_ids"]})
        self.plan.operations.append({"op": "delete", "table": table, "where": _is(uuid)})

    def _expect(self, table: str, uuid: str, old: Row) -> None:
        """Let the transaction fail if a row has changed since it was read (RFC 7047, section 5.2.6)."""
        expected = {"table": table, "where": _is(uuid), "columns": list(old), "rows": [_wire_row(old)]}
        self.plan.operations.append({"op": "wait", "timeout": 0, "until": "==", **expected})

    def _problem(self, text: str) -> None:
        self.plan.problems.append(text)


@dataclass(frozen=True, slots=True)
class _NewRow:
    """A row that this transaction inserts; other rows refer to it by this name."""

    name: str


def _queue_row(queue: Queue, ids: Mapping[str, str]) -> Row:
    rates = {"min-rate": queue.min_rate_bps, "max-rate": queue.max_rate_bps, "burst": queue.burst_bits}
    vlan = {} if queue.vlan_vid is None else {VLAN_KEY: str(queue.vlan_vid)}
    return {"other_config": {key: str(value) for key, value in rates.items()}, "external_ids": {**ids, **vlan}}


def _is(uuid: str) -> list[Any]:
    return [["_uuid", "==", ["uuid", uuid]]]


def _plain(column: str, value: Any) -> Any:
    """Return a column's JSON value (RFC 7047, section 5.1) as plain Python."""
    if column in _MAPS:
        return {key: _atom(item) for key, item in value[1]}
    if column in _SETS:
        items = value[1] if isinstance(value, list) and value[0] == "set" else [value]
        return tuple(_atom(item) for item in items)
    return value


def _atom(value: Any) -> Any:
    return value[1] if isinstance(value, list) else value


def _wire_row(row: Row) -> Row:
    return {name: _wire(name, value) for name, value in row.items()}


def _wire(column: str, value: Any) -> Any:
    match column:
        case "queues":
            return ["map", [[key, _reference(item)] for key, item in value.items()]]
        case "qos":
            return ["set", [_reference(item) for item in value]]
        case "other_config" | "external_ids":
            return ["map", [[key, item] for key, item in value.items()]]
        case _:
            return value


def _reference(row: str | _NewRow) -> list[str]:
    return ["named-uuid", row.name] if isinstance(row, _NewRow) else ["uuid", row]
