"""Limits against the fabric: of a configuration, and of a running controller."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import star

from controller.central.controller import CentralController
from controller.config.loader import parse_config
from controller.config.yaml_document import ConfigError
from controller.errors import InvalidValueError
from controller.fabric.vn_table import VnTable
from controller.limits.admission import AdmittedLimits, core_overloaded, core_topology, port_topology
from controller.limits.effective_settings import UnfitError, check_fit
from controller.limits.hose_model import HoseTopology, VnLimits, overloads
from controller.limits.overrides import FileValues, Overrides
from experiments.model.control.settings_operator import Operator

MBIT = 1_000_000
LINKS = [{"between": ["s1:101", "c1:1"], "capacity": "100M"}, {"between": ["s2:101", "c1:2"], "capacity": "100M"}]


def document(limit="20M", links=LINKS, ports=(1, 2, 3), last=None, **overrides):
    """Two edge switches of three ports around a core switch."""
    port = {"capacity": "1G", "trunk": [10, 20]}
    return {
        "vlans": {vid: {"send_limit": limit, "receive_limit": limit} for vid in (10, 20)},
        "switches": {
            "s1": {"dpid": 1, "ports": {number: {**port, **overrides.get(f"p{number}", {})} for number in ports}},
            "s2": {"dpid": 2, "ports": {number: {**port, **(last or {} if number == 3 else {})} for number in ports}},
            "c1": {"dpid": 3},
        },
        "links": links,
    }


def parsed(*args, **named):
    return parse_config(json.dumps(document(*args, **named)), "f.yaml")  # YAML as well, and no aliases


def problems(*args, **named):
    with pytest.raises(ConfigError) as caught:
        parsed(*args, **named)
    return [(problem.path, problem.message) for problem in caught.value.problems]


# -- the configuration


def test_without_links_the_core_is_not_looked_at():
    assert core_topology(parsed("400M", links=[])).link_capacity_bps == {}


def test_the_limit_that_is_one_too_many_for_a_link_is_told_with_what_would_fit():
    """Of 3 + 3 senders of 20 Mb/s, 100 fit: the last VN of s1 is one too many once those of s2 receive."""
    ((path, message),) = problems("20M")
    assert path.startswith("switches.s2.ports.3")
    assert "20M, does not fit: link " in message
    assert "would need to carry 120M of 100M (line 1); nothing fits" in message


def test_the_offer_is_accepted_and_what_is_beyond_is_not():
    """VLAN 20 at s2:3 is one too many for the links into s2, of which the others leave 100 - 48 - 16 - 16."""
    own = {"vns": {20: {"receive_limit": "30M"}}}
    wide = {"vns": {vid: {"send_limit": "100M"} for vid in (10, 20)}}
    named = {f"p{port}": wide for port in (1, 2, 3)}
    ((path, message),) = problems("16M", last=own, **named)
    assert path == "switches.s2.ports.3.vns.20.receive_limit"
    assert message.startswith("the receive limit of VLAN 20 at s2:3, 30M, does not fit: link s1:101-c1:1")
    assert "at most 20M fits" in message
    own["vns"][20]["receive_limit"] = "20M"
    assert parsed("16M", last=own, **named).switches["s2"].ports[3].vns[1].receive_limit_bps == 20 * MBIT


@pytest.mark.parametrize(
    ("links", "path", "words"),
    [
        ([{"capacity": "1G"}], "links[0].between", "is missing"),
        ([{"between": ["s1:101"], "capacity": "1G"}], "links[0].between", "must name the two ends of the link, not 1"),
        ([{"between": ["s1:101", "x:1"], "capacity": "1G"}], "links[0].between[1]", "is not a switch of this file"),
        ([{"between": ["s1:101", "c1"], "capacity": "1G"}], "links[0].between[1]", "is not SWITCH:PORT"),
        ([{"between": ["s1:101", "c1:000000000019"], "capacity": "1G"}], "links[0].between[1]", "is not SWITCH:PORT"),
        ([{"between": ["s1:1", "c1:1"], "capacity": "1G"}], "links[0].between[0]", "is an edge port"),
        ([{"between": ["s1:101", "s1:102"], "capacity": "1G"}], "links[0].between", "both ends are on switch s1"),
        ([LINKS[0], LINKS[0]], "links[1].between", "is an end of links[0] already"),
        (["s1:101"], "links[0]", "is not a section"),
        ("s1:101", "links", "is not a list"),
    ],
)
def test_bad_links_are_told_where_they_stand(links, path, words):
    assert any(where == path and words in message for where, message in problems("1M", links=links))


# -- a running controller


def with_limit(vns, row, key, limit_bps):
    column = getattr(vns, key).copy()
    column[row] = limit_bps
    return vns.with_columns(**{key: column})


@pytest.mark.parametrize("sending", [True, False])
def test_the_port_has_to_carry_all_its_limits(sending):
    config = star(2)
    vns = VnTable.from_config(config)
    row = vns.row_of(10, 1, 1)
    key = "send_limit_bps" if sending else "receive_limit_bps"
    admitted = AdmittedLimits(config)
    admitted.check(with_limit(vns, row, key, 500 * MBIT), row, sending=sending)
    with pytest.raises(InvalidValueError) as caught:
        admitted.check(with_limit(vns, row, key, 500 * MBIT + 1), row, sending=sending)
    assert (caught.value.key, caught.value.value) == (key, 500 * MBIT + 1)
    assert "port s1:1" in caught.value.reason
    assert "at most 500000000 (500M) fits" in caught.value.reason


@pytest.mark.parametrize(
    ("key", "links"),
    [("send_limit_bps", ("s1:101-c1:1", "c1:2-s2:101")), ("receive_limit_bps", ("s2:101-c1:2", "c1:1-s1:101"))],
)
def test_the_core_has_to_carry_every_matrix(key, links):
    """Of VLAN 10 two VNs of 16 Mb/s at s1 and of VLAN 20 three leave 20 of the 100 for the third; s2 sets no bound."""
    central = CentralController(parsed("16M", p1={"vns": {10: {"send_limit": "10M", "receive_limit": "10M"}}}))
    operator = Operator(central)
    for row in np.flatnonzero(central.vns.dpid == 2).tolist():
        operator.set_vn(row, 0.0, send_limit_bps=100 * MBIT, receive_limit_bps=100 * MBIT)
    row, before = central.vns.row_of(10, 1, 1), central.vns
    with pytest.raises(InvalidValueError) as caught:
        operator.set_vn(row, 0.0, **{key: 50 * MBIT})
    assert caught.value.key == key
    assert any(f"link {link} would need to carry 130M of 100M" in caught.value.reason for link in links)
    assert "at most 20000000 (20M) fits" in caught.value.reason
    assert central.vns is before
    operator.set_vn(row, 0.0, **{key: 20 * MBIT})
    assert getattr(central.vns, key)[row] == 20 * MBIT


def test_a_lower_limit_is_accepted_even_where_others_have_too_much():
    config = parsed("16M")
    overrides, admitted = Overrides.build(FileValues(config), {}, {}), AdmittedLimits(config)
    limits = VnTable.from_config(config)
    before = limits.with_columns(
        send_limit_bps=limits.send_limit_bps * 10, receive_limit_bps=limits.receive_limit_bps * 10
    )
    check_fit(overrides, before, with_limit(before, 0, "send_limit_bps", 1 * MBIT), admitted)
    with pytest.raises(UnfitError, match="does not fit: link"):
        check_fit(overrides, before, with_limit(before, 0, "send_limit_bps", 161 * MBIT), admitted)


OVERHEAD = {"capacity": "100M", "frame_overhead_bytes": 24}


def test_limits_fit_a_port_for_the_shortest_frames():
    """Frames of 60 bytes that take 84 of the link: limits may take 60/84 of 100 Mb/s, 71.4 Mb/s."""
    parsed("35.714M", links=[], p1=OVERHEAD)
    ((path, message),) = problems("36M", links=[], ports=(1,), p1=OVERHEAD)[:1]
    assert path == "switches.s1.ports.1.capacity"
    assert message.startswith("100M, 71.43M in frames of 60 bytes with frame_overhead_bytes: 24, is below the sum of")
    parsed("49M", links=[], p1={"capacity": "100M"})
    parsed("71M", links=[], p1={**OVERHEAD, "trunk": [10]}, last={"capacity": "200M"})


def test_limits_fit_a_link_for_the_shortest_frames():
    links = [{**link, **OVERHEAD} for link in LINKS]
    assert [link.admissible_bps for link in parsed("11.9M", links=links).links] == [71_428_571] * 2
    ((_, message),) = problems("12M", links=links)
    assert "72M of 71.43M, which remains if each frame takes 24 bytes of overhead (line 1); " in message


@settings(max_examples=60)
@given(st.lists(st.tuples(*[st.integers(1, 60)] * 2), min_size=12, max_size=12), st.integers(20, 200))
def test_by_switch_is_as_exact_as_port_by_port(limits_mbit, capacity_mbit):
    """The VNs behind one switch taken together overload the core exactly when they do one by one."""
    links = [{**link, "capacity": f"{capacity_mbit}M"} for link in LINKS]
    config = parsed("1k", links=links)
    limits = [
        VnLimits(vn.vlan_vid, f"{vn.switch}:{vn.port_no}", send * MBIT, receive * MBIT)
        for vn, (send, receive) in zip(config.vns(), limits_mbit, strict=True)
    ]
    core = core_topology(config)
    ports = port_topology(config).port_capacity_bps
    paths = {(a, b): core.paths[a[:2], b[:2]] for a in ports for b in ports if (a[:2], b[:2]) in core.paths}
    one_by_one = HoseTopology(ports, core.link_capacity_bps, paths)
    too_much = [found for found in overloads(one_by_one, limits) if found.location.startswith("link")]
    assert core_overloaded(core, limits) == bool(too_much)
