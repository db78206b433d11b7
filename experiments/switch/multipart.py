"""The replies to multipart requests (OpenFlow 1.3.5, section 7.3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import ClassVar

import numpy as np

from controller.openflow import constants as ofp
from controller.openflow.constants import ErrorType, MultipartType
from experiments.switch import replies, requests
from experiments.switch.flow_tables import FlowTables
from experiments.switch.meter_table import MeterTable
from experiments.switch.openflow_errors import OpenFlowReplyError
from experiments.switch.options import DatapathOptions
from experiments.switch.ports import SwitchPort, port_stats, queue_stats
from experiments.switch.requests import FlowFilter

_HEAD = Struct("!HH4x")
_WORD = Struct("!I4x")
_TWO_WORDS = Struct("!II")
_FLOW = Struct("!B3xII4xQQ")
_AGGREGATE = Struct("!QQI4x")
_TABLE = Struct("!B3xIQQ")
_DESC = Struct("!256s256s256s32s256s")
_METER_FEATURES = Struct("!IIIBB2x")
_GROUP_FEATURES = Struct("!10I")


class Multipart:
    """Replies from the tables, meters and ports of one switch."""

    def __init__(
        self, options: DatapathOptions, tables: FlowTables, meters: MeterTable, ports: dict[int, SwitchPort]
    ) -> None:
        self._options = options
        self._tables = tables
        self._meters = meters
        self._ports = ports
        self._reported = tables.counters[:0].copy()
        self._revalidated_s = -np.inf

    def revalidate(self, now_s: float) -> None:
        """Copy the present flow counters, when due: flow statistics report them until the next time."""
        if now_s - self._revalidated_s >= self._options.flow_stats_staleness_s > 0:
            self._reported = self._tables.counters.copy()
            self._revalidated_s = now_s

    def reply(self, xid: int, body: memoryview, now_s: float) -> list[bytes]:
        """Return the parts of the reply to the request after its header; raises OpenFlowReplyError."""
        if len(body) < _HEAD.size:
            raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_LEN")
        part_type = _HEAD.unpack_from(body)[0]
        handler = self._HANDLERS.get(part_type)
        if handler is None:
            raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_MULTIPART")
        records = handler(self, body[_HEAD.size :], now_s)
        reply_type, size = MultipartType(part_type), self._options.part_bytes
        if isinstance(records, np.ndarray):
            return list(replies.multipart_rows(reply_type, xid, records, size))
        return list(replies.multipart(reply_type, xid, records, size))

    def _desc(self, body: memoryview, now_s: float) -> Iterable[bytes]:
        return [_DESC.pack(b"DETS", b"software switch", b"wire fabric", b"0", b"")]

    def _flow(self, body: memoryview, now_s: float) -> Iterable[bytes]:
        return self._tables.stats(list(self._tables.select(self._filter(body))), self._counters(), now_s)

    def _aggregate(self, body: memoryview, now_s: float) -> Iterable[bytes]:
        reported = self._counters()
        rows = [entry.row for entry in self._tables.select(self._filter(body))]
        reported_rows = [row for row in rows if row < len(reported)]
        packets, octets = reported["packets"][reported_rows].sum(), reported["bytes"][reported_rows].sum()
        return [_AGGREGATE.pack(int(packets), int(octets), len(rows))]

    def _table(self, body: memoryview, now_s: float) -> Iterable[bytes]:
        return [_TABLE.pack(number, size, 0, 0) for number, size in enumerate(self._tables.sizes())]

    def _port(self, body: memoryview, now_s: float) -> np.ndarray:
        return port_stats(self._requested_ports(_unpack(_WORD, body)[0]), now_s)

    def _queue(self, body: memoryview, now_s: float) -> np.ndarray:
        port_no, queue_id = _unpack(_TWO_WORDS, body)
        ports = self._requested_ports(port_no, ErrorType.QUEUE_OP_FAILED)
        if queue_id != ofp.QUEUE_ALL and not any(queue_id in port.queues for port in ports):
            raise OpenFlowReplyError(ErrorType.QUEUE_OP_FAILED, "BAD_QUEUE")
        return queue_stats(ports, queue_id, now_s)

    def _meter(self, body: memoryview, now_s: float) -> np.ndarray:
        ids = self._requested_meters(body)
        return self._meters.stats(ids, self._users_of(ids), now_s)

    def _meter_config(self, body: memoryview, now_s: float) -> np.ndarray:
        return self._meters.config(self._requested_meters(body))

    def _meter_features(self, body: memoryview, now_s: float) -> Iterable[bytes]:
        max_meters = self._meters.abilities.max_meters
        bands = 1 << ofp.METER_BAND_DROP if max_meters else 0
        flags = ofp.MeterFlags.KBPS | ofp.MeterFlags.BURST if max_meters else ofp.MeterFlags(0)
        flags |= ofp.MeterFlags.STATS if max_meters and self._meters.abilities.reports_counting else ofp.MeterFlags(0)
        return [_METER_FEATURES.pack(max_meters, bands, flags, 1 if max_meters else 0, 0)]

    def _port_desc(self, body: memoryview, now_s: float) -> Iterable[bytes]:
        return [port.description() for port in self._ports.values()]

    def _nothing(self, body: memoryview, now_s: float) -> Iterable[bytes]:
        return []

    def _group_features(self, body: memoryview, now_s: float) -> Iterable[bytes]:
        return [_GROUP_FEATURES.pack(*[0] * 10)]

    def _counters(self) -> np.ndarray:
        """Return the flow counters to report: the last copy if counters are stale, otherwise the present ones."""
        return self._reported if self._options.flow_stats_staleness_s > 0 else self._tables.counters

    def _filter(self, body: memoryview) -> FlowFilter:
        """Return the filter of a flow-stats or aggregate request."""
        table_id, out_port, _out_group, cookie, mask = _unpack(_FLOW, body, exact=False)
        if table_id != ofp.TABLE_ALL and table_id >= self._options.tables:
            raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_TABLE_ID")
        match, _end = requests.decode_match(body, _FLOW.size)
        return FlowFilter(table_id, match, cookie, mask, out_port)

    def _users_of(self, ids: np.ndarray) -> np.ndarray:
        """Return how many flow entries use each of these meters."""
        users = self._tables.meter_users
        counts = np.zeros(len(ids), np.int64)
        counts[ids < len(users)] = users[ids[ids < len(users)]]
        return counts

    def _requested_ports(self, port_no: int, error_type: ErrorType = ErrorType.BAD_REQUEST) -> list[SwitchPort]:
        """Return the port of a number, or all for PORT_ANY; OpenFlowReplyError if there is no such port."""
        if port_no == ofp.PORT_ANY:
            return list(self._ports.values())
        if port_no not in self._ports:
            raise OpenFlowReplyError(error_type, "BAD_PORT")
        return [self._ports[port_no]]

    def _requested_meters(self, body: memoryview) -> np.ndarray:
        """Return the ids of the requested meter, or of all for METER_ALL; OpenFlowReplyError if there is none."""
        (meter_id,) = _unpack(_WORD, body)
        if meter_id == ofp.METER_ALL:
            return self._meters.ids()
        if not self._meters.exists(meter_id):
            raise OpenFlowReplyError(ErrorType.METER_MOD_FAILED, "UNKNOWN_METER")
        return np.array([meter_id])

    _HANDLERS: ClassVar[dict[int, Callable[[Multipart, memoryview, float], Iterable[bytes] | np.ndarray]]] = {
        MultipartType.DESC: _desc,
        MultipartType.FLOW: _flow,
        MultipartType.AGGREGATE: _aggregate,
        MultipartType.TABLE: _table,
        MultipartType.PORT_STATS: _port,
        MultipartType.QUEUE: _queue,
        MultipartType.GROUP: _nothing,
        MultipartType.GROUP_DESC: _nothing,
        MultipartType.GROUP_FEATURES: _group_features,
        MultipartType.METER: _meter,
        MultipartType.METER_CONFIG: _meter_config,
        MultipartType.METER_FEATURES: _meter_features,
        MultipartType.PORT_DESC: _port_desc,
    }


def _unpack(layout: Struct, body: memoryview, exact: bool = True) -> tuple[int, ...]:
    """Return the fields of a request; OpenFlowReplyError if the body has the wrong length."""
    if len(body) < layout.size or (exact and len(body) != layout.size):
        raise OpenFlowReplyError(ErrorType.BAD_REQUEST, "BAD_LEN")
    return layout.unpack_from(body)
