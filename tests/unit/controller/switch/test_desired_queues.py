"""Desired queues, and the row operations that lead to them, run on a small database that keeps OVSDB's rules."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import star

from controller.config.loader import parse_config
from controller.errors import InvalidValueError, ProtocolError
from controller.fabric.config_model import Config
from controller.fabric.vn_table import VnTable
from controller.policy.policy_groups import PolicyChoice, apply_choices
from controller.switch.desired_queues import DEFAULT_QUEUE_ID, PortQueues, Queue, desired_queues, port_queues
from controller.switch.ovsdb_queues import plan_rows, read_operations, read_tables

DPID = 0xA1
OTHER_DPID = 0xB2
CONFIG = """
vlans:
  10: {algorithm: fp, send_limit: 40M, receive_limit: 40M}
  20: {algorithm: fp, send_limit: 50M, receive_limit: 50M}
queues: {max_rate: MAX_RATE}
switches:
  s1:
    dpid: "00000000000000a1"
    ovsdb: unix:/run/openvswitch/db.sock
    ports:
      1: {capacity: 100M, trunk: [20, 10]}
      2: {capacity: 60M, access: 10, vns: {10: {receive_limit: 30M}}}
  s2:
    dpid: "00000000000000b2"
    ports:
      1: {capacity: 100M, trunk: [20]}
"""


def config(max_rate: str = "limit") -> Config:
    return parse_config(CONFIG.replace("MAX_RATE", max_rate))


# -- what should be


def test_each_vlan_has_a_queue_of_its_number_at_its_receive_limit() -> None:
    desired = desired_queues(config(), VnTable.from_config(config()))
    assert {dpid: set(ports) for dpid, ports in desired.items()} == {DPID: {1, 2}, OTHER_DPID: {1}}
    trunk = desired[DPID][1]
    assert (trunk.port_no, trunk.max_rate_bps) == (1, 100_000_000)
    assert trunk.queues[1:] == (
        Queue(10, 40_000_000, 40_000_000, 1_200_000),
        Queue(20, 50_000_000, 50_000_000, 1_500_000),
    )
    assert desired[DPID][2].queues[1:] == (Queue(10, 30_000_000, 30_000_000, 900_000),)
    borrowing = desired_queues(config("capacity"), VnTable.from_config(config("capacity")))
    assert [(queue.min_rate_bps, queue.max_rate_bps) for queue in borrowing[DPID][1].queues[1:]] == [
        (40_000_000, 100_000_000),
        (50_000_000, 100_000_000),
    ]


def test_without_classes_a_port_has_one_queue_at_its_rate() -> None:
    plain = parse_config(CONFIG.replace("MAX_RATE", "limit, mode: single"))
    desired = desired_queues(plain, VnTable.from_config(plain))
    assert desired == {
        DPID: {
            1: PortQueues(1, 100_000_000, (Queue(DEFAULT_QUEUE_ID, 100_000_000, 100_000_000, 3_000_000),)),
            2: PortQueues(2, 60_000_000, (Queue(DEFAULT_QUEUE_ID, 60_000_000, 60_000_000, 1_800_000),)),
        },
        OTHER_DPID: {1: PortQueues(1, 100_000_000, (Queue(DEFAULT_QUEUE_ID, 100_000_000, 100_000_000, 3_000_000),))},
    }
    assert not VnTable.from_config(plain).has_queue.any()  # senders' meters hold receivers to their limits


def test_limits_in_force_count_not_those_of_the_file() -> None:
    vns = VnTable.from_config(config())
    row = vns.row_of(10, DPID, 1)
    assert row is not None
    limit_bps = vns.receive_limit_bps.copy()
    limit_bps[row] = 25_000_000
    desired = desired_queues(config(), vns.with_columns(receive_limit_bps=limit_bps))
    assert [q.min_rate_bps for q in desired[DPID][1].queues[1:]] == [25_000_000, 50_000_000]


@pytest.mark.parametrize(
    ("capacity_bps", "min_rate_bps"), [(100_000_000, 100_000), (1_000_000, 12_000), (8_000, 8_000)]
)
def test_the_default_queue_is_sure_of_little_and_may_take_all(capacity_bps: int, min_rate_bps: int) -> None:
    default = port_queues(1, capacity_bps, {}, False).queues[0]
    assert (default.queue_id, default.vlan_vid) == (DEFAULT_QUEUE_ID, None)
    assert (default.min_rate_bps, default.max_rate_bps) == (min_rate_bps, capacity_bps)


# -- the rows


class Database:
    """The tables of one Open vSwitch: executes operations, refuses dangling references, undoes a failed transaction."""

    def __init__(self, version: str = "3.1.0") -> None:
        self.tables: dict[str, dict[str, dict[str, Any]]] = {
            name: {} for name in ("Open_vSwitch", "Bridge", "Port", "Interface", "QoS", "Queue")
        }
        self._uuids = (f"uuid-{number}" for number in itertools.count())
        self.add("Open_vSwitch", ovs_version=version or ["set", []])

    def add(self, table: str, **row: Any) -> str:
        uuid = next(self._uuids)
        self.tables[table][uuid] = row
        return uuid

    def add_bridge(self, dpid: int, *interfaces: str) -> None:
        ports = [["uuid", self.add_port(name, name)] for name in interfaces]
        self.add("Bridge", name=f"br{dpid:x}", datapath_id=f"{dpid:016x}", ports=["set", ports])

    def add_port(self, name: str, *interfaces: str) -> str:
        rows = [["uuid", self.add("Interface", name=one, ofport=["set", []])] for one in interfaces]
        return self.add("Port", name=name, interfaces=["set", rows] if len(rows) > 1 else rows[0], qos=["set", []])

    def add_qos(self, owner: str | None, queues: dict[int, str], *ports: str) -> str:
        ids = ["map", [] if owner is None else [["dets", owner]]]
        pairs = [[key, ["uuid", uuid]] for key, uuid in queues.items()]
        uuid = self.add("QoS", type="linux-htb", queues=["map", pairs], other_config=["map", []], external_ids=ids)
        for row in self.tables["Port"].values():
            if row["name"] in ports:
                row["qos"] = ["uuid", uuid]
        return uuid

    def add_queue(self, owner: str | None) -> str:
        ids = ["map", [] if owner is None else [["dets", owner]]]
        return self.add("Queue", other_config=["map", [["max-rate", "7"]]], external_ids=ids)

    def transact(self, operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
        before = copy.deepcopy(self.tables)
        names = {op["uuid-name"]: next(self._uuids) for op in operations if "uuid-name" in op}
        results = []
        for op in json.loads(json.dumps(operations)):
            results.append(self._execute(op, names))
            if "error" in results[-1]:
                self.tables = before
                return results
        dangling = self._dangling()
        if dangling:
            self.tables = before
            results.append({"error": "referential integrity violation", "details": str(dangling)})
        return results

    def _execute(self, op: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
        table = self.tables[op["table"]]
        if op["op"] == "select":
            return {"rows": [{"_uuid": ["uuid", u], **{c: r[c] for c in op["columns"][1:]}} for u, r in table.items()]}
        if op["op"] == "insert":
            table[names[op["uuid-name"]]] = {name: _resolve(value, names) for name, value in op["row"].items()}
            return {"uuid": ["uuid", names[op["uuid-name"]]]}
        ((_, _, (_, uuid)),) = op["where"]
        if op["op"] == "wait":
            same = uuid in table and all(_set(table[uuid][c]) == _set(op["rows"][0][c]) for c in op["columns"])
            return {} if same else {"error": "timed out"}
        if op["op"] == "update":
            table[uuid] |= {name: _resolve(value, names) for name, value in op["row"].items()}
        else:
            del table[uuid]
        return {"count": 1}

    def _dangling(self) -> list[str]:
        qos = [ref for row in self.tables["Port"].values() for ref in _references(row["qos"])]
        queues = [item[1] for row in self.tables["QoS"].values() for _, item in row["queues"][1]]
        return [u for u in qos if u not in self.tables["QoS"]] + [u for u in queues if u not in self.tables["Queue"]]

    # what the tests look at

    def queues_of(self, port: str) -> dict[int, dict[str, str]]:
        qos = self.qos_of(port)
        pairs = [] if qos is None else self.tables["QoS"][qos]["queues"][1]
        return {key: dict(self.tables["Queue"][item[1]]["other_config"][1]) for key, item in pairs}

    def qos_of(self, port: str) -> str | None:
        row = next(row for row in self.tables["Port"].values() if row["name"] == port)
        return next(iter(_references(row["qos"])), None)

    def owners(self, table: str) -> list[str | None]:
        return [dict(row["external_ids"][1]).get("dets") for row in self.tables[table].values()]


def _references(value: list[Any]) -> list[str]:
    return [item[1] for item in value[1]] if value[0] == "set" else [value[1]]


def _set(value: Any) -> Any:
    if isinstance(value, list) and value[0] == "map":
        return sorted(map(str, value[1]))
    return sorted(map(str, value[1])) if isinstance(value, list) and value[0] == "set" else [str(value)]


def _resolve(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, list):
        if value and value[0] == "named-uuid":
            return ["uuid", names[value[1]]]
        return [_resolve(item, names) for item in value]
    return value


def apply(
    database: Database, wanted: dict[str, PortQueues], dpid: int = DPID
) -> tuple[list[dict[str, Any]], list[str]]:
    plan = plan_rows(read_tables(database.transact(read_operations())), dpid, wanted)
    results = database.transact(plan.operations)
    assert not [result for result in results if "error" in result]
    return plan.operations, plan.problems


def wanted(**limits_bps: dict[int, int]) -> dict[str, PortQueues]:
    return {
        name: port_queues(number, 100_000_000, vlans, False)
        for number, (name, vlans) in enumerate(limits_bps.items(), 1)
    }


def rates(config: dict[str, str]) -> tuple[int, int]:
    return int(config["min-rate"]), int(config["max-rate"])


@pytest.fixture
def database() -> Database:
    database = Database()
    database.add_bridge(DPID, "p1", "p2")
    return database


def test_queues_are_made_with_rates_as_whole_numbers_and_our_ids(database: Database) -> None:
    _, problems = apply(database, wanted(p1={10: 40_000_000, 20: 50_000_000}))
    assert problems == []
    assert database.queues_of("p1")[10] == {"min-rate": "40000000", "max-rate": "40000000", "burst": "1200000"}
    qos = database.tables["QoS"][database.qos_of("p1") or ""]
    assert qos["type"] == "linux-htb"
    assert dict(qos["other_config"][1]) == {"max-rate": "100000000"}
    assert dict(qos["external_ids"][1]) == {"dets": "00000000000000a1", "dets-port": "1"}
    ids = sorted(dict(row["external_ids"][1]).get("dets-vlan", "") for row in database.tables["Queue"].values())
    assert ids == ["", "10", "20"]
    assert database.queues_of("p2") == {}
    assert apply(database, wanted(p1={10: 40_000_000, 20: 50_000_000})) == ([], [])


def test_a_new_limit_writes_that_row_and_no_other(database: Database) -> None:
    apply(database, wanted(p1={10: 40_000_000, 20: 50_000_000}))
    before = copy.deepcopy(database.tables)
    operations, _ = apply(database, wanted(p1={10: 30_000_000, 20: 50_000_000}))
    assert [(op["op"], op["table"]) for op in operations] == [("wait", "Queue"), ("update", "Queue")]
    assert rates(database.queues_of("p1")[10]) == (30_000_000, 30_000_000)
    assert {name: list(rows) for name, rows in database.tables.items()} == {n: list(r) for n, r in before.items()}


def test_a_row_of_others_stays_and_is_reported(database: Database) -> None:
    foreign = database.add_qos(None, {5: database.add_queue(None)}, "p1")
    _, problems = apply(database, wanted(p1={10: 1_000_000}, p2={10: 2_000_000}))
    assert problems == ["p1: has a QoS row (linux-htb) of another application, so its VLANs get no queues here"]
    assert database.qos_of("p1") == foreign
    assert rates(database.queues_of("p2")[10]) == (2_000_000, 2_000_000)


def test_what_earlier_runs_left_is_removed_or_adopted(database: Database) -> None:
    old = f"{0xDEAD:016x}"
    database.add_qos(old, {7: database.add_queue(old)})  # its port is gone
    database.add_queue(old)
    adopted = database.add_qos(old, {10: database.add_queue(old)}, "p1")  # the bridge has another dpid now
    _, problems = apply(database, wanted(p1={10: 1_000_000}))
    assert problems == []
    assert database.qos_of("p1") == adopted
    assert set(database.owners("QoS")) | set(database.owners("Queue")) == {f"{DPID:016x}"}
    assert (len(database.tables["QoS"]), len(database.tables["Queue"])) == (1, 2)


def test_another_switch_of_the_same_database_is_left_alone(database: Database) -> None:
    database.add_bridge(OTHER_DPID, "q1")
    apply(database, wanted(q1={10: 1_000_000}), OTHER_DPID)
    apply(database, wanted(p1={10: 2_000_000}))
    assert rates(database.queues_of("q1")[10]) == (1_000_000, 1_000_000)
    apply(database, {})
    assert rates(database.queues_of("q1")[10]) == (1_000_000, 1_000_000)


def test_a_queue_of_ours_that_others_use_stays(database: Database) -> None:
    ours = database.add_queue(f"{DPID:016x}")
    database.add_qos(None, {3: ours}, "p2")
    _, problems = apply(database, wanted(p1={10: 1_000_000}))
    assert len(problems) == 1
    assert ours in problems[0]
    assert ours in database.tables["Queue"]


def test_a_hand_edited_row_of_ours_is_mended(database: Database) -> None:
    apply(database, wanted(p1={10: 1_000_000}))
    qos = database.tables["QoS"][database.qos_of("p1") or ""]
    qos["type"] = "linux-hfsc"
    qos["external_ids"][1].append(["note", "of the operator"])
    stranger = database.add_queue(None)
    qos["queues"][1].append([99, ["uuid", stranger]])
    apply(database, wanted(p1={10: 1_000_000}))
    assert (qos["type"], dict(qos["external_ids"][1])["note"]) == ("linux-htb", "of the operator")
    assert sorted(database.queues_of("p1")) == [0, 10]
    assert stranger in database.tables["Queue"]


@pytest.mark.parametrize(
    ("name", "dpid", "problem"),
    [
        ("nope", DPID, "nope: is not a port of bridge bra1"),
        ("q1", DPID, "q1: is not a port of bridge bra1"),
        ("e1", OTHER_DPID, "e1: is part of bond bond0, whose queues would be for all its links together"),
    ],
)
def test_a_port_that_cannot_be_is_reported_and_nothing_written(
    database: Database, name: str, dpid: int, problem: str
) -> None:
    database.add_bridge(OTHER_DPID, "q1")
    bond = database.add_port("bond0", "e1", "e2")
    list(database.tables["Bridge"].values())[1]["ports"][1].append(["uuid", bond])
    assert apply(database, wanted(**{name: {10: 1_000_000}}), dpid) == ([], [problem])


def test_interfaces_are_found_by_their_numbers_on_their_bridge_and_not_by_their_names() -> None:
    database, names = Database(), ("dets-patch-to-br9-aa", "dets-patch-to-br9-ab", "e3", "e4")
    database.add_bridge(DPID, *names)
    database.add_bridge(OTHER_DPID, "q1")
    numbers = dict(zip((*names, "q1"), (2, 1, -1, 9, 3), strict=True))
    for row in database.tables["Interface"].values():
        row["ofport"] = numbers[row["name"]]
    limits = {10: 1_000_000}
    cut = {name: port_queues(number, 10**8, limits, False) for number, name in enumerate(("aa", "ab", "e3", "e4"), 1)}
    _, problems = apply(database, cut)
    # None has number 3 on this bridge, and e4 is another port than number 4.
    assert problems == ["e3: is not a port of bridge bra1", "e4: is not a port of bridge bra1"]
    of = {name: database.qos_of(name) for name in numbers}
    found = {
        name: dict(database.tables["QoS"][uuid]["external_ids"][1])["dets-port"] for name, uuid in of.items() if uuid
    }
    assert found == {"dets-patch-to-br9-aa": "2", "dets-patch-to-br9-ab": "1"}


def test_queues_stay_while_the_bridge_has_no_dpid(database: Database) -> None:
    apply(database, wanted(p1={10: 1_000_000}))
    next(iter(database.tables["Bridge"].values()))["datapath_id"] = ["set", []]  # as after a restart of ovsdb-server
    with pytest.raises(InvalidValueError, match="is the datapath id of no bridge"):
        plan_rows(read_tables(database.transact(read_operations())), DPID, wanted(p1={10: 2_000_000}))
    apply(database, {})
    assert (database.qos_of("p1"), database.owners("Queue")) == (None, [])


@pytest.mark.parametrize(
    ("version", "can"), [("3.1.0", False), ("2.17.9", False), ("3.2.0", True), ("4.0", True), ("", True)]
)
def test_a_rate_that_wraps_in_an_old_open_vswitch_gets_no_queues(version: str, can: bool) -> None:
    database = Database(version)
    database.add_bridge(DPID, "p1", "p2")
    apply(database, wanted(p1={10: 1_000_000}, p2={10: 1_000_000}))
    wide = {**wanted(p1={}, p2={10: 2_000_000}), "p1": port_queues(1, 100_000_000_000, {10: 40_000_000_000}, False)}
    _, problems = apply(database, wide)
    assert (problems == []) == can
    assert all(text.startswith("p1: has no queues, for its capacity is 100G") for text in problems)
    assert sorted(database.queues_of("p1")) == ([0, 10] if can else [])
    assert rates(database.queues_of("p2")[10]) == (2_000_000, 2_000_000)


def test_a_row_changed_between_reading_and_writing_stops_the_whole(database: Database) -> None:
    plan = plan_rows(read_tables(database.transact(read_operations())), DPID, wanted(p1={10: 1}, p2={10: 1}))
    foreign = database.add_qos(None, {}, "p2")
    assert database.transact(plan.operations)[-1] == {"error": "timed out"}
    assert (database.qos_of("p1"), database.qos_of("p2")) == (None, foreign)
    assert database.owners("QoS") == [None]


@pytest.mark.parametrize("results", [[], [{"rows": []}] * 5, [{"rows": [{}]}] * 6, [{"error": "no"}] * 6, [None] * 6])
def test_an_answer_that_is_no_table_is_an_error(results: list[Any]) -> None:
    with pytest.raises(ProtocolError, match="select results"):
        read_tables(results)


PORTS = ("p1", "p2", "p3")
OTHER_PORT = "q1"
OWNERS = st.sampled_from([None, f"{DPID:016x}", f"{OTHER_DPID:016x}"])
WANTED = st.dictionaries(
    st.sampled_from(PORTS), st.dictionaries(st.integers(1, 4), st.integers(1_000, 20_000_000), max_size=3)
)


@given(data=st.data())
@settings(max_examples=100)
def test_from_any_leftovers_one_transaction_reaches_what_is_wanted(data: st.DataObject) -> None:
    database = Database()
    database.add_bridge(DPID, *PORTS)
    database.add_bridge(OTHER_DPID, OTHER_PORT)
    queues = [database.add_queue(data.draw(OWNERS)) for _ in range(data.draw(st.integers(0, 5)))]
    for _ in range(data.draw(st.integers(0, 4))):
        members = data.draw(st.dictionaries(st.integers(0, 4), st.sampled_from(queues), max_size=4)) if queues else {}
        database.add_qos(data.draw(OWNERS), members, *data.draw(st.sets(st.sampled_from([*PORTS, OTHER_PORT]))))
    foreign = {
        table: {u: copy.deepcopy(r) for u, r in database.tables[table].items() if not r["external_ids"][1]}
        for table in ("QoS", "Queue")
    }
    foreign_ports = {port: database.qos_of(port) for port in PORTS if database.qos_of(port) in foreign["QoS"]}
    desired = wanted(**data.draw(WANTED))
    apply(database, desired)
    for port in PORTS:
        if port in foreign_ports:
            assert database.qos_of(port) == foreign_ports[port]
            continue
        queues_here = desired[port].queues if port in desired else ()
        expected = {queue.queue_id: (queue.min_rate_bps, queue.max_rate_bps) for queue in queues_here}
        assert {key: rates(row) for key, row in database.queues_of(port).items()} == expected
    for table, rows in foreign.items():
        assert {uuid: database.tables[table].get(uuid) for uuid in rows} == rows
    used = {ref for row in database.tables["Port"].values() for ref in _references(row["qos"])}
    used |= {item[1] for row in database.tables["QoS"].values() for _, item in row["queues"][1]}
    for table in ("QoS", "Queue"):
        assert {uuid for uuid, row in database.tables[table].items() if row["external_ids"][1]} <= used
    assert apply(database, desired)[0] == []


def test_a_vlan_that_borrows_may_take_up_to_its_ceiling():
    one = star(
        1,
        capacity="100M",
        limits={10: "40M", 20: "50M"},
        vlans={10: {"algorithm": "max-min", "receive_ceiling": "90M"}},
    )
    vns = VnTable.from_config(one)
    assert [queue.max_rate_bps for queue in desired_queues(one, vns)[1][1].queues[1:]] == [40_000_000, 50_000_000]
    (ports,) = desired_queues(one, apply_choices(vns, {10: PolicyChoice("max-min")})).values()
    assert [(queue.min_rate_bps, queue.max_rate_bps) for queue in ports[1].queues[1:]] == [
        (40_000_000, 90_000_000),
        (50_000_000, 50_000_000),
    ]
