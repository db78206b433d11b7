"""The baseline of ``dets bench loop``: the same job with Ryu's own handlers and parsers, and plain Python.

A ryu-manager application, run as ``DETS_BASELINE=pairs.json ryu-manager baseline_ryu.py``. In every interval it
requests the meter statistics of each switch, computes rates, gives every sender of a receiver RAA-FE's fair rate and
modifies the meters whose rate has changed by more than 3 %. It reads the meters from a file, and has no forwarding, no
congestion, no choice of bursts, no audits and no handling of faults: less than the job of DETS. Each round is written
to stdout as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from ryu.lib import hub
from ryu.ofproto import ofproto_v1_3

GAIN = 0.5
HYSTERESIS = 0.03
BURST_S = 0.005
MIN_BURST_KBITS = 37


class Baseline(app_manager.RyuApp):  # type: ignore[misc]  # Ryu has no types
    """Polls, computes and modifies, round after round."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]  # noqa: RUF012  (as Ryu's own applications write it)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        plan = json.loads(Path(os.environ["DETS_BASELINE"]).read_text())
        self.interval_s = float(os.environ["DETS_BASELINE_INTERVAL_MS"]) / 1e3
        self.limit_bps = plan["limit_bps"]
        self.receiver_of = {
            int(dpid): dict(zip(columns["meter_id"], columns["receiver"], strict=True))
            for dpid, columns in plan["pairs"].items()
        }
        self.senders_of: dict[int, int] = {}
        for receivers in self.receiver_of.values():
            for receiver in receivers.values():
                self.senders_of[receiver] = self.senders_of.get(receiver, 0) + 1
        self.fair_bps = {receiver: self.limit_bps / count for receiver, count in self.senders_of.items()}
        self.rate_kbps = {dpid: dict.fromkeys(receivers, 0) for dpid, receivers in self.receiver_of.items()}
        self.last: dict[int, dict[int, tuple[float, float]]] = {dpid: {} for dpid in self.receiver_of}
        self.received_s: dict[int, float] = {}
        self.received_bps: dict[int, float] = {}
        self.datapaths: dict[int, Any] = {}
        self.awaited: set[int] = set()
        self.answered = hub.Event()
        hub.spawn(self.rounds)

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])  # type: ignore[untyped-decorator]
    def state_changed(self, event: Any) -> None:
        """Add a connected switch, or remove a disconnected one."""
        if event.state == MAIN_DISPATCHER:
            self.datapaths[event.datapath.id] = event.datapath
        else:
            self.datapaths.pop(event.datapath.id, None)

    def rounds(self) -> None:
        """Run the loop for ever."""
        while len(self.datapaths) < len(self.receiver_of):
            hub.sleep(0.1)
        while True:
            started_s = time.monotonic()
            self.received_bps = dict.fromkeys(self.senders_of, 0.0)
            self.awaited = set(self.datapaths)
            self.answered.clear()
            for datapath in self.datapaths.values():
                parser, ofproto = datapath.ofproto_parser, datapath.ofproto
                datapath.send_msg(parser.OFPMeterStatsRequest(datapath, 0, ofproto.OFPM_ALL))
            self.answered.wait(60.0)
            polled_s = time.monotonic()
            self.allocate()
            decided_s = time.monotonic()
            changed = self.modify()
            sent_s = time.monotonic()
            print(json.dumps([started_s, polled_s, decided_s, sent_s, changed]))
            sys.stdout.flush()
            hub.sleep(max(started_s + self.interval_s - time.monotonic(), 0.0))

    @set_ev_cls(ofp_event.EventOFPMeterStatsReply, MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    def meter_stats(self, event: Any) -> None:
        """Add one part of a switch's counters to the receivers' sums."""
        dpid = event.msg.datapath.id
        last, receiver_of = self.last[dpid], self.receiver_of[dpid]
        self.received_s[dpid] = time.monotonic()
        for stat in event.msg.body:
            receiver = receiver_of.get(stat.meter_id)
            if receiver is None:
                continue
            passed = stat.byte_in_count - stat.band_stats[0].byte_band_count
            at_s = stat.duration_sec + stat.duration_nsec * 1e-9
            before = last.get(stat.meter_id)
            last[stat.meter_id] = (passed, at_s)
            if before is not None and at_s > before[1]:
                self.received_bps[receiver] += max(passed - before[0], 0) * 8 / (at_s - before[1])
        if not event.msg.flags & ofproto_v1_3.OFPMPF_REPLY_MORE:
            self.awaited.discard(dpid)
            if not self.awaited:
                self.answered.set()

    def allocate(self) -> None:
        """Compute the grants of every receiver by RAA-FE."""
        for receiver, received_bps in self.received_bps.items():
            factor = max(1.0 - GAIN * (received_bps - self.limit_bps) / self.limit_bps, 0.5)
            floor_bps = 0.01 * self.limit_bps / self.senders_of[receiver]
            self.fair_bps[receiver] = min(max(self.fair_bps[receiver] * factor, floor_bps), self.limit_bps)

    def modify(self) -> int:
        """Modify the meters whose rate has changed; return their number."""
        changed = 0
        for dpid, datapath in list(self.datapaths.items()):
            parser, ofproto = datapath.ofproto_parser, datapath.ofproto
            rate_of, last = self.rate_kbps[dpid], self.last[dpid]
            for meter_id, receiver in self.receiver_of[dpid].items():
                rate_kbps = max(int(self.fair_bps[receiver] / 1000), 1)
                if abs(rate_kbps - rate_of[meter_id]) <= HYSTERESIS * rate_of[meter_id]:
                    continue
                rate_of[meter_id] = rate_kbps
                burst_kbits = max(int(rate_kbps * BURST_S), MIN_BURST_KBITS)
                band = parser.OFPMeterBandDrop(rate=rate_kbps, burst_size=burst_kbits)
                flags = ofproto.OFPMF_KBPS | ofproto.OFPMF_BURST | ofproto.OFPMF_STATS
                datapath.send_msg(parser.OFPMeterMod(datapath, ofproto.OFPMC_MODIFY, flags, meter_id, [band]))
                if meter_id in last:  # a modify zeroes the counters, but not the duration: its value now
                    last[meter_id] = (0.0, last[meter_id][1] + time.monotonic() - self.received_s[dpid])
                changed += 1
            datapath.send_msg(parser.OFPBarrierRequest(datapath))
        return changed
