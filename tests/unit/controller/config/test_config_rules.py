"""The configuration as a whole: what a good file yields, and that a bad one is told exactly what is wrong."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import refused
from support.paths import ROOT

from controller.config.loader import load_config, parse_config
from controller.config.yaml_document import ConfigError, read_document
from controller.fabric.config_model import Config, Endpoint, MeterSettings, Vn

GOOD = """\
control:
  interval_ms: 20
  on_stop: remove
openflow: {listen: "[::1]:6653", first_meter_id: 100, last_meter_id: 200}
queues: {max_rate: capacity}
vlans:
  10: {name: tenant-a, algorithm: fp, parameters: {d: 2}, send_limit: 40M, receive_limit: 40M, weight: 2}
  20: {name: tenant-b, send_limit: 50M, receive_limit: 50M}
switches:
  s1:
    dpid: "00000000000000a1"
    ovsdb: unix:/run/openvswitch/db.sock
    ports:
      1: {capacity: 100M, access: 10}
      2:
        name: pn2
        capacity: 100M
        trunk: [10, 20]
        vns:
          10: {send_limit: 20M, receive_limit: 30M}
  c1: {dpid: 2}
"""
SMALL = """\
vlans:
  10: {send_limit: 40M, receive_limit: 40M}
  20: {send_limit: 50M, receive_limit: 50M}
switches:
  s1:
    dpid: 1
    ports:
      1: {capacity: 100M, trunk: [10, 20]}
"""


FIVE_PROBLEMS = """\
openflow: {first_meter_id: 9, last_meter_id: 8}
vlans:
  10: {algorithm: fp, parameters: {d: 0.5}, send_limit: 40M, receive_limit: 140M}
  20: {send_limit: 50M, receive_limit: 50M}
  010: {}
switches:
  s1: {dpid: 1, ports: {1: {capacity: 100M, access: 10}, 2: {capacity: 90M, trunk: [20, 20]}}}
  s2: {dpid: 1}
links: [{between: [s1:9, s1:10], capacity: fast}]
"""


def test_five_problems_of_five_readers_come_in_the_order_of_the_file() -> None:
    assert refused(FIVE_PROBLEMS) == [
        "f:1:46: openflow.last_meter_id: 8 is below first_meter_id, 9",
        "f:3:39: vlans.10.parameters.d: 0.5 must be above 1 and at most 1000",
        "f:5:3: vlans.010: '010' is not a VLAN id: it must be a decimal number, 1 to 4094",
        "f:7:39: switches.s1.ports.1.capacity: the receive_limit of VLAN 10 here is vlans.10.receive_limit (line 3), "
        "140M, above the port's capacity, 100M",
        "f:7:89: switches.s1.ports.2.trunk[1]: 20 is on this port already",
        "f:8:14: switches.s2.dpid: 0000000000000001 is also the dpid of switch s1 (line 7)",
        "f:9:19: links[0].between: both ends are on switch s1",
        "f:9:44: links[0].capacity: 'fast' is not a rate: write bits per second, such as 400M, 1.5G or 64000",
    ]


def test_reading_a_section_needs_no_routes_and_no_algorithms() -> None:
    script = (
        "import sys, controller.config.ports, controller.config.links, controller.config.listeners\n"
        "print([name for name in sys.modules if name == 'networkx' or name.startswith(('controller.limits', "
        "'controller.allocation', 'controller.fabric.topology'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_good_file() -> None:
    config = parse_config(GOOD, "good.yaml")
    assert (config.interval_s, config.on_stop, config.queue_max_rate) == (0.02, "remove", "capacity")
    assert (config.mac_ageing_s, config.max_macs_per_vn) == (300, 64)
    assert config.openflow_listen == Endpoint("::1", 6653)
    assert str(config.openflow_listen) == "[::1]:6653"
    assert str(config.rest.listen) == "127.0.0.1:8080"
    assert (config.first_meter_id, config.last_meter_id) == (100, 200)
    first, second = config.vlans[10], config.vlans[20]
    assert (first.name, first.algorithm, dict(first.parameters), first.weight) == ("tenant-a", "fp", {"d": 2}, 2.0)
    assert (second.algorithm, second.weight, second.receive_limit_bps) == ("fp", 1.0, 50_000_000)
    switch = config.switches["s1"]
    assert (switch.dpid, switch.ovsdb) == (0xA1, "unix:/run/openvswitch/db.sock")
    access, trunk = switch.ports[1], switch.ports[2]
    assert (access.name, access.is_access, access.capacity_bps) == ("s1-1", True, 100_000_000)
    assert (trunk.name, trunk.untagged_vid) == ("pn2", None)
    assert config.switches["c1"].ports == {}
    # VNs have their own limits, or their VLAN's.
    assert list(config.vns()) == [
        Vn(10, "s1", 0xA1, 1, 40_000_000, 40_000_000),
        Vn(10, "s1", 0xA1, 2, 20_000_000, 30_000_000, own_limits=("send", "receive")),
        Vn(20, "s1", 0xA1, 2, 50_000_000, 50_000_000),
    ]


@pytest.mark.parametrize(
    ("written", "dpid"),
    [
        ('"0000000000000001"', 1),
        ("0000000000000010", 0x10),
        ("00000000000000e1", 0xE1),
        ("0x1F", 0x1F),
        ("17", 17),
        ('"ffffffffffffffff"', 2**64 - 1),
    ],
)
def test_dpids(written: str, dpid: int) -> None:
    assert parse_config(SMALL.replace("dpid: 1", f"dpid: {written}")).switches["s1"].dpid == dpid


# (what to replace in SMALL, by what, the beginning of the line that is expected, and an excerpt)
ONE_PROBLEM = [
    (
        "40M}",
        "150M}",
        "f:8:21: switches.s1.ports.1.capacity: ",
        "the receive_limit of VLAN 10 here is vlans.10.receive_limit (line 2), 150M, above the port's capacity, 100M",
    ),
    ("50M}", "61M}", "f:8:21: switches.s1.ports.1.capacity: ", "40M (VLAN 10) + 61M (VLAN 20) = 101M"),
    ("50M, ", "61M, ", "f:8:21: switches.s1.ports.1.capacity: ", "100M is below the sum of the port's send"),
    ("20]}", "20], vns: {20: {send_limit: 101M}}}", "f:8:67: switches.s1.ports.1.vns.20.send_limit: ", "101M is above"),
    ("20]}", "30]}", "f:8:39: switches.s1.ports.1.trunk[1]: ", "30 is not a VLAN of this file; its VLANs are 10, 20"),
    ("[10, 20]}", "[]}", "f:8:34: switches.s1.ports.1.trunk: ", "names no VLAN"),
    ("[10, 20]}", "10}", "f:8:34: switches.s1.ports.1.trunk: ", "10 is not a list"),
    ("trunk: [10, 20]}", "access: [10]}", "f:8:35: switches.s1.ports.1.access: ", "[10] is a list: write one whole"),
    ("[10, 20]}", "[10, 4095]}", "f:8:39: switches.s1.ports.1.trunk[1]: ", "4095 is above 4094, the maximum"),
    ("[10, 20]}", "[10], vns: {010: {}}}", "f:8:46: switches.s1.ports.1.vns.010: ", "'010' is not a VLAN id"),
    ("[10, 20]}", "[10], access: 10}", "f:8:40: switches.s1.ports.1.access: ", "not both"),
    ("trunk: [10, 20]}", "access: 10, native: 10}", "f:8:47: switches.s1.ports.1.native: ", "10 is not on this port's"),
    (", trunk: [10, 20]}", "}", "f:8:7: switches.s1.ports.1: ", "needs access"),
    ("capacity: 100M, ", "", "f:8:7: switches.s1.ports.1.capacity: ", "is missing"),
    ("capacity: 100M", "capacity: 1e9", "f:8:21: switches.s1.ports.1.capacity: ", "'1e9' is not a rate"),
    ("capacity: 100M", "capacity: ١٠٠M", "f:8:21: switches.s1.ports.1.capacity: ", "'١٠٠M' is not a rate"),
    ("capacity: 100M", "capacity: 99", "f:8:21: switches.s1.ports.1.capacity: ", "99 is outside 1k to"),
    ("capacity: 100M", "capacity: ", "f:8:21: switches.s1.ports.1.capacity: ", "is empty"),
    ("capacity: 100M", "capacity: 100M, frame_overhead_bytes: 257", "f:8:49: ", "257 is above 256, the maximum"),
    ("      1: {", "      0: {", "f:8:7: switches.s1.ports.0: ", "'0' is not a port number"),
    ("      1: {", "      4294967041: {", "f:8:7: switches.s1.ports.4294967041: ", "1 to 4294967040"),
    ("send_limit: 40M, ", "", "f:8:7: switches.s1.ports.1.vns.10.send_limit: ", "VLAN 10 has no send_limit"),
    ("  20: {send", "  20: {name: 7, send", "f:3:14: vlans.20.name: ", "put a number in quotes"),
    ("  20: {send", "  20: {name: 'a b', send", "f:3:14: vlans.20.name: ", "'a b' must be 1 to 63 letters"),
    ("  20: {send", "  20: {weight: 0, send", "f:3:16: vlans.20.weight: ", "0 is below 1e-06, the minimum"),
    ("  20: {send", "  20: {weight: true, send", "f:3:16: vlans.20.weight: ", "True is not a number"),
    ("20: {", "20: {algorithm: fp, parameters: {dd: 0.5}, ", "f:3:40: vlans.20.parameters.dd: ", ""),
    ("20: {send", "20: {capacity: 1G, send", "f:3:8: vlans.20.capacity: ", "of links[N], switches.NAME.ports.NO)"),
    ("    dpid: 1", "    ovsdb: unix:db.sock\n    dpid: 1", "f:6:12: switches.s1.ovsdb: ", "is not an OVSDB address"),
    ("    dpid: 1", "    ovsdb: tcp:h:0\n    dpid: 1", "f:6:12: switches.s1.ovsdb: ", "outside 1 to 65535"),
    ("    dpid: 1", "    ovsdb: ptcp:6640\n    dpid: 1", "f:6:12: switches.s1.ovsdb: ", "is not an OVSDB address"),
    ("    dpid: 1", "    ovsdb: 'ptcp:0:[::1]'\n    dpid: 1", "f:6:12: switches.s1.ovsdb: ", "outside 1 to 65535"),
    (
        "    dpid: 1",
        "    ovsdb: ptcp:8080:127.0.0.1\n    dpid: 1",
        "f:6:12: switches.s1.ovsdb: ",
        "is also rest.listen",
    ),
    ("    dpid: 1", "    ovsdb: pssl:6640:0.0.0.0\n    dpid: 1", "f:6:12: switches.s1.ovsdb: ", "pssl needs ovsdb_tls"),
    ("dpid: 1", "dpid: 0", "f:6:11: switches.s1.dpid: ", "outside 1"),
    ("dpid: 1", "dpid: -1", "f:6:11: switches.s1.dpid: ", "outside 1"),
    ("dpid: 1", "dpid: 18446744073709551616", "f:6:11: switches.s1.dpid: ", "outside 1"),
    ("dpid: 1", 'dpid: "0000000000000000"', "f:6:11: switches.s1.dpid: ", "outside 1"),
    ("dpid: 1", "dpid: 1000000000000001", "f:6:11: switches.s1.dpid: ", "could be hex digits"),
    ("dpid: 1", 'dpid: "1"', "f:6:11: switches.s1.dpid: ", "is not a dpid"),
    ("dpid: 1", "dpid: 010", "f:6:11: switches.s1.dpid: ", "is not a dpid"),
    ("dpid: 1", "dpid: true", "f:6:11: switches.s1.dpid: ", "is not a dpid"),
    ("dpid: 1", "dpid: s1", "f:6:11: switches.s1.dpid: ", "is not a dpid"),
    # What is misspelt is not also missing.
    ("receive_limit: 40M", "recieve_limit: 40M", "f:2:25: vlans.10.recieve_limit: ", "did you mean receive_limit?"),
    ("capacity: 100M", "capcity: 100M", "f:8:11: switches.s1.ports.1.capcity: ", "did you mean capacity?"),
    ("  s1:", "  s 1:", "f:5:3: switches.s 1: ", "is not a switch name"),
]
# (a section in front of SMALL, the beginning of the line that is expected, and an excerpt)
ONE_PROBLEM_IN_A_SECTION = [
    ("queues: {max_rate: most}", "f:1:20: queues.max_rate: ", "'most' must be 'limit' or 'capacity'"),
    ("queues: {mode: port}", "f:1:16: queues.mode: ", "'port' must be 'per-vlan' or 'single'"),
    ("control: {on_stop: maybe}", "f:1:20: control.on_stop: ", "'maybe' must be "),
    ("metrics: {vns: 1}", "f:1:16: metrics.vns: ", "1 must be true or false"),
    ("control: {interval_ms: 9}", "f:1:24: control.interval_ms: ", "9 is below 10, the minimum"),
    ("control: {interval_ms: 5.5}", "f:1:24: control.interval_ms: ", "5.5 is not a whole number"),
    ("control: 5", "f:1:10: control: ", "5 is not a section"),
    ("openflow: {listen: localhost}", "f:1:20: openflow.listen: ", "'localhost' is not HOST:PORT"),
    ("openflow: {listen: 'h:65536'}", "f:1:20: openflow.listen: ", "outside 1 to 65535"),
    ("rest: {listen: '127.0.0.1:6653'}", "f:1:16: rest.listen: ", "127.0.0.1:6653 is also openflow.listen"),
    ("rest: {ui: yes}", "f:1:12: rest.ui: ", "'yes' must be true or false"),
    (
        "rest: {trusted_proxies: [192.0.2.1, 192.0.2.1/24]}",
        "f:1:37: rest.trusted_proxies[1]: ",
        "'192.0.2.1/24' is no IP address and no network such as 192.0.2.0/24 (has host bits set)",
    ),
    ("rest: {trusted_proxies: [10]}", "f:1:26: rest.trusted_proxies[0]: ", "(is not text)"),
    ("ecn: {codepoint: 3}", "f:1:18: ecn.codepoint: ", "3 must be 1 or 2"),
    ("ecn: {codepoint: true}", "f:1:18: ecn.codepoint: ", "True is not a whole number"),
    ('store: {file: "a\\0b"}', "f:1:15: store.file: ", "has a character that cannot be printed"),
    ("vlan:\n  1: {}", "f:1:1: vlan: ", "did you mean vlans?"),
    ("rest: {store: x.db}", "f:1:8: rest.store: ", "known key (it is a key of the top level); known"),
    ("interval_ms: 55", "f:1:1: interval_ms: ", "(it is a key of control)"),
    ("rest: {ca: c.pem}", "f:1:8: rest.ca: ", "(it is a key of cluster, ovsdb_tls)"),
    ("rest.listen: h:80", "f:1:1: rest.listen: ", "(write rest: and below it listen:)"),
    ("rest.store: {}", "f:1:1: rest.store: ", "(store is a key of the top level)"),
    ("queues: {classes: none}", "f:1:10: queues.classes: ", "it is called mode now"),
    ("ovsdb_tls: {}", "f:1:1: ovsdb_tls.ca: ", "is missing"),
    ("ovsdb_tls: {ca: c, key: k}", "f:1:20: ovsdb_tls.key: ", "is set without ovsdb_tls.certificate"),
]


@pytest.mark.parametrize(("old", "new", "start", "excerpt"), ONE_PROBLEM)
def test_one_problem_is_one_line(old: str, new: str, start: str, excerpt: str) -> None:
    assert old in SMALL
    (line,) = refused(SMALL.replace(old, new, 1))
    assert line.startswith(start), line
    assert excerpt in line


@pytest.mark.parametrize(("section", "start", "excerpt"), ONE_PROBLEM_IN_A_SECTION)
def test_one_problem_in_a_section_is_one_line(section: str, start: str, excerpt: str) -> None:
    (line,) = refused(f"{section}\n{SMALL}")
    assert line.startswith(start), line
    assert excerpt in line


@pytest.mark.parametrize("vid", ["0", "4095", "010", "-1"])
def test_bad_vlan_ids(vid: str) -> None:
    lines = refused(SMALL.replace("  10: {", f"  {vid}: {{", 1))
    assert lines[0].startswith(f"f:2:3: vlans.{vid}: {vid!r} is not a VLAN id")
    assert "trunk[0]: 10 is not a VLAN of this file" in lines[1]


@pytest.mark.parametrize("section", ["vlans", "switches"])
def test_both_maps_are_needed(section: str) -> None:
    other = {"vlans": "switches: {s1: {dpid: 1}}", "switches": "vlans: {1: {}}"}[section]
    assert refused(other + "\n") == [f"f:1:1: {section}: is missing"]
    (line,) = refused(f"{other}\n{section}: {{}}\n")
    assert line.startswith(f"f:2:{len(section) + 3}: {section}: holds no")
    (line,) = refused(f"{other}\n{section}:\n")
    assert "is empty" in line
    (line,) = refused("[1, 2]\n")
    assert line.startswith("f:1:1: [1, 2] is not a section")


NAMED = """\
vlans:
  10: {name: blue, send_limit: 1M, receive_limit: 1M}
  20: {name: red, send_limit: 1M, receive_limit: 1M}
switches:
  s1: {dpid: 1, ports: {1: {capacity: 1G, access: 10}, 2: {name: up, capacity: 1G, access: 20}}}
  s2: {dpid: 2, ports: {1: {capacity: 1G, access: 10}, eth1: {capacity: 1G, access: 10}}}
  s3: {dpid: 3, ports: {eth1: {capacity: 1G, access: 10}}}
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("red", "blue", "f:3:14: vlans.20.name: blue is also the name of VLAN 10 (line 2)"),
        ("red", "vlan10", ""),
        ("name: blue", "name: vlan20", ""),
        ("{name: blue, ", "{", ""),
        ("eth1: {cap", "eth1: {name: up, cap", "f:6:69: switches.s2.ports.eth1.name: up is also the name of port s1:2"),
        ("access: 10}, eth1", "access: 10, name: eth1}, eth1", "port s2:1 (line 6)"),
        ("eth1: {cap", "eth1: {name: web, cap", ""),
        ("access: 10}, eth1: {", "access: 10, name: eth1}, eth1: {name: web, ", "s2:1"),
        ("name: up", "name: s2-1", "switches.s2.ports.1.name: s2-1 is also the name of port s1:2 (line 5)"),
    ],
)
def test_a_name_is_of_one_vlan_or_port(old: str, new: str, problem: str) -> None:
    text = NAMED.replace(old, new, 1)
    if problem:
        (line,) = refused(text)
        assert problem in line
    else:
        parse_config(text, "f")


def test_the_default_name_of_a_vlan_is_a_name() -> None:
    (line,) = refused(NAMED.replace("name: red, ", "").replace("blue", "vlan20"))
    assert "vlans.20.name: vlan20 is also the name of VLAN 10 (line 2)" in line


def test_one_mistake_at_many_ports_is_told_once() -> None:
    ports = "".join(f"      {number}: {{capacity: 30M, access: 10}}\n" for number in range(2, 22))
    with pytest.raises(ConfigError) as caught:
        parse_config(SMALL + ports, "f")
    assert len(caught.value.problems) == 40
    send, receive = sorted(str(caught.value).splitlines(), key=lambda line: "send" in line, reverse=True)
    assert send.startswith("f:9:21: switches.s1.ports.2.capacity: the send_limit of VLAN 10 here is")
    assert receive.endswith("(and 19 more like this, the last in line 28)")


def test_where_nothing_fits_the_link_is_pointed_at() -> None:
    second = SMALL.replace("dpid: 1", "dpid: 2").partition("switches:\n")[2].replace("s1", "s2")
    link = 'links:\n- {between: ["s1:9", "s2:9"], capacity: 90M}\n'
    parse_config(SMALL + second + link, "f")
    (line,) = refused(SMALL + second + link.replace("90M", "40M"))
    assert "link s1:9-s2:9 would need to carry 90M of 40M (line 14); nothing fits next to the limits before it" in line


def test_a_shadow_has_parameters_of_its_own() -> None:
    given = "20: {algorithm: fp, parameters: {d: 3}, shadow: sp, shadow_parameters: {headroom: 0.1}, "
    vlan = parse_config(SMALL.replace("20: {", given)).vlans[20]
    assert (vlan.parameters, vlan.shadow, vlan.shadow_parameters) == ({"d": 3}, "sp", {"headroom": 0.1})
    (line,) = refused(SMALL.replace("20: {", given.replace("0.1", "11")))
    assert line.startswith("f:3:85: vlans.20.shadow_parameters.headroom: 11 must be ")
    (line,) = refused(SMALL.replace("20: {", given.replace("shadow: sp, ", "")))
    assert "vlans.20.shadow_parameters: is set without shadow" in line


def test_a_limit_equal_to_the_capacity_and_sums_equal_to_it_are_fine() -> None:
    text = SMALL.replace("40M", "50M")
    assert len(list(parse_config(text).vns())) == 2
    assert len(list(parse_config(text.replace("[10, 20]", "[10]").replace("50M", "100M")).vns())) == 1


def test_load_config_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "dets.yaml"
    path.write_text("\ufeff" + SMALL, encoding="utf-8")
    assert load_config(path).source_name == str(path)
    assert isinstance(load_config(str(path)), Config)
    path.write_text(SMALL.replace("dpid: 1", "dpid: x"), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}:6:11: switches.s1.dpid: 'x' is not a dpid")


def binary(path: Path) -> None:
    path.write_bytes(b"vlans:\n  10: \xff\n")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (str, r"odd\.yaml: cannot be read: No such file"),
        (os.mkdir, "cannot be read: Is a directory"),
        (binary, r"odd\.yaml:2:7: is not UTF-8"),
        (os.mkfifo, r"odd\.yaml: is not a regular file"),  # and is not waited for
        (lambda path: os.symlink("/dev/zero", path), r"odd\.yaml: is not a regular file"),
    ],
)
def test_unreadable_files(tmp_path: Path, make: Callable[[Path], object], told: str) -> None:
    make(tmp_path / "odd.yaml")
    with pytest.raises(ConfigError, match=told):
        load_config(tmp_path / "odd.yaml")


# Anything at all in the place of any one value: refused in words or accepted, and never another exception.
junk = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


def _paths(data: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(deeper for key, value in items for deeper in _paths(value, (*path, key)))]


@given(st.sampled_from(_paths(read_document(GOOD).data)[1:]), junk)
@settings(max_examples=200)
def test_any_value_in_any_place_is_accepted_or_refused_in_words(path: tuple[str | int, ...], value: object) -> None:
    data = read_document(GOOD).data
    section = data
    for step in path[:-1]:
        section = section[step]
    section[path[-1]] = value
    text = yaml.safe_dump(data)
    refusal: list[str] = []
    try:
        config = parse_config(text, "f")
    except ConfigError as error:
        refusal = str(error).splitlines()
    if refusal:
        assert all(line.startswith("f:") and len(line) > 10 for line in refusal)
        return
    for switch, port in config.ports():
        for way in ("send_limit_bps", "receive_limit_bps"):
            limits = [getattr(vn, way) for vn in port.vns]
            assert min(limits) >= 1_000
            assert sum(limits) <= port.capacity_bps
        assert all((vn.switch, vn.dpid, vn.port_no) == (switch.name, switch.dpid, port.port_no) for vn in port.vns)
        assert all(vn.vlan_vid in config.vlans for vn in port.vns)


SHARED = """\
cluster: {node: n1, etcd: ["http://127.0.0.1:2379"], mode: sharded, peer_listen: "127.0.0.1:6654"}
vlans:
  10: {algorithm: fs, send_limit: 40M, receive_limit: 40M}
switches:
  s1: {dpid: 1, ovsdb: "tcp:127.0.0.1:1", ports: {1: {capacity: 100M, trunk: [10]}}}
  s2: {dpid: 2}
"""


def test_switches_that_can_be_shared_out() -> None:
    cluster = parse_config(SHARED, "f").cluster
    assert cluster is not None
    assert cluster.mode == "sharded"
    assert cluster.peer_listen == cluster.peer_advertise == Endpoint("127.0.0.1", 6654)
    # A node behind another address listens everywhere.
    behind = SHARED.replace('"127.0.0.1:6654"', '"0.0.0.0:6654", peer_advertise: "10.0.0.1:6654"')
    cluster = parse_config(behind, "f").cluster
    assert cluster is not None
    assert cluster.peer_advertise == Endpoint("10.0.0.1", 6654)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (', peer_listen: "127.0.0.1:6654"', "", "cluster.mode: sharded needs cluster.peer_listen"),
        ("mode: sharded, ", "", "cluster.peer_listen: is set without cluster.mode: sharded"),
        ('"]', '", "http://127.0.0.1:2379"]', "cluster.etcd[1]: 'http://127.0.0.1:2379' is listed twice"),
        ('"http://127.0.0.1:2379"', "", "cluster.etcd: [] has fewer items than 1, the minimum"),
        ("127.0.0.1:6654", "node1:6654", "cluster.peer_listen: node1 is not an IP address"),
        ("127.0.0.1:6654", "0.0.0.0:6654", "cluster.peer_listen: 0.0.0.0 is every address"),
        ("127.0.0.1:6654", "[fe80::1%eth0]:6654", "cluster.peer_listen: fe80::1%eth0 is an address of one link"),
        ("algorithm: fs", "algorithm: fe", "vlans.10.algorithm: fe oscillates when"),
        ("algorithm: fs", "algorithm: fs, shadow: sp", "vlans.10.shadow: sp is not possible with cluster.mode"),
        ('ovsdb: "tcp:127.0.0.1:1", ', "", "switches.s1: has no queues"),
        ("ports:", "profile: no-queues, ports:", "switches.s1: has no queues"),
        ("capacity: 100M", "agent: trust, capacity: 100M", "switches.s1.ports.1.agent: trust is not possible with"),
        ("vlans:", "queues: {mode: single}\nvlans:", "queues.mode: single is not possible with cluster.mode"),
        ("vlans:", "ecn: {source: phantom+network}\nvlans:", "ecn.source: phantom+network is not possible with"),
        ("vlans:", "openflow: {listen: '127.0.0.1:6654'}\nvlans:", "peer_listen: 127.0.0.1:6654 is also openflow"),
        ("vlans:", "rest: {listen: '127.0.0.1:6654'}\nvlans:", "peer_listen: 127.0.0.1:6654 is also rest.listen"),
        (
            "vlans:",
            "rest: {listen: '0.0.0.0:8080', authentication: token}\nvlans:",
            "rest.listen: 0.0.0.0:8080 is every address: other nodes need cluster.rest_advertise",
        ),
    ],
)
def test_what_cannot_be_shared_out_is_refused_by_name(old: str, new: str, problem: str) -> None:
    assert old in SHARED
    assert problem in "\n".join(refused(SHARED.replace(old, new)))


@pytest.mark.parametrize("algorithm", ["gatekeeper", "hygenicc", "max-min", "seawall", "seawall-cubic"])
def test_policies_for_which_one_node_decides_can_be_shared_out(algorithm: str) -> None:
    config = parse_config(SHARED.replace("algorithm: fs", f"algorithm: {algorithm}"), "f")
    assert config.vlans[10].algorithm == algorithm


METERS = SMALL.replace("    dpid: 1\n", "    dpid: 1\n    meters: {GIVEN}\n")


def test_what_is_known_of_a_switchs_meters_is_read() -> None:
    given = "max_burst: 32M, min_rate: 64k, max_rate: 10G, rate_step: 64k, count: 500, fail: closed"
    meters = parse_config(METERS.replace("GIVEN", given)).switches["s1"].meters
    assert meters == MeterSettings(32_000_000, 64_000, 10**10, 64_000, 500, "closed")
    bounds = {"max_burst_kbits": 32_000, "min_rate_kbps": 64, "max_rate_kbps": 10**7, "rate_step_kbps": 64}
    assert meters.bounds() == bounds
    assert parse_config(SMALL).switches["s1"].meters == MeterSettings()
    assert MeterSettings().bounds() == {}


def test_a_bound_between_two_kilobits_leaves_what_the_switch_surely_can() -> None:
    between = MeterSettings(max_burst_bits=40_999, min_rate_bps=1_001, max_rate_bps=9_999, rate_step_bps=2_001)
    assert between.bounds() == {"max_burst_kbits": 40, "min_rate_kbps": 2, "max_rate_kbps": 9, "rate_step_kbps": 3}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("max_burst: 30k", "switches.s1.meters.max_burst: 30k is below 40k bits, three frames"),
        ("min_rate: 1M, max_rate: 64k", "switches.s1.meters.max_rate: 64k is below min_rate, 1M"),
        ("rate_step: 1M, max_rate: 64k", "switches.s1.meters.rate_step: 1M is above max_rate, 64k"),
        ("count: -1", "switches.s1.meters.count: -1 is below 0"),
        ("fail: shut", "switches.s1.meters.fail: 'shut' must be 'open' or 'closed'"),
        ("burst: 3M", "switches.s1.meters.burst: "),
    ],
)
def test_what_no_switchs_meters_can_be_is_refused_by_name(given: str, problem: str) -> None:
    assert problem in "\n".join(refused(METERS.replace("GIVEN", given)))


@pytest.mark.parametrize(
    ("text", "line", "path", "most"),
    [
        ("vlans:\n" + "".join(f"  {vid}:\n" for vid in range(1, 200_001)), 4096, "vlans", 4094),
        (SMALL.replace("[10, 20]", str([10] * 4095)), 8, "switches.s1.ports.1.trunk", 4094),
        (SMALL + "".join(f"      {number}: {{}}\n" for number in range(2, 70_000)), 65544, "switches.s1.ports", 65536),
        (SMALL + "".join(f"  n{number}: {{}}\n" for number in range(70_000)), 65544, "switches", 65536),
    ],
)
def test_a_file_of_more_than_there_can_be_is_refused_at_once(text: str, line: int, path: str, most: int) -> None:
    (problem,) = refused(text)
    assert problem.startswith(f"f:{line}:")
    assert problem.endswith(f"{path}: has more than {most} entries, the maximum")


def test_sections_that_are_alike_are_not_taken_for_one_another() -> None:
    """Sections with the same values are made once: 1 and True are equal, and not the same."""
    one, other, wrong = (
        SMALL.replace("[10, 20]}", f"[10, 20], vns: {{10: {{send_limit: {value}}}}}}}")
        for value in ("1000000", "1M", "true")
    )
    assert [*parse_config(one).vns()] == [*parse_config(other).vns()]
    (problem,) = refused(wrong)
    assert "is not a rate" in problem
