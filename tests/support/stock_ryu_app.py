"""An application as people write them for Ryu: it asks switches in Ryu's own way, and writes what it is told."""

from __future__ import annotations

from typing import Any, ClassVar

from ryu.base.app_manager import RyuApp
from ryu.controller import ofp_event
from ryu.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from ryu.ofproto import ofproto_v1_3


class StockRyuApp(RyuApp):
    """Asks every switch for its ports' counters and for a barrier, and counts the frames that come up."""

    OFP_VERSIONS: ClassVar[list[int]] = [ofproto_v1_3.OFP_VERSION]

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def _features(self, event: Any) -> None:
        datapath = event.msg.datapath
        datapath.send_msg(datapath.ofproto_parser.OFPPortStatsRequest(datapath, 0, datapath.ofproto.OFPP_ANY))
        datapath.send_msg(datapath.ofproto_parser.OFPBarrierRequest(datapath))

    @set_ev_cls(ofp_event.EventOFPPortStatsReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def _port_stats(self, event: Any) -> None:
        self.logger.info("plain app: ports %s", sorted(stat.port_no for stat in event.msg.body))

    @set_ev_cls(ofp_event.EventOFPBarrierReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def _barrier(self, event: Any) -> None:
        self.logger.info("plain app: barrier of %s", event.msg.datapath.id)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def _packet_in(self, event: Any) -> None:
        self.logger.info("plain app: a frame at port %s", event.msg.match["in_port"])
