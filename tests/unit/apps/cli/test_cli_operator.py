"""The operator's commands against a stand-in for the controller: what they ask, print and refuse."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from support.fake_rest_server import VLAN, VN, FakeRestServer, PreparedResponse, lines

from apps.cli.support import command_options, output

VN_PATH = "/v1/vns/10/sw1/3"
HERE = ["--vlan", "10", "--port", "sw1:3"]
# A change that is in force on all switches.
IN_FORCE = {"installed_revision": 17, "unconfirmed_switches": [], "disconnected_switches": []}
AWAY = "dets: sw2: not connected; the change is in force there once it is\n"
UNKNOWN = "dets: n2: no answer; whether the change is in force on the switches there is not known\n"


# -- lists and objects


def test_a_list_is_a_table_of_all_pages(desk: FakeRestServer, dets: Any) -> None:
    other = {**VN, "port_no": 1_800_000_000, "port": "eth4", "congested": False, "measured_receive_bps": None}
    desk.on("GET", "/v1/vns", {"vns": [VN], "next": "abc"}, {"vns": [other], "next": None})
    status, out, err = dets("vn", "list", "--vlan", "10")
    assert (status, err) == (0, "")
    assert lines(out) == [
        ["VLAN", "port", "send", "receive", "sends", "receives", "granted", "congested", "revision"],
        ["10", "sw1:3", "400M", "1.5G", "-", "64k", "-", "yes", "17"],
        ["10", "sw1:eth4", "400M", "1.5G", "-", "-", "-", "no", "17"],
    ]
    assert [one.query for one in desk.asked] == [{"vlan": "10"}, {"vlan": "10", "cursor": "abc"}]


def test_status_shows_switches_as_their_nodes_see_them(desk: FakeRestServer, dets: Any) -> None:
    owners = {"s1": "n1", "s2": "n2"}
    cluster = {"node": "n1", "role": "sharded", "active": "n1", "active_url": "http://h:1", "owners": owners}
    health = {"status": "ready", "switches": {"s1": "ready", "s2": "standby"}, "cluster": cluster}
    desk.on("GET", "/v1/health", health)
    switches = [{"switch": name, "state": "ready", "faults": [], "vns": 2} for name in owners]
    desk.lists("/v1/switches", *switches)
    status, out, _ = dets("status")
    assert status == 0
    assert lines(out)[-2:] == [["s1", "n1", "ready", "-"], ["s2", "n2", "ready", "-"]]


def test_hosts_are_listed_and_found(desk: FakeRestServer, dets: Any) -> None:
    place = {"switch": "sw1", "dpid": "00000000000000a1", "port_no": 3}
    host = {
        "mac": "02:00:00:00:00:01",
        "vlan_vid": 10,
        **place,
        "since": "2026-01-01T00:00:00Z",
        "moved_from": None,
    }
    moved = {**host, "vlan_vid": 20, "since": None, "moved_from": {**place, "port_no": 4}}
    expected = [
        ["MAC", "VLAN", "port", "since", "moved", "from"],
        ["02:00:00:00:00:01", "10", "sw1:3", "2026-01-01T00:00:00Z", "-"],
        ["02:00:00:00:00:01", "20", "sw1:3", "-", "sw1:4"],
    ]
    desk.on(
        "GET",
        "/v1/hosts",
        {"hosts": [host], "next": "abc", "unreachable_nodes": ["n2"]},
        {"hosts": [moved], "next": None},
    )
    status, out, err = dets("host", "list", "--vlan", "10", "--port", "sw1:3")
    assert (status, lines(out)) == (0, expected)
    assert err == "dets: n2: no answer; what is known there alone is missing\n"
    assert desk.asked[0].query == {"vlan": "10", "switch": "sw1", "port": "3"}
    desk.on("GET", "/v1/hosts/02-00-00-00-00-01", {"hosts": [host, moved]})
    assert lines(dets("host", "find", "02-00-00-00-00-01")[1]) == expected
    assert desk.last().query == {}
    desk.refuse("GET", "/v1/hosts/02%3A0", 422, "mac: '02:0' is not a MAC address")
    status, _, err = dets("host", "find", "02:0")
    assert (status, "is not a MAC address" in err) == (2, True)
    assert dets("host", "list", "--switch", "sw1", "--port", "sw1:3")[0] == 2


def test_a_list_is_all_there_is_as_json_and_yaml(desk: FakeRestServer, dets: Any) -> None:
    desk.lists("/v1/vlans", VLAN)
    assert json.loads(dets("vlan", "list", "-o", "json")[1]) == [VLAN]
    assert yaml.safe_load(dets("vlan", "list", "--output", "yaml")[1]) == [VLAN]
    assert lines(dets("vlan", "list")[1])[1] == ["10", "tenant-a", "fp", "d=2", "1", "3", "-", "40M", "-", "3"]


def test_a_long_table_is_not_folded_where_no_terminal_is(desk: FakeRestServer, dets: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    desk.lists("/v1/vns", VN)
    assert len(dets("vn", "list")[1].splitlines()) == 2


def test_one_object_is_shown_line_by_line(desk: FakeRestServer, dets: Any) -> None:
    desk.on("GET", VN_PATH, VN)
    assert lines(dets("vn", "show", *HERE)[1])[:4] == [
        ["VLAN", "10"],
        ["port", "sw1:3"],
        ["send", "400M"],
        ["receive", "1.5G"],
    ]
    assert json.loads(dets("vn", "show", *HERE, "-o", "json")[1]) == VN
    desk.on("GET", "/v1/vlans/10", VLAN)
    assert ["name", "tenant-a"] in lines(dets("vlan", "show", "10")[1])


def test_ports_and_entries_are_listed(desk: FakeRestServer, dets: Any) -> None:
    port = {"switch": "sw1", "port_no": 3, "name": "pn3", "capacity_bps": 10**9, "vlan_vids": [10, 20]}
    port |= {"send_limits_bps": 5 * 10**8, "receive_limits_bps": 5 * 10**8, "received_bps": 1000, "sent_bps": None}
    port |= {"enforceable": "partly", "enforceable_reasons": ["no queues"]}
    port |= {"interface": "eth7", "state": "up", "state_since": "2026-01-01T00:00:00.000Z", "speed_bps": 10**9}
    port |= {"fence": "it is 'eth7' where 'eth3' is expected"}
    port |= {"agent": {"mode": "verify", "state": "trusted", "features": [], "last_seen_ms": 40, "rejected_frames": {}}}
    desk.lists("/v1/ports", port)
    row = lines(dets("port", "list", "--switch", "sw1")[1])[1]
    assert row == ["sw1:3", "pn3", "fenced", "1G", "10,", "20", "500M", "500M", "1k", "-", "partly"]
    assert desk.last().query == {"switch": "sw1"}
    desk.on("GET", "/v1/ports/sw1/3", port)
    shown = lines(dets("port", "show", "sw1:3")[1])
    assert ["capacity", "1G"] in shown
    assert ["fence", "it", "is", "'eth7'", "where", "'eth3'", "is", "expected"] in shown
    assert ["why", "not", "no", "queues"] in shown
    assert ["agent", "trusted", "(verify)"] in shown
    entry = {"vlan_vid": 10, "sender": {"switch": "sw1", "port_no": 1}, "receiver": {"switch": "sw2", "port_no": 3}}
    entry |= {"offered_bps": 2, "dropped_bps": 1, "granted_bps": None, "limit_bps": 1000, "meter_rate_bps": 1000}
    desk.lists("/v1/pairs", entry | {"control": "idle", "shaping": "agent", "marked_share": 0.125})
    shown = ["10", "sw1:1", "sw2:3", "2", "1", "-", "1k", "1k", "agent", "12.5%", "idle"]
    assert lines(dets("pair", "list")[1])[1] == shown
    bare = {"vlan_vid": 10, "sender": entry["sender"], "receiver": entry["receiver"], "why": "refused"}
    desk.lists("/v1/pairs", unmetered_pairs=[bare])
    assert lines(dets("pair", "unmetered", "--vlan", "10")[1])[1] == ["10", "sw1:1", "sw2:3", "refused"]
    assert desk.last().query == {"vlan": "10", "limit": "1"}


def test_a_port_is_named_by_its_switch_and_its_interface(desk: FakeRestServer, dets: Any) -> None:
    desk.on("GET", "/v1/ports/sw2/eth1", {"switch": "sw2", "port_no": 1610612737, "name": "web"})
    desk.refuse("GET", "/v1/ports/sw2/1610612737", 404, "enough")
    dets("port", "show", "sw2:eth1")
    assert [one.path for one in desk.asked] == ["/v1/ports/sw2/eth1", "/v1/ports/sw2/1610612737"]


def test_the_status_tells_troubles_and_fails_with_them(desk: FakeRestServer, dets: Any) -> None:
    desk.on("GET", "/v1/health", {"status": "ready", "switches": {"s1": "ready"}, "full_vns": 2})
    full = "2 VNs with as many hosts as they may learn: dets vn list -o json has hosts_full"
    assert dets("status")[:2] == (0, f"ready\nswitch  state  faults\ns1      ready  -     \n{full}\n")
    desk.on("GET", "/v1/health", {"status": "degraded", "switches": {"s1": "ready"}, "faults": {"s1": ["no meters"]}})
    status, out, _ = dets("status")
    assert (status, lines(out)[2]) == (1, ["s1", "ready", "no", "meters"])


# -- changes


def test_limits_ceilings_and_a_weight_are_set_in_the_units_of_people(desk: FakeRestServer, dets: Any) -> None:
    desk.on("PATCH", VN_PATH, VN)
    status, out, err = dets("limit", "set", *HERE, "--receive", "400M", "--send", "1.5G", "--weight", "2.5")
    assert (status, out, err) == (0, "VLAN 10, sw1:3: weight 2.5, send 1.5G, receive 400M (revision 17)\n", "")
    asked = desk.last()
    assert asked.body == {"send_limit_bps": 1_500_000_000, "receive_limit_bps": 400_000_000, "weight": 2.5}
    assert (asked.query, asked.headers.get("If-Match")) == ({}, None)
    assert json.loads(dets("limit", "set", *HERE, "--send", "64k", "-o", "json")[1]) == VN
    assert desk.last().body == {"send_limit_bps": 64_000}
    out = dets("limit", "set", *HERE, "--receive-ceiling", "1G", "--send-ceiling", "none")[1]
    assert out == "VLAN 10, sw1:3: send ceiling none, receive ceiling 1G (revision 17)\n"
    assert desk.last().body == {"send_ceiling_bps": None, "receive_ceiling_bps": 10**9}


def test_several_ports_are_one_transaction(desk: FakeRestServer, dets: Any) -> None:
    desk.on("POST", "/v1/limits", {"revision": 18, "changed": 2})
    status, out, _ = dets("limit", "set", *HERE, "--port", "sw2:1", "--receive", "4M")
    assert (status, out) == (0, "2 values changed (revision 18)\n")
    assert desk.last().body == {
        "limits": [
            {"vlan_vid": 10, "switch": "sw1", "port_no": 3, "receive_limit_bps": 4_000_000},
            {"vlan_vid": 10, "switch": "sw2", "port_no": 1, "receive_limit_bps": 4_000_000},
        ]
    }


def test_a_dry_run_is_asked_for_and_told(desk: FakeRestServer, dets: Any) -> None:
    desk.on("PATCH", VN_PATH, VN)
    out = dets("limit", "set", *HERE, "--send", "1M", "--dry-run", "--wait")[1]
    assert out == "VLAN 10, sw1:3: send 1M (nothing is changed: --dry-run)\n"
    assert [one.query for one in desk.asked] == [{"dry_run": "true"}]


def test_a_change_can_be_bound_to_a_revision(desk: FakeRestServer, dets: Any) -> None:
    desk.refuse("PATCH", VN_PATH, 412, 'it was changed since: its revision is "18"')
    status, out, err = dets("limit", "set", *HERE, "--send", "1M", "--if-revision", "17")
    assert (status, out, err) == (2, "", 'dets: it was changed since: its revision is "18"\n')
    assert desk.last().headers["If-Match"] == '"17"'
    desk.refuse("PATCH", VN_PATH, 428, "send If-Match")
    assert dets("limit", "set", *HERE, "--send", "1M")[::2] == (2, "dets: send If-Match (here: --if-revision N)\n")


def test_wait_returns_when_the_change_is_in_force(desk: FakeRestServer, dets: Any) -> None:
    desk.on("PATCH", VN_PATH, VN)
    late = {**IN_FORCE, "installed_revision": 16, "unconfirmed_switches": ["sw1"]}
    desk.on("GET", "/v1/revision", late, late, {**late, "installed_revision": 17})
    assert dets("limit", "set", *HERE, "--send", "1M", "--wait")[:2] == (
        0,
        "VLAN 10, sw1:3: send 1M (revision 17, in force)\n",
    )
    assert [one.path for one in desk.asked] == [VN_PATH, *["/v1/revision"] * 3]


@pytest.mark.parametrize(
    ("missing", "health", "said"),
    [
        ({"disconnected_switches": ["sw2"]}, {}, AWAY),
        ({"disconnected_switches": ["sw2"]}, {"cluster": {"node": "n1", "role": "active"}}, AWAY),
        ({"disconnected_switches": ["sw2"]}, {"cluster": {"node": "n1", "role": "sharded"}}, AWAY),
        ({"disconnected_switches": ["sw2"]}, {"cluster": {"node": "n1", "role": "standby"}}, ""),
        ({"unreachable_nodes": ["n2"]}, {}, UNKNOWN),
    ],
)
def test_wait_tells_where_it_does_not_know(
    desk: FakeRestServer, dets: Any, missing: dict[str, Any], health: dict[str, Any], said: str
) -> None:
    desk.on("PATCH", VN_PATH, VN)
    desk.on("GET", "/v1/revision", IN_FORCE | missing)
    desk.on("GET", "/v1/health", {"status": "degraded"} | health)
    done = dets("limit", "set", *HERE, "--send", "1M", "--wait")
    assert done == (0, "VLAN 10, sw1:3: send 1M (revision 17, in force)\n", said)


@pytest.mark.parametrize(
    ("unconfirmed", "disconnected", "lagging"),
    [
        (["sw1"], ["sw2"], "sw1 has not confirmed it, sw2 is not connected"),
        (None, None, "the controller has not sent it"),  # which the answer may have
    ],
)
def test_wait_tells_which_switches_lag(
    desk: FakeRestServer, dets: Any, unconfirmed: list[str] | None, disconnected: list[str] | None, lagging: str
) -> None:
    desk.on("PATCH", VN_PATH, VN)
    late = {"installed_revision": 16, "unconfirmed_switches": unconfirmed, "disconnected_switches": disconnected}
    desk.on("GET", "/v1/revision", late)
    status, out, err = dets("limit", "set", *HERE, "--send", "1M", "--wait", "--timeout", "0.01")
    assert (status, out) == (1, "")
    assert err == f"dets: revision 17 is kept, but not in force after 0.01 s: {lagging}\n"


def test_a_vlan_is_changed(desk: FakeRestServer, dets: Any) -> None:
    desk.on("PATCH", "/v1/vlans/10", VLAN)
    words = "vlan set 10 --name blue --algorithm sp --parameter inflation=0.2 --shadow none --weight 2 --receive 40M"
    words += " --shadow-parameter d=2"
    set_values = (
        "name blue, algorithm sp, weight 2, receive 40M, parameters inflation=0.2, shadow parameters d=2, shadow none"
    )
    assert dets(*words.split())[:2] == (0, f"VLAN 10: {set_values} (revision 3)\n")
    assert desk.last().body == {
        "name": "blue",
        "algorithm": "sp",
        "weight": 2.0,
        "receive_limit_bps": 40_000_000,
        "parameters": {"inflation": 0.2},
        "shadow_parameters": {"d": 2},
        "shadow": None,
    }


@pytest.mark.parametrize(
    ("words", "path", "if_match"),
    [
        (["vlan", "reset", "10"], "/v1/vlans/10/overrides", None),
        (["limit", "reset", *HERE], f"{VN_PATH}/overrides", None),
        (["limit", "reset", "--all"], "/v1/overrides", "*"),
        (["limit", "reset", "--all", "--if-revision", "4"], "/v1/overrides", '"4"'),
    ],
)
def test_what_was_set_is_taken_back(
    desk: FakeRestServer, dets: Any, words: list[str], path: str, if_match: str | None
) -> None:
    desk.on("DELETE", path, {"revision": 5, "changed": 1})
    assert dets(*words) == (0, "1 value changed (revision 5)\n", "")
    assert desk.last().headers.get("If-Match") == if_match


def test_many_limits_come_from_a_file(desk: FakeRestServer, dets: Any, tmp_path: Path) -> None:
    desk.on("POST", "/v1/limits", {"revision": 18, "changed": 3})
    file = tmp_path / "limits.yaml"
    file.write_text("""\
- {vlan: 10, port: 'sw1:3', receive: 400M, weight: 3}
- {vlan: 20, port: sw1:4, send: 64000, send_ceiling: none}
""")
    assert dets("limit", "apply", str(file)) == (0, "3 values changed (revision 18)\n", "")
    assert desk.last().body["limits"] == [
        {"vlan_vid": 10, "switch": "sw1", "port_no": 3, "receive_limit_bps": 400_000_000, "weight": 3},
        {"vlan_vid": 20, "switch": "sw1", "port_no": 4, "send_limit_bps": 64_000, "send_ceiling_bps": None},
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- {vlan: 10, port: sw1:3, receive: 4x}", "1:36: [0].receive: '4x' is not a rate"),
        ("- {vlan: 10, port: sw1:3, weight: 0}", "1:35: [0].weight: 0 must be a number, 0.000001 to 1000000"),
        ("- {vlan: 10, port: sw1:3}", "1:3: [0]: sets nothing"),
        ("- {vlan: 1.5, port: sw1:3, send: 1M}", "1:10: [0].vlan: 1.5 is not a VLAN's id or name"),
        ("- {vlan: 10, send: 1M}", "1:3: [0]: lacks port: SWITCH:PORT"),
        ("- {vlan: 10, port: sw1:3, sned: 1M}", "[0].sned: is not a known key; known are vlan, port"),
        ("- 5", "[0]: 5 is not of the form"),
        ("a: 1", "is not a list"),
        ("- {", "not YAML"),
    ],
)
def test_a_bad_file_is_told_with_line_and_column(
    desk: FakeRestServer, dets: Any, tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text(text + "\n")
    status, out, err = dets("limit", "apply", str(file))
    assert (status, out) == (2, "")
    assert err.startswith(str(file))
    assert problem in err
    assert desk.asked == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["limit", "set", *HERE, "--send", "4x"], "--send: '4x' is not a rate: write bits per second, such as 400M"),
        (["limit", "set", *HERE, "--send", "1"], "--send: '1' is outside 1k to 4.295T"),
        (["limit", "set", *HERE], "Nothing to set: write --send, --receive"),
        (
            ["limit", "set", "--vlan", "10", "--port", "sw1:x y", "--send", "1M"],
            "--port: 'sw1:x y' is not SWITCH:PORT, such as s1:3, nor the name of a port",
        ),
        (["limit", "set", "--vlan", "0", "--port", "s:1", "--send", "1M"], "--vlan: '0' is no VLAN id, 1 to 4094"),
        (["limit", "set", "--vlan", "a/b", "--port", "s:1", "--send", "1M"], "--vlan: 'a/b' is neither a VLAN's id"),
        (["top", "--vlan", "4095"], "--vlan: '4095' is no VLAN id"),
        (["limit", "set", *HERE, "--send", "1M", "--timeout", "0"], "--timeout: 0.0 must be above 0"),
        (["limit", "reset", "--vlan", "10"], "Write --vlan VLAN --port PORT, or --all"),
        (["limit", "reset", "--vlan", "10", "--all"], "Write --vlan VLAN --port PORT, or --all"),
        (["vlan", "set", "10"], "Nothing to set: write --name"),
        (["vlan", "set", "10", "--parameter", "d"], "--parameter: 'd' is not KEY=VALUE"),
        (["vn", "list", "--url", "ftp://x"], "--url: 'ftp://x' is not an address such as http://127.0.0.1:8080"),
        (["vn", "list", "--url", "http://[::1"], "--url: 'http://[::1' is not an address such as"),
        (["status", "--wait", "--timeout", "nan"], "--timeout: nan must be above 0 and at most 86400 seconds"),
        (["top", "--vlan", "1" * 5000], "--vlan: '111"),
        (["limit", "set", "--vlan", "10", "--port", f"s:{'1' * 5000}", "--send", "1M"], "--port: 's:111"),
        (["vn", "list", "--token-file", "/none"], "--token-file: '/none' cannot be read: No such file"),
        (["vn", "list", "--cacert", "/none"], "--cacert: '/none' is not a file"),
        (["vn", "list", "--key", __file__], f"--key: {__file__!r} stands alone"),
        (["vn", "list", "--cacert", __file__], f"--cacert: {__file__!r} holds no certificate in PEM form"),
        (["top", "--interval", "0.1"], "--interval: 0.1 is outside 0.25 to 60 seconds"),
        (["import", "/none"], "FILE: '/none' cannot be read: No such file or directory"),
        (["replay", "/none"], "FILE: '/none' cannot be read: No such file or directory"),
    ],
)
def test_bad_words_are_refused_in_one_line_before_anybody_is_asked(
    desk: FakeRestServer, dets: Any, words: list[str], line: str
) -> None:
    status, out, err = dets(*words)
    assert (status, out) == (2, "")
    assert err.startswith(f"dets: {line}")
    assert len(err.splitlines()) == 1
    assert desk.asked == []


def test_a_file_that_cannot_be_written_is_named(desk: FakeRestServer, dets: Any) -> None:
    desk.on("GET", "/v1/export", {})
    assert dets("export", "/none/x") == (1, "", "dets: '/none/x': No such file or directory\n")


def test_refusals_are_the_controllers_own_words(desk: FakeRestServer, dets: Any) -> None:
    desk.refuse("PATCH", VN_PATH, 422, "receive_limit_bps: 2000000000 is above the port's capacity of 1G")
    status, _, err = dets("limit", "set", *HERE, "--receive", "2G")
    assert (status, err) == (2, "dets: receive_limit_bps: 2000000000 is above the port's capacity of 1G\n")
    error = {"field": "receive_limit_bps", "value": 2 * 10**9, "reason": "does not fit: at most 1G does"}
    desk.on("PATCH", VN_PATH, {"detail": "...", "errors": [error]}, status=422)
    assert dets("limit", "set", *HERE, "--receive", "2G")[2] == "dets: --receive: 2G does not fit: at most 1G does\n"
    desk.refuse("PATCH", VN_PATH, 503, "the store cannot write")
    assert dets("limit", "set", *HERE, "--receive", "2G")[::2] == (1, "dets: the store cannot write\n")
    desk.on("PATCH", VN_PATH, PreparedResponse(raw=b"<html>", status=502))
    status, _, err = dets("limit", "set", *HERE, "--receive", "2G")
    assert (status, err) == (1, f"dets: {desk.url}{VN_PATH} answers 502 Bad Gateway\n")


@pytest.mark.parametrize(
    ("words", "field", "value", "line"),
    [
        (["vn", "show", "--vlan", "t104", "--port", "sw1:3"], "vlan_vid", "t104", "--vlan: t104 is not here"),
        (["vn", "show", "--vlan=t104", "--port", "sw1:3"], "vlan_vid", "t104", "--vlan: t104 is not here"),
        (["vlan", "show", "t104"], "vlan_vid", "t104", "VLAN: t104 is not here"),
        (["vn", "show", "--vlan", "9", "--port", "sw1:9"], "port_no", "9", "--port: sw1:9 is not here"),
        (["vn", "show", "--vlan", "9", "--port", "sw1:9"], "switch", "sw1", "--port: sw1:9 is not here"),
        (["port", "show", "sw1:9"], "port_no", "9", "PORT: sw1:9 is not here"),
        (["port", "show", "sw1:eth9"], "port_no", "eth9", "PORT: sw1:eth9 is not here"),
        (["vn", "list", "--vlan", "9", "--switch", "sw9"], "switch", "sw9", "--switch: sw9 is not here"),
        (["vn", "show", "--vlan", "9", "--port", "sw1:9"], "other", "9", "detail"),
    ],
)
def test_a_name_that_is_not_there_is_named_as_it_was_typed(
    desk: FakeRestServer, dets: Any, words: list[str], field: str, value: str, line: str
) -> None:
    errors = [{"field": field, "value": value, "reason": "is not here"}]
    problem = {"type": "urn:x", "title": "x", "status": 404, "detail": "detail", "errors": errors}
    for path in (
        "/v1/vns/t104/sw1/3",
        "/v1/vlans/t104",
        "/v1/vns/9/sw1/9",
        "/v1/ports/sw1/9",
        "/v1/ports/sw1/eth9",
        "/v1/vns",
    ):
        desk.on("GET", path, problem, status=404, content_type="application/problem+json")
    assert dets(*words)[::2] == (2, f"dets: {line}\n")


# -- who asks


def test_the_token_comes_from_option_environment_or_settings(
    desk: FakeRestServer, dets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.on("GET", "/v1/health", {"status": "ready", "switches": {}})

    def shown() -> str | None:
        assert dets("status")[0] == 0
        return desk.last().headers.get("Authorization")

    assert shown() is None
    for name in ("settings", "environment", "option"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "token").write_text(f"of-{name}\n")
    file = command_options.settings_file()
    file.parent.mkdir(parents=True)
    file.write_text(f'token_file = "{tmp_path}/settings/token"\n')
    assert shown() == "Bearer of-settings"
    monkeypatch.setenv("DETS_TOKEN_FILE", str(tmp_path / "environment" / "token"))
    assert shown() == "Bearer of-environment"
    assert dets("status", "--token-file", str(tmp_path / "option" / "token"))[0] == 0
    assert desk.last().headers["Authorization"] == "Bearer of-option"
    monkeypatch.delenv("DETS_TOKEN_FILE")
    monkeypatch.setenv("DETS_TOKEN", "of-the-word")
    assert shown() == "Bearer of-the-word"
    monkeypatch.setenv("DETS_TOKEN", "two words")
    status, _, err = dets("status")
    assert (status, err) == (
        2,
        "dets: DETS_TOKEN: '(hidden)' holds no token: it is one word, as dets token create prints it\n",
    )


def test_the_address_may_be_in_the_settings(desk: FakeRestServer, dets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETS_URL")
    file = command_options.settings_file()
    file.parent.mkdir(parents=True)
    file.write_text(f'url = "{desk.url}"\n')
    desk.on("GET", "/v1/health", {"status": "ready", "switches": {}})
    assert dets("status")[0] == 0
    for text, line in (
        ("colour = 'red'", f"{file}: 'colour' is not one of url, token_file, cacert, cert, key"),
        ("url = 5", f"{file}: url: 5 is not text: put it in quotes"),
        ("url", f"{file}: '' cannot be read: "),
    ):
        file.write_text(text)
        status, _, err = dets("status")
        assert status == 2
        assert err.startswith(f"dets: {line}")
        assert len(err.splitlines()) == 1


# -- what is kept


CHANGE = {
    "revision": 9,
    "at": "2026-01-01T00:00:00Z",
    "who": "anna",
    "address": "127.0.0.1",
    "action": "vn",
    "changed": 1,
}


def test_the_history_tells_who_changed_what(desk: FakeRestServer, dets: Any) -> None:
    desk.on("GET", "/v1/history", {"changes": [CHANGE], "next": "x"})
    assert lines(dets("history", "--limit", "1")[1])[1] == ["9", "2026-01-01T00:00:00Z", "anna", "127.0.0.1", "vn", "1"]
    assert desk.last().query == {"limit": "1"}
    item = {
        "vlan_vid": 10,
        "switch": "sw1",
        "port_no": 3,
        "field": "send_limit_bps",
        "before": 10**6,
        "after": 2 * 10**6,
    }
    desk.on(
        "GET", "/v1/history/9", {**CHANGE, "items": [item, {**item, "switch": None, "field": "name", "after": "b"}]}
    )
    out = dets("history", "9")[1]
    assert lines(out)[4:] == [
        ["VLAN", "10,", "sw1:3", "send_limit_bps", "1M", "2M"],
        ["VLAN", "10", "name", "1000000", '"b"'],
    ]
    assert json.loads(dets("history", "9", "-o", "json")[1])["items"][0] == item


def test_the_last_change_is_undone_unless_another_came_between(desk: FakeRestServer, dets: Any) -> None:
    desk.on("GET", "/v1/history", {"changes": [CHANGE], "next": None})
    desk.on("POST", "/v1/history/9/undo", {"revision": 10, "changed": 1})
    assert dets("undo")[:2] == (0, "revision 9 undone: 1 value as before (revision 10)\n")
    assert (desk.last().headers["If-Match"], desk.last().query) == ('"9"', {})
    assert json.loads(dets("undo", "9", "--dry-run", "-o", "json")[1]) == {"revision": 10, "changed": 1}
    assert ("If-Match" in desk.last().headers, desk.last().query) == (False, {"dry_run": "true"})
    desk.on("GET", "/v1/history", {"changes": [], "next": None})
    assert dets("undo")[::2] == (2, "dets: there is no change to undo: dets history is empty (see dets undo --help)\n")


def test_a_reload_tells_what_it_changed(desk: FakeRestServer, dets: Any) -> None:
    row = {"path": "vlans.121.name", "before": None, "after": "blue"}
    desk.on("POST", "/v1/reload", {"revision": 4, "summary": ["VLAN 121 (blue) added"], "changes": [row] * 7})
    assert dets("reload")[:2] == (0, "VLAN 121 (blue) added\n7 values changed (revision 4)\n")
    assert json.loads(dets("reload", "-o", "json")[1])["changes"] == [row] * 7


OVERRIDE = {
    "vlan_vid": 10,
    "switch": "sw1",
    "port_no": 3,
    "values": {"send_limit_bps": 10**6},
    "file": {},
    "revision": 9,
}


def test_overrides_are_listed_with_what_holds_them_back(desk: FakeRestServer, dets: Any) -> None:
    inactive = {**OVERRIDE, "active": False, "reason": "no such VN"}
    desk.lists("/v1/overrides", {**OVERRIDE, "active": True, "reason": None}, inactive)
    out = lines(dets("overrides")[1])
    assert out[1] == ["VLAN", "10,", "sw1:3", "send_limit_bps", "1M", "-", "9", "yes"]
    assert out[2][-4:] == ["no:", "no", "such", "VN"]


def test_what_is_exported_is_imported(desk: FakeRestServer, dets: Any, tmp_path: Path) -> None:
    document = {"format": "dets-overrides-1", "vlans": [], "vns": []}
    desk.on("GET", "/v1/export", document)
    assert json.loads(dets("export")[1]) == document
    assert json.loads(dets("export", "-")[1]) == document
    file = tmp_path / "overrides.json"
    assert dets("export", str(file))[1] == f"wrote {file}\n"
    inactive = {**OVERRIDE, "active": False, "reason": "no such VN"}
    desk.on("POST", "/v1/import", {"revision": 4, "changed": 2, "inactive": [inactive]})
    status, out, _ = dets("import", str(file))
    assert status == 0
    assert out.splitlines()[:2] == ["2 values changed (revision 4)", "1 override kept, and not in force:"]
    assert (desk.last().body, desk.last().headers["If-Match"]) == (document, "*")
    file.write_text("{")
    assert "is not JSON as dets export writes it" in dets("import", str(file))[2]


def test_a_form_that_is_none_is_named_once(dets: Any) -> None:
    status, _, err = dets("status", "-o", "foo")
    assert (status, err.count("'foo'"), err.count("Value error")) == (2, 1, 0)
    assert "'table', 'json', 'yaml'" in err


# -- how quick it is, and how it completes


@pytest.mark.parametrize(("words", "found"), [("dets v", "vlan\nvn"), ("dets limit set --dry", "--dry-run")])
def test_the_shell_completes_commands_and_options(words: str, found: str) -> None:
    environment = {
        "_DETS_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [sys.executable, "-m", "apps.cli"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() == found


def test_vlans_and_ports_are_known_by_name_too(desk: FakeRestServer, dets: Any, tmp_path: Path) -> None:
    port = {"switch": "sw1", "port_no": 3, "name": "sw1-3"}
    desk.lists("/v1/ports", port)
    desk.on("GET", "/v1/vlans/blue", VLAN)
    desk.on("PATCH", "/v1/vns/blue/sw1/3", VN)
    done = dets("limit", "set", "--vlan", "blue", "--port", "sw1-3", "--receive", "5M")
    assert done == (0, "VLAN blue, sw1-3: receive 5M (revision 17)\n", "")
    assert [(one.path, one.query) for one in desk.asked[:-1]] == [("/v1/ports", {"name": "sw1-3"})]
    file = tmp_path / "limits.yaml"
    file.write_text("- {vlan: blue, port: sw1-3, receive: 4M}\n- {vlan: blue, port: 'sw1:4', receive: 4M}\n")
    desk.asked.clear()
    desk.on("POST", "/v1/limits", {"revision": 18, "changed": 2})
    assert dets("limit", "apply", str(file)) == (0, "2 values changed (revision 18)\n", "")
    rows = [{"vlan_vid": 10, "switch": "sw1", "port_no": n, "receive_limit_bps": 4_000_000} for n in (3, 4)]
    assert desk.last().body == {"limits": rows}
    assert [one.path for one in desk.asked] == ["/v1/ports", "/v1/vlans/blue", "/v1/limits"]  # each name once
    desk.on("GET", "/v1/vns/blue/sw1/3/explanations", {"explanations": [], "pair_count": 0})
    assert dets("explain", "--vlan", "blue", "--from", "sw1-3") == (0, "", "")


@pytest.mark.parametrize(
    ("ports", "line"),
    [
        ([], "--port: 'up' is not the name of an edge port: dets port list shows those"),
        ([("s1", 1), ("s2", 7)], "--port: 'up' is the name of s1:1, s2:7: write SWITCH:PORT"),
    ],
)
def test_a_port_name_that_is_not_one_port_is_refused(
    desk: FakeRestServer, dets: Any, ports: list[tuple[str, int]], line: str
) -> None:
    rows = [{"switch": switch, "port_no": port_no} for switch, port_no in ports]
    desk.lists("/v1/ports", *rows)
    assert dets("vn", "show", "--vlan", "10", "--port", "up") == (2, "", f"dets: {line}\n")


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("words", [["limit", "set"], ["experiment"], ["vlan"], []], ids=" ".join)
def test_help_cuts_no_word_and_shows_flags_as_flags(
    dets: Any, monkeypatch: pytest.MonkeyPatch, words: list[str], width: int
) -> None:
    def shown(columns: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        out: str = dets(*words, "--help")[1]
        assert max(map(len, out.splitlines())) <= columns
        return out.split()

    narrow = shown(width)
    assert not [word for word in narrow if word.endswith(("…", "..")) and word not in ("[ARGS]...",)]
    assert "<bool>" not in narrow
    assert "".join(narrow) == "".join(shown(2 * width))  # the same words, broken at spaces and hyphens alone
    if words == ["limit", "set"]:
        assert narrow[narrow.index("--dry-run") + 1] == "Check"


def test_a_table_too_wide_for_the_terminal_is_shown_row_by_row(
    desk: FakeRestServer, dets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=40, height=20, color_system=None, highlight=False)
    monkeypatch.setattr(output, "console", lambda: terminal)
    desk.lists("/v1/vlans", VLAN, VLAN | {"vlan_vid": 20})
    assert dets("vlan", "list")[0] == 0
    shown = screen.getvalue()
    assert "…" not in shown
    assert lines(shown)[:2] == [["VLAN", "10"], ["name", "tenant-a"]]
    assert "VLAN        20" in shown


def test_the_ledger_shows_promises_and_how_guarantees_fared(desk: FakeRestServer, dets: Any) -> None:
    by = {"switch": 0.0, "controller": 0.5, "floods": 0.0, "grants": 2.0}
    fared = {
        "entitled_bps": 5_000_000,
        "received_bps": 4_000_000,
        "violated": True,
        "violated_since": "2026-01-01T00:00:00Z",
    }
    fared |= {"idle_s": 60.0, "met_s": 30.0, "violated_s": 2.5, "violated_last_hour_s": 2.5, "violated_by_s": by}
    port = {"switch": "sw1", "port_no": 3, "capacity_bps": 100_000_000, "admissible_bps": 90_000_000}
    desk.lists("/v1/ports", port | {"send_limits_bps": 60_000_000, "receive_limits_bps": 80_000_000})
    desk.lists("/v1/links")
    desk.lists("/v1/vns", VN | {"guarantee": fared})
    status, out, err = dets("guarantees")
    assert (status, err) == (0, "")
    assert lines(out)[1] == ["sw1:3", "100M", "60M", "80M", "30M", "10M"]
    row = ["10", "sw1:3", "5M", "4M", "2026-01-01T00:00:00Z", "60.0", "30.0", "2.5", "2.5", "0.0", "0.5", "0.0", "2.0"]
    assert lines(out)[-1] == row
    assert desk.last().query == {"violated": "true"}
    assert lines(dets("guarantees", "--vlan", "blue")[1])[-1] == row
    assert desk.last().query == {"vlan": "blue"}
    desk.lists("/v1/vns")
    assert dets("guarantees")[1].endswith("Every VN gets what its senders offer within its limit.\n")
    assert set(json.loads(dets("guarantees", "-o", "json")[1])) == {"ports", "links", "violated"}
