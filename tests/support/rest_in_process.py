"""The REST interface called in process, on a controller without switches that can be given traffic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from flask.testing import FlaskClient
from support.switches import reported
from werkzeug.test import TestResponse

from apps.rest import Service, create_app
from controller.central.controller import CentralController
from controller.config.loader import parse_config
from controller.fabric.config_model import Config
from controller.forwarding.pipeline import MetadataFlag
from controller.openflow.ethernet import FrameHeader, build_frame
from controller.openflow.meters import METER_CONFIG, METER_STATS

CONFIG = """\
vlans:
  10: {name: tenant-a, algorithm: fp, parameters: {d: 3}, send_limit: 40M, receive_limit: 40M, weight: 2}
  20: {algorithm: fs, send_limit: 50M}
switches:
  s1:
    dpid: "00000000000000a1"
    ports:
      1: {capacity: 100M, trunk: [10, 20], vns: {20: {receive_limit: 50M}}}
      2: {capacity: 100M, trunk: [10, 20], vns: {20: {receive_limit: 55M}}}
      3: {capacity: 1G, access: 10}
  s2:
    dpid: 0xa2
    ports:
      7: {capacity: 100M, access: 10}
"""
DPID, OTHER_DPID = 0xA1, 0xA2
INTERVAL_S = 0.055
VN, VLAN = "/v1/vns/10/s1/1", "/v1/vlans/10"
NO_FLOWS: tuple[()] = ()


class Desk:
    """A controller, a client of its REST interface, and how often a change was sent on."""

    def __init__(self, config: str | Config = CONFIG, *, needs_if_match: bool = False) -> None:
        self.central = CentralController(parse_config(config) if isinstance(config, str) else config)
        self.now_s = 100.0
        self.counts_since_s: dict[int, float] = {}
        self.changes = 0
        self.service = Service(self.central, lambda: self.now_s, needs_if_match=needs_if_match)
        self.service.on_change = self._changed  # type: ignore[method-assign]
        self.app = create_app(self.service)
        self.client: FlaskClient = self.app.test_client()

    def _changed(self, revision: int) -> None:
        self.changes += 1

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.get_json()

    def pages(self, path: str, limit: int) -> Iterator[Any]:
        """Yield the pages of a list, each asked for by the cursor of the one before."""
        cursor = ""
        while cursor is not None:
            page = self.get(f"{path}?limit={limit}{f'&cursor={cursor}' if cursor else ''}")
            yield page
            cursor = page["next"]

    def patch(self, path: str, body: object) -> TestResponse:
        return self.client.patch(path, json=body)

    def change(self, method: str, path: str, body: object = None, if_match: str | None = None) -> TestResponse:
        headers = {} if if_match is None else {"If-Match": if_match}
        return self.client.open(path, method=method, json=body, headers=headers)

    def send(self, path: str, body: bytes, content_type: str | None = "application/json") -> TestResponse:
        return self.client.patch(path, data=body, content_type=content_type)

    def fingerprint(self) -> str:
        """All that a request could change."""
        vns, events = self.central.vns, self.central.events.newer_than(0)
        limits = vns.send_limit_bps.tolist(), vns.receive_limit_bps.tolist()
        due = [
            (len(record.update), record.update.meter_mods()[2].tolist()) for record in self.central.switches.values()
        ]
        control = self.central.fabric.control
        return repr((limits, control.policies, control.groups, events, due, self.changes))

    # -- the network

    def connect(self, dpid: int = DPID) -> None:
        self.central.switch_connected(dpid, NO_FLOWS, np.empty(0, METER_CONFIG), self.now_s)

    def talk(self, sender_port: int, receiver_port: int, vlan_vid: int = 10) -> None:
        """The host with MAC address = port number at one port of s1 sends to the one at another."""
        for port, to in ((receiver_port, sender_port), (sender_port, receiver_port)):
            frame = build_frame(FrameHeader(to, port, vlan_vid, 0x0800), b"")
            self.central.on_packet_in(DPID, reported(port, vlan_vid, frame, MetadataFlag.UNKNOWN_SOURCE), self.now_s)
        self.central.on_packet_in(DPID, reported(sender_port, vlan_vid, frame, MetadataFlag.NEW_PAIR), self.now_s)

    def run(self, offered_bps: list[float], dropped_bps: list[float], intervals: int) -> None:
        """Run intervals in which the entries of s1, in the order of the table, see these loads.

        A meter that is modified counts from zero again, as in a switch.
        """
        for _ in range(intervals):
            for update in self.central.drain_updates().values():
                self.counts_since_s |= dict.fromkeys(update.meter_id, self.now_s)
            meter_id = self.central.state.entries.meter_id
            since_s = np.array([self.counts_since_s.get(one, 100.0) for one in meter_id.tolist()])
            self.now_s += INTERVAL_S
            stats = np.zeros(len(meter_id), METER_STATS)
            stats["meter_id"] = meter_id
            stats["duration_s"] = self.now_s - 100.0
            for name, rate_bps in (("byte_in_count", offered_bps), ("band_byte_count", dropped_bps)):
                stats[name] = np.array(rate_bps) / 8 * (self.now_s - since_s)
            self.central.interval({DPID: stats}, {DPID: self.now_s}, self.now_s)


def problem_of(answer: TestResponse, status: int) -> dict[str, Any]:
    """Check that an answer is a problem document of that status, and return it."""
    assert (answer.status_code, answer.mimetype) == (status, "application/problem+json"), answer.text
    problem: dict[str, Any] = json.loads(answer.text)
    assert problem["status"] == status
    assert problem["type"].startswith("urn:dets:problem:")
    assert problem["title"]
    assert problem["detail"]
    assert "Traceback" not in answer.text
    return problem
