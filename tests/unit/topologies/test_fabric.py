"""The fabrics' descriptions: what they contain, and that wrong ones are refused with key, value and limit."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.paths import ROOT

from apps import cli
from controller.config.loader import parse_config
from topologies.builders import build, dumbbell, fabrics, fig1, fig5, fig7, gatekeeper_hosts
from topologies.fabric import Fabric, PhysicalNode, TopoLink, TopoSwitch

LONG = TopoSwitch("edgeswitch1", 1)
PN = PhysicalNode(1, "s1", 1, (1, 2), 100_000_000)


def small(**changes: object) -> Fabric:
    fabric = Fabric("small", (TopoSwitch("s1", 1),), (PN, replace(PN, number=2, port_no=2)), (1, 2))
    return replace(fabric, **changes)  # type: ignore[arg-type]


def test_figs_1_and_5_are_five_and_eleven_pns_in_two_vlans_behind_one_switch() -> None:
    fabric = fig1()
    assert [(pn.switch, pn.port_no) for pn in fabric.pns] == [("s1", n) for n in range(1, 6)]
    assert [vn.name for vn in fabric.vns()] == [f"v{v}_{n}" for n in range(1, 6) for v in (1, 2)]
    assert replace(fig5(), name="dets-fig1") == fig1(pns=11)


def test_fig7_has_the_receiver_alone_and_senders_behind_different_switches() -> None:
    fabric = fig7(pns=11, edges=4, cores=2)
    behind = {s.name: [pn.number for pn in fabric.pns if pn.switch == s.name] for s in fabric.switches}
    assert behind == {"s1": [1, 4, 7, 10], "s2": [2, 5, 8], "s3": [3, 6, 9], "s4": [11], "c1": [], "c2": []}
    linked = {(link.switch_a, link.switch_b) for link in fabric.core_links}
    assert linked == {(f"s{e}", f"c{c}") for e in range(1, 5) for c in (1, 2)}


def test_each_pn_is_alone_behind_a_switch_and_its_access_may_be_slower() -> None:
    fabric = gatekeeper_hosts(pns=3, link_rate_bps=100_000_000, access_rates_bps={3: 86_000_000})
    assert [(pn.switch, pn.link_rate_bps) for pn in fabric.pns] == [("s1", 10**8), ("s2", 10**8), ("s3", 86_000_000)]
    assert [(link.switch_a, link.switch_b, link.rate_bps) for link in fabric.core_links] == [
        (f"s{i}", "c1", 10**8) for i in (1, 2, 3)
    ]
    assert fabric.uncongested_links() == ()


def test_a_dumbbell_has_its_receivers_behind_a_narrow_link() -> None:
    fabric = dumbbell(pns=5, link_rate_bps=100_000_000, core_rate_bps=40_000_000, receivers=2)
    assert [(pn.switch, pn.port_no) for pn in fabric.pns] == [("s1", 1), ("s1", 2), ("s1", 3), ("s2", 1), ("s2", 2)]
    (link,) = fabric.core_links
    assert ({link.switch_a, link.switch_b}, link.rate_bps) == ({"s1", "s2"}, 40_000_000)
    assert dumbbell().core_links[0].rate_bps == dumbbell().pns[0].link_rate_bps
    assert fabric.uncongested_links() == ()


def test_a_core_link_is_wide_if_no_traffic_of_pns_fills_it() -> None:
    enough = fig7(pns=4, link_rate_bps=100_000_000, core_rate_bps=300_000_000)
    assert enough.uncongested_links() == enough.core_links
    assert fig7(pns=4, link_rate_bps=100_000_000, core_rate_bps=299_999_999).uncongested_links() == ()
    assert fig7(pns=12, link_rate_bps=50_000_000).uncongested_links() == ()
    slow = [replace(link, delay_s=0.001) for link in enough.core_links]
    assert replace(enough, core_links=tuple(slow)).uncongested_links() == ()


def test_a_vn_knows_its_addresses_and_interfaces() -> None:
    vn = fig5(vlans=(10, 4094), pns=300).vn(4094, 300)
    assert (vn.name, vn.ip, vn.mac) == ("v4094_300", "10.2.1.44", "02:00:0f:fe:01:2c")
    assert (vn.host_interface, vn.switch_interface) == ("v4094_300-eth0", "p300-eth3")


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(fabrics)),
    pns=st.integers(2, 300),
    vlans=st.lists(st.integers(1, 4094), min_size=1, max_size=3, unique=True),
)
def test_addresses_and_interfaces_are_unique(name: str, pns: int, vlans: list[int]) -> None:
    fabric = fabrics[name](pns=pns, vlans=tuple(vlans))
    fabric.check_emulable()
    vns = fabric.vns()
    assert len(vns) == pns * len(vlans)
    for attribute in ("name", "ip", "mac", "switch_interface"):
        assert len({getattr(vn, attribute) for vn in vns}) == len(vns)
    interfaces = [pn.edge_interface for pn in fabric.pns] + [i for link in fabric.core_links for i in link.interfaces]
    assert len(set(interfaces)) == len(interfaces)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: small(vlans=(1, 1)), ("vlans", "1", "2 times")),
        (lambda: small(vlans=(0, 1)), ("vlans", "0", "4094")),
        (lambda: small(vlans=(1, 4095)), ("vlans", "4095", "4094")),
        (lambda: small(vlans=(1,)), ("PN 1.vlans", "2", "not a VLAN")),
        (lambda: small(pns=(PN, replace(PN, number=2))), ("port", "('s1', 1)", "2 times")),
        (lambda: small(pns=(PN, replace(PN, port_no=2))), ("PN number", "1", "2 times")),
        (lambda: small(pns=(replace(PN, switch="s9"),)), ("switch", "s9", "s1")),
        (lambda: small(pns=(replace(PN, port_no=0),)), ("s1.port_no", "0", "1 to")),
        (lambda: small(pns=(replace(PN, vlans=()),)), ("PN 1.vlans", "at least one")),
        (lambda: small(pns=(replace(PN, link_rate_bps=0),)), ("PN 1.link_rate_bps", "0", "1000")),
        (lambda: small(pns=(replace(PN, link_rate_bps=1e8),)), ("PN 1.link_rate_bps", "whole number")),
        (lambda: small(pns=(replace(PN, link_delay_s=-1),)), ("PN 1.link_delay_s", "-1", "10 seconds")),
        (lambda: small(switches=(TopoSwitch("s1", 1), TopoSwitch("s2", 1))), ("dpid", "1", "2 times")),
        (lambda: small(switches=(TopoSwitch("s1", 1), TopoSwitch("p1", 2))), ("p1", "vswitch")),
        (lambda: small(core_links=(TopoLink("s1", 1, "s1", 9, 10**8),)), ("s1", "itself")),
        (lambda: TopoSwitch("S 1", 1), ("switch name", "S 1")),
        (lambda: TopoSwitch("s1", 0), ("s1.dpid", "0", "2^64-1")),
        (lambda: TopoSwitch("s1", 1, "spine"), ("s1.role", "spine", "edge or core")),
        (lambda: fig1(pns=1), ("pns", "1", "below 2")),
        (lambda: fig7(edges=1), ("edges", "1", "below 2")),
        (lambda: gatekeeper_hosts(pns=1), ("pns", "1", "below 2")),
        (lambda: gatekeeper_hosts(pns=3, access_rates_bps={4: 10**7}), ("access_rates_bps", "4", "1 to 3")),
        (lambda: gatekeeper_hosts(pns=3, access_rates_bps={3: 0}), ("PN 3.link_rate_bps", "0", "1000")),
        (lambda: dumbbell(pns=2, receivers=2), ("pns", "2", "below 3")),
        (lambda: dumbbell(receivers=0), ("receivers", "0", "below 1")),
        (lambda: dumbbell(core_rate_bps=0), ("s1-eth1001-s2-eth1001.rate_bps", "0", "1000")),
        # What Mininet would ignore
        (fig1(link_rate_bps=1_000_000_001).check_emulable, ("PN 1.link_rate_bps", "1000000001", "1000000000")),
        (fig7(core_rate_bps=10_000_000_000).check_emulable, ("s1-eth1001-c1-eth1.rate_bps", "10000000000")),
        (
            small(switches=(LONG,), pns=(replace(PN, switch=LONG.name, port_no=100),)).check_emulable,
            ("edgeswitch1", "18", "15"),
        ),
        (small(pns=(replace(PN, port_no=70_000),)).check_emulable, ("s1.port_no", "70000", "65279")),
        (small(pns=(replace(PN, link_delay_s=0.001),)).check_emulable, ("PN 1.link_delay_s", "0.001", "must be 0")),
    ],
)
def test_wrong_descriptions_and_what_mininet_would_ignore_are_refused(make, words) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        make()
    for word in words:
        assert word in str(refusal.value)


def test_the_highest_number_of_a_pn_can_be_emulated() -> None:
    small(pns=(replace(PN, number=10_000, vlans=(1,)),)).check_emulable()


def test_descriptions_need_the_standard_library_only() -> None:
    code = "import sys, topologies.builders; print([m for m in ('numpy', 'mininet', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def custom_file() -> dict[str, Any]:
    """Return the names of the file for ``mn``, run as there: without a file name."""
    path = ROOT / "topologies" / "dets.py"
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def test_the_custom_file_shadows_no_name_of_mn() -> None:
    names = custom_file()
    assert set(names["topos"]) == set(fabrics)
    assert {name for name in names if not name.startswith("_")} == {"topos", "controllers"}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"pn": 2}, "dets-fig1: there is no parameter pn; there are pns, link_rate_bps, vlans"),
        ({"pns": 0}, "dets-fig1: pns: 0 is below 2"),
        ({"pns": "many"}, "dets-fig1: "),
    ],
)
def test_a_wrong_parameter_ends_mn_with_a_sentence_and_no_clean_up(parameters: dict[str, object], words: str) -> None:
    """``mn`` cleans up by name after every other exception."""
    with pytest.raises(SystemExit, match=re.escape(words)):
        custom_file()["topos"]["dets-fig1"](**parameters)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("dets-fig9", "'dets-fig9' is no topology; there are dets-fig1, dets-fig5"),
        ("dets-fig5,6", "dets-fig5: '6' has no name: write KEY=VALUE, as in dets-fig5,pns=4"),
        ("dets-fig5,pn=6", "dets-fig5: there is no parameter pn; there are pns, link_rate_bps, vlans"),
        ("dets-fig5,vlans=x", "dets-fig5: vlans: 'x' must be VLAN ids joined by +, such as 10+20"),
        ("dets-fig5,link_rate_bps=50M", "dets-fig5: link_rate_bps: '50M' must be a whole number"),
        ("dets-fig5,pns=0", "dets-fig5: pns: 0 is below 2"),
        ("dets-fig5,vlans=4095", "dets-fig5: "),
    ],
)
def test_words_that_make_no_fabric_get_a_sentence(words: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        build(words)


def test_the_configuration_of_a_topology_is_one_that_loads(capsys: pytest.CaptureFixture[str]) -> None:
    assert build("dumbbell,pns=3,vlans=7+8,link_rate_bps=1000000") == dumbbell(3, 1_000_000, (7, 8))
    assert cli.main(["topology"]) == 0
    names = [line.partition(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == list(fabrics)
    for name in names:
        assert cli.main(["topology", name, "--openflow-port", "16653"]) == 0
        config = parse_config(capsys.readouterr().out)
        assert (len(list(config.ports())), config.openflow_listen.port) == (len(build(name).pns), 16653)
    assert cli.main(["topology", "dets-fig5,vlans=10"]) == 0
    assert {vlan.receive_limit_bps for vlan in parse_config(capsys.readouterr().out).vlans.values()} == {100_000_000}
    assert cli.main(["topology", "dets-fig5,pn=1"]) == 2
    assert "NAME: dets-fig5: there is no parameter pn" in capsys.readouterr().err
