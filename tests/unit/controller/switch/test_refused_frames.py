"""Frames that no VLAN of an edge port takes, counted from what a switch lists."""

from __future__ import annotations

import pytest

from controller.errors import ProtocolError
from controller.fabric.config_model import EdgePort
from controller.forwarding.pipeline import refuse_others
from controller.openflow import flows
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.flows import Flow, decode_entry
from controller.openflow.match import encode_match
from controller.switch.refused_frames import RefusedFrames
from experiments.switch.flow_tables import _STATS

TRUNK = EdgePort(2, "p2", 10**9, None, ())
NONE = dict.fromkeys(("fenced", "lldp", "untagged", "foreign-vlan"), 0)
UNTAGGED, PRIORITY, FOREIGN = refuse_others(TRUNK, fenced=False)


def listing(counts: dict[Flow, int]) -> bytes:
    body = b""
    for flow, count in counts.items():
        match = encode_match(flow.match)
        length = _STATS.size + len(match)
        body += _STATS.pack(length, flow.table_id, 1, 0, flow.priority, 0, 0, 0, flow.cookie, count, 60) + match
    return body


def read(refused: RefusedFrames, counts: dict[Flow, int]) -> dict[str, int] | None:
    refused.read(listing(counts), lambda number: number, {2})
    return refused.counts_at_port(2)


def test_reasons_add_up_also_when_entries_are_made_again() -> None:
    refused = RefusedFrames()
    assert refused.counts_at_port(2) is None
    assert read(refused, {UNTAGGED: 2, PRIORITY: 3, FOREIGN: 7}) == NONE | {"untagged": 5, "foreign-vlan": 7}
    now = NONE | {"untagged": 6, "foreign-vlan": 8}
    assert read(refused, {UNTAGGED: 2, PRIORITY: 4, FOREIGN: 1}) == now
    assert read(refused, {FOREIGN: 1, refuse_others(TRUNK, fenced=True)[0]: 9}) == now | {"fenced": 9}


def test_only_new_entries_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, decoded = RefusedFrames(), []
    monkeypatch.setattr(flows, "decode_entry", lambda raw: decoded.append(raw) or decode_entry(raw))
    for packet_count in (1, 2):
        read(refused, {UNTAGGED: packet_count, FOREIGN: packet_count})
    assert len(decoded) == 2
    assert read(refused, {UNTAGGED: 3, PRIORITY: 5, FOREIGN: 3}) == NONE | {"untagged": 8, "foreign-vlan": 3}
    assert len(decoded) == 3


def test_what_a_switch_makes_up_is_not_kept() -> None:
    refused = RefusedFrames()
    others = FOREIGN._replace(match=FOREIGN.match._replace(in_port=3)), FOREIGN._replace(cookie=1)
    assert read(refused, {**dict.fromkeys(others, 9), UNTAGGED: COUNTER_UNAVAILABLE}) is None
    assert refused.counts_at_port(3) is None
    with pytest.raises(ProtocolError):
        refused.read(b"\x00\x01", lambda number: number, {2})
