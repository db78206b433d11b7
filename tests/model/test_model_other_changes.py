"""Whatever an operator changes of one VLAN under traffic, what the others get and how their meters stand stays.

Receivers have no queues, so that accounts hold them; links are wide, so that nothing but the controller joins tenants.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from random import Random

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model_plane import INTERVAL_S, Document, document_of, under_control

from controller.central.reconfiguration import reconfigure
from controller.config.loader import parse_config
from controller.errors import InvalidValueError
from controller.openflow.flows import decode_flow_stats
from controller.openflow.meters import decode_meter_config
from controller.openflow.multipart import encode_flow_stats_request, encode_meter_config_request
from experiments.model.control.control_plane import ControlPlane
from experiments.model.control.settings_operator import Operator
from experiments.model.fabric import ModelFabric
from experiments.model.sources import OnOff, UdpSource
from topologies.builders import fig7

BEGIN_S, END_S = 2.0, 4.0
BLUE, RED, GREEN, NEW = 10, 20, 30, 5
LIMITS_BPS = {BLUE: 200_000_000, RED: 400_000_000, GREEN: 300_000_000, NEW: 50_000_000}
Algorithms = tuple[str, str]  # red's and green's
RECEIVER, AWAY = 5, 2  # PN, and the switch that only blue's senders are behind
Change = Callable[[ControlPlane], None]
Seen = list[dict[tuple[int, int], tuple[int, int, int]]]


def configured(algorithms: Algorithms, *vlans: int, blue_bps: int = LIMITS_BPS[BLUE]) -> Document:
    """PNs 1 and 3 are behind s1, 2 and 4 behind s2, and 5 is behind s3."""
    fabric = fig7(pns=5, edges=3, link_rate_bps=10**10, vlans=vlans)
    document = document_of(fabric, {**LIMITS_BPS, BLUE: blue_bps}, "fs", queues=False)
    for vid, algorithm in zip((BLUE, RED, GREEN), ("max-min", *algorithms), strict=True):
        document["vlans"][vid]["algorithm"] = algorithm
        if algorithm == "gatekeeper":  # which else lends it what others leave of the receiving port
            document["vlans"][vid] |= dict.fromkeys(("send_ceiling", "receive_ceiling"), LIMITS_BPS[vid])
    return document


def running(algorithms: Algorithms) -> tuple[ModelFabric, ControlPlane]:
    """All three tenants send more than their receivers may get: blue without a pause, red and green now and then."""
    fabric = fig7(pns=5, edges=3, link_rate_bps=10**10, core_rate_bps=10**11, vlans=(BLUE, RED, GREEN))
    model, plane = under_control(fabric, configured(algorithms, BLUE, RED, GREEN))
    senders = {BLUE: ((1, 2, 4), 150e6), RED: ((1, 3), 300e6), GREEN: ((1, 3), 200e6)}
    for vid, (pns, rate_bps) in senders.items():
        for pn in pns:
            source = UdpSource(rate_bps, model.slot_s)
            model.connect(source, fabric.vn(vid, pn), fabric.vn(vid, RECEIVER))
            if vid == BLUE:
                source.start(0)
            else:
                model.generate(OnOff(source, 0.6, model.slot_s, Random(100 * vid + pn)))
    return model, plane


def others(algorithms: Algorithms, changes: list[tuple[float, Change]]) -> Seen:
    """By interval and by red's and green's senders: what the receiver got of the VLAN, and their meter, kb/s and kb."""
    model, plane = running(algorithms)
    for at_s, change in changes:
        model.at(at_s, lambda change=change: (change(plane), plane.push()))
    seen = []
    for number in range(int(BEGIN_S / INTERVAL_S), int(END_S / INTERVAL_S)):
        model.run(number * INTERVAL_S)
        central, now = plane.central, {}
        entries, meters = central.state.entries, central.state.enforcement
        for row in range(len(entries)):
            sender = central.vns.key(int(entries.sender[row]))
            if sender.vlan_vid in (RED, GREEN):
                got = model.received[model.fabric.vn(sender.vlan_vid, RECEIVER)].octets
                setting = int(meters.rate_kbps[row]), int(meters.burst_kbits[row])
                now[sender.vlan_vid, sender.port_no] = (got, *setting)
        assert len(now) == 4
        seen.append(now)
    return seen


def set_vn(pn: int, **given: float) -> Change:
    """Change a VN of blue; where its algorithm then uses no ceilings or no weights that is refused."""

    def change(plane: ControlPlane) -> None:
        port = plane.model.edge_port(plane.model.fabric.vn(BLUE, pn))
        with suppress(InvalidValueError):
            plane.operator.set_vn(plane.central.vns.row_of(BLUE, *port), plane.model.now_s, **given)

    return change


def set_vlan(**given: object) -> Change:
    return lambda plane: plane.operator.set_vlan(BLUE, plane.model.now_s, **given)


def reload(*vlans: int, blue_bps: int = LIMITS_BPS[BLUE]) -> Change:
    def change(plane: ControlPlane) -> None:
        plane.push()
        now = plane.central.config.vlans
        document = configured((now[RED].algorithm, now[GREEN].algorithm), *vlans, blue_bps=blue_bps)
        config = parse_config(yaml.safe_dump(document), "model")
        reconfigure(plane.central, config, plane.model.now_s).finish(plane.central)
        plane.operator = Operator(plane.central)

    return change


def comes_back(plane: ControlPlane) -> None:
    """A switch behind which nobody but blue sends connects again."""
    flows = decode_flow_stats(plane._ask(AWAY, encode_flow_stats_request)).flows
    meters = decode_meter_config(plane._ask(AWAY, encode_meter_config_request))[0]
    plane.central.switch_disconnected(AWAY, plane.model.now_s)
    plane.push()
    plane.central.switch_connected(AWAY, flows, meters, plane.model.now_s)
    plane._send_probes()


PNS = st.integers(1, 5)
LIMITS = st.integers(50, 300).map(lambda mbit: mbit * 1_000_000)
CHANGES = st.one_of(
    st.builds(lambda pn, bps: set_vn(pn, receive_limit_bps=bps), PNS, LIMITS),
    st.builds(lambda pn, bps: set_vn(pn, send_limit_bps=bps), PNS, LIMITS),
    st.builds(lambda pn, bps: set_vn(pn, receive_ceiling_bps=bps), PNS, LIMITS),
    st.builds(lambda pn, bps: set_vn(pn, send_ceiling_bps=bps), PNS, LIMITS),
    st.builds(lambda pn, weight: set_vn(pn, weight=weight), PNS, st.sampled_from([0.5, 1.0, 3.0])),
    st.builds(lambda name: set_vlan(name=name), st.sampled_from(["blue", "navy"])),
    st.builds(lambda name: set_vlan(algorithm=name), st.sampled_from(["level", "max-min", "fe"])),
    st.builds(lambda bps: reload(BLUE, RED, GREEN, blue_bps=bps), LIMITS),
    st.just(reload(NEW, BLUE, RED, GREEN)),
    st.just(comes_back),
)


@lru_cache
def unchanged(algorithms: Algorithms) -> Seen:
    """What red and green see while nobody changes anything."""
    return others(algorithms, [])


@given(
    algorithms=st.sampled_from([("level", "fe"), ("fp", "sp"), ("max-min", "fs"), ("gatekeeper", "seawall")]),
    changes=st.lists(st.tuples(st.integers(5, 200), CHANGES), min_size=10, max_size=30),
)
@settings(max_examples=20)
def test_changes_of_one_vlan_move_no_other(algorithms, changes):
    """Not by a byte, and no meter of theirs is set to anything else."""
    at_s, timed = BEGIN_S, []
    for gap_ms, change in changes:
        at_s += gap_ms / 1e3
        timed.append((at_s, change))
    assert others(algorithms, timed) == unchanged(algorithms)


def test_marks_are_counted_on_while_the_file_is_reloaded():
    """Policies that decide by marks see them in the interval of a reload as in any other."""
    algorithms = ("hygenicc", "hygenicc")
    reloads = [(BEGIN_S + 0.303 * turn, reload(BLUE, RED, GREEN, blue_bps=turn * 10**8)) for turn in (1, 2, 3)]
    assert others(algorithms, reloads) == unchanged(algorithms)
