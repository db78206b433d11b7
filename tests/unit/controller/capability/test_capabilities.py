"""From what is known of a switch to what can be enforced at its edge ports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.configs import fabric

from controller.capability.capabilities import (
    Ability,
    Capabilities,
    ProbeResult,
    Verdict,
    enforceability,
    faults,
    format_port_ranges,
)
from controller.capability.queue_monitor import IGNORED
from controller.central import port_enforceability
from controller.central.controller import CentralController
from controller.fabric.config_model import EdgePort
from controller.openflow.constants import ControllerRole, MeterFlags
from controller.openflow.meters import METER_CONFIG, MeterFeatures

WORKS = Ability(ProbeResult.WORKS)
PORTS = {number: EdgePort(number, f"s1-{number}", 10**9, None, ()) for number in range(1, 9)}
FULL = MeterFeatures(1000, 1 << 1, MeterFlags.KBPS | MeterFlags.BURST | MeterFlags.STATS, 1, 0)


def able(**known: object) -> Capabilities:
    """A switch of which all is known and good, but for what is given."""
    can = Capabilities()
    can.note_features(FULL)
    can.meters = can.counters = can.set_queue = WORKS
    can.queues, can.queues_set = {1: WORKS}, {1: None}
    for name, value in known.items():
        setattr(can, name, value)
    return can


@pytest.mark.parametrize(
    ("known", "verdict", "why"),
    [
        ({"queues_set": {}, "queues": {}}, Verdict.PARTLY, "no queue: the switch has no ovsdb address"),
        ({"queues_set": {}}, Verdict.PARTLY, "its queues were not set by the controller (no ovsdb address)"),
        ({"queues_set": {1: "has a QoS row of others"}}, Verdict.PARTLY, "no queue: has a QoS row of others"),
        ({"queues": {}}, Verdict.PARTLY, "that queues take effect has not been tested"),
        ({"queues": {1: IGNORED}}, Verdict.PARTLY, "set_queue has no effect"),
        ({"profile": "no-queues"}, Verdict.PARTLY, "no queue: its profile is no-queues"),
        ({"classes": False}, Verdict.PARTLY, "receivers have no queue: queues.mode is single"),
        ({}, Verdict.YES, "yes"),
        ({"profile": "no-meters"}, Verdict.PARTLY, "senders are not limited: its profile is no-meters"),
        ({"profile": "no-meter-counters"}, Verdict.PARTLY, "up to 500 ms stale: its profile is no-meter-counters"),
        ({"meters": Ability(ProbeResult.FAILS, "so")}, Verdict.PARTLY, "senders are not limited: so"),
        ({"meters": Ability()}, Verdict.PARTLY, "that meters limit senders has not been tested"),
        ({"passive": Ability(ProbeResult.FAILS, "so")}, Verdict.PARTLY, "senders are not limited: so"),
        ({"passive": WORKS, "meters": Ability()}, Verdict.YES, "yes"),  # traffic says more than a test made once
        ({"short_of_meters": True}, Verdict.PARTLY, "all meters are in use"),
        ({"refuses_meters": True}, Verdict.PARTLY, "some senders are not limited: the switch rejects meters"),
        ({"lacking": ("VLAN 10",)}, Verdict.PARTLY, "some senders are not limited: VLAN 10"),
        ({"counters": Ability(ProbeResult.FAILS, "none")}, Verdict.PARTLY, "up to 500 ms stale: none"),
        ({"role": ControllerRole.SLAVE}, Verdict.NO, "role is slave"),
        (
            {"meters": Ability(ProbeResult.FAILS, "so"), "queues_set": {}, "queues": {}},
            Verdict.NO,
            "senders are not limited: so",
        ),
        ({"set_queue": Ability(ProbeResult.FAILS, "refused")}, Verdict.PARTLY, "receivers have no queue: refused"),
    ],
)
def test_what_is_missing_is_said(known: dict[str, object], verdict: Verdict, why: str) -> None:
    found = enforceability(able(**known), 1)
    assert found.verdict is verdict
    assert why in str(found)


def test_senders_elsewhere_matter_only_where_no_queue_keeps_them_off() -> None:
    assert enforceability(able(), 1, ["s2"]).verdict is Verdict.YES
    assert "senders at s2, s3 are not limited" in str(enforceability(able(queues_set={}), 1, ["s3", "s2"]))


def test_only_what_was_to_work_is_a_trouble() -> None:
    lacking = Capabilities()
    lacking.note_features(replace(FULL, band_types=0))
    assert faults(able(), PORTS) == []
    assert faults(lacking, PORTS) == ["senders are not limited: the switch has no meters that drop"]
    assert faults(able(profile="no-meters"), PORTS) == []
    assert faults(able(queues_set={}), PORTS) == []
    ignored = able(queues=dict.fromkeys((1, 2, 3, 7), IGNORED), queues_set=dict.fromkeys((1, 2, 3, 7)))
    assert faults(ignored, PORTS) == [f"receivers at port 1-3, 7 have no queue: {IGNORED.why}"]
    assert faults(able(profile="no-queues", queues={1: IGNORED}), PORTS) == []


def test_meters_without_counters_are_read_from_flows_as_the_switch_or_a_test_says() -> None:
    quiet = Capabilities()
    quiet.note_features(replace(FULL, capabilities=MeterFlags.KBPS))
    assert not quiet.counts_meters
    assert able().counts_meters
    assert not able(profile="no-meter-counters").counts_meters
    assert able(profile="full").counts_meters


def test_a_full_profile_uses_meters_whatever_a_test_would_say() -> None:
    can = able(profile="full")
    can.disable_meters("refused")
    assert can.uses_meters
    assert not can.limits.works


def test_another_switch_behind_the_dpid_is_not_taken_for_the_one_that_was_tested() -> None:
    can = able()
    assert can.tested
    can.discard_tests()
    assert not can.tested
    assert can.limits.finding is ProbeResult.UNKNOWN


@pytest.mark.parametrize(
    ("ports", "shown"), [([], ""), ([4], "4"), ([1, 2, 3, 5, 7, 8], "1-3, 5, 7-8"), ([1, 2, 9, 10], "1-2, eth9, eth10")]
)
def test_ports_are_shown_in_runs_or_by_their_names(ports: list[int], shown: str) -> None:
    named = {number: EdgePort(number, "", 10**9, None, (), interface=f"eth{number}") for number in (9, 10)}
    assert format_port_ranges(ports, PORTS | named) == shown


# -- in a fabric


def test_changes_are_told_once_they_stand() -> None:
    central = CentralController(fabric({1: {1: [10], 2: [10]}, 2: {1: [20]}}))
    record = central.switches[1]
    central.switch_connected(1, [], np.empty(0, METER_CONFIG), 0.0)
    record.capabilities = able(queues={1: WORKS, 2: WORKS}, queues_set={1: None, 2: "has a QoS row of others"})

    def told() -> list[str]:
        return [event.text for event in central.events.newer_than(0) if event.kind == "enforceability-changed"]

    port_enforceability.note_changes(central.fabric, 1.0)
    port_enforceability.note_changes(central.fabric, 1.5)
    assert told() == []
    port_enforceability.note_changes(central.fabric, 3.0)
    first = "switch s1 (0000000000000001), port"
    assert told() == [
        f"{first} 1: enforceable: yes",
        f"{first} 2: enforceable: partly (receivers have no queue: has a QoS row of others)",
    ]
    port_enforceability.note_changes(central.fabric, 6.0)
    assert len(told()) == 2
    assert port_enforceability.verdict_counts(central.fabric) == {"yes": 1, "partly": 1, "no": 1}
    assert port_enforceability.switch_verdicts(central.fabric, 2)[1].why == (
        "the switch is not connected; its last settings remain",
    )


def test_a_switch_without_meters_says_so_at_the_ports_of_others_that_share_its_vlans() -> None:
    central = CentralController(fabric({1: {1: [10], 2: [20]}, 2: {1: [10]}}))
    for dpid in (1, 2):
        central.switch_connected(dpid, [], np.empty(0, METER_CONFIG), 0.0)
    central.switches[1].capabilities = able(queues_set={1: "none", 2: "none"})
    central.switches[2].capabilities.disable_meters("refused")
    found = port_enforceability.switch_verdicts(central.fabric, 1)
    assert "senders at s2 are not limited" in str(found[1])
    assert "s2" not in str(found[2])


def test_a_port_without_classes_has_its_queue_and_entries_name_none() -> None:
    """Even where set_queue is refused: the one queue needs no entry to name it."""
    can = able(classes=False, set_queue=Ability(ProbeResult.FAILS, "refused"))
    assert (can.sets_queues, can.uses_queues, can.shapes(1, sets_queues=True)) == (True, False, False)
    assert faults(can, PORTS) == []
    assert not able(classes=False, profile="no-queues").sets_queues
