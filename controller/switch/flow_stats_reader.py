"""Reads a switch's flow-stats into columns: thousands of similar flow entries at once.

Most replies equal the last one except for counters and ages: then their digest is equal, and nothing is read. A decoded
flow entry gives a template: flow entries with the same bytes, except for port, addresses, VLAN and meter, and counters
and age, differ from it by these alone. A flow entry that fits no template is decoded alone, with the same result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, IntArray
from controller.forwarding.flow_table import KEY, KEY_BYTES, FlowTable, KeyArray, effect_of, pack_key
from controller.forwarding.pipeline import OWN_COOKIE, OWN_COOKIE_MASK
from controller.openflow import constants as ofp
from controller.openflow import flow_stats_native
from controller.openflow.bounded_reader import Buffer
from controller.openflow.constants import InstructionType, OxmField
from controller.openflow.flows import Flow, UnknownFlow, decode_entry, entry_runs
from controller.switch.flow_table_refresh import FlowColumns, FlowTableRefresh

# Flow entries per batch, and flow entries decoded one by one per batch.
_READ_BATCH, _DECODE_BATCH = 1_000, 50
# Templates: how many new ones of one length are tried in each batch, how many are kept for the next reply, and the
# number of matches for which one is kept.
_MAX_TRIED, _MAX_KEPT, _WORTH_KEEPING = 16, 64, 8
_WORD_BYTES = 8
# Bytes of a flow entry in a reply (ofp_flow_stats): its duration, where its match begins, packet and byte counts.
_AGE, _MATCH_AT, _COUNTERS = slice(4, 12), 48, slice(32, 48)
_KEY_HEAD_BYTES = 4  # before the match, in a packed key
# Fields that differ between the flow entries of a template: size in bytes, lowest and highest value.
_FREE = {
    OxmField.IN_PORT: (4, 1, ofp.PORT_ANY - 1),
    OxmField.ETH_DST: (6, 0, 2**48 - 1),
    OxmField.ETH_SRC: (6, 0, 2**48 - 1),
    OxmField.VLAN_VID: (2, ofp.VID_PRESENT | 1, ofp.VID_PRESENT | ofp.VLAN_MAX),
}
_METER_BYTES = 4


def is_own(flow: Flow | UnknownFlow) -> TypeGuard[Flow]:
    """Return whether a flow entry is the controller's; foreign ones are never changed."""
    return flow.cookie & OWN_COOKIE_MASK == OWN_COOKIE and isinstance(flow, Flow)


class InstalledFlows:
    """The flow entries of a switch's last reply: ``own`` are the controller's, ``foreign`` is the number of others."""

    def __init__(self) -> None:
        self.own = FlowTable()
        self.foreign = 0
        self._templates: _Templates = {}
        self._digest = b""

    def read(self, body: Buffer, yield_control: Callable[[], None] = lambda: None) -> set[bytes]:
        """Read the body of a flow-stats reply.

        Return the packed keys of own flow entries that were added, removed or changed.

        ``yield_control`` lets other greenlets run before a flow is added. Raises ProtocolError if malformed; then no
        flow is added.
        """
        body = bytes(body)
        digest = _digest(body, yield_control)
        if digest == self._digest:
            return set()
        reader = _Reader(body, FlowTableRefresh(self.own), self._templates)
        for _ in reader.batches():
            yield_control()
        for _ in reader.update.batches():
            yield_control()
        self.own, self.foreign, self._templates = reader.update.table, reader.foreign, reader.used_templates()
        self._digest = digest
        return reader.update.changed


def _digest(body: bytes, yield_control: Callable[[], None]) -> bytes:
    """Return a digest of a reply without counters and ages.

    Native code masks them, in batches. Without native code, or if there are bytes that it cannot mask,
    ``_digest_of_runs`` makes the whole digest.
    """
    digest, offset = sha256(), 0
    while offset < len(body) and flow_stats_native.library is not None:
        masked = flow_stats_native.mask_counters(body, offset, _READ_BATCH)
        if masked is None:
            break
        digest.update(masked.data)
        offset += len(masked)
        if offset < len(body):
            yield_control()
    return digest.digest() if offset == len(body) else _digest_of_runs(body, yield_control)


def _digest_of_runs(body: bytes, yield_control: Callable[[], None]) -> bytes:
    """Return the digest of the flow entries without their ages and counters, which change in every reply."""
    digest, since_yield = sha256(), 0
    for offset, length, count in entry_runs(body):
        for first in range(0, count, _READ_BATCH):
            size = min(count - first, _READ_BATCH)
            entries = np.frombuffer(body, np.uint8, size * length, offset + first * length).reshape(size, length).copy()
            entries[:, _AGE] = entries[:, _COUNTERS] = 0
            digest.update(entries.data)
            since_yield += size
            if since_yield >= _READ_BATCH:
                since_yield = 0
                yield_control()
    return digest.digest()


class _VariableField(NamedTuple):
    """Variable bytes of a flow entry: their offset in it and in its key (None: the meter), and their bounds."""

    at: int
    key_at: int | None
    size: int
    low: int
    high: int


class _Template:
    """The common part of flow entries of one length: all bytes except the variable fields, which have bounds."""

    def __init__(self, raw: bytes, flow: Flow) -> None:
        self.key, self.effect = np.array([pack_key(flow)], KEY), effect_of(flow)
        self._holes = list(_holes(raw, flow))  # the variable fields
        # The mask of the fixed bytes, and these bytes, as 64-bit words.
        fixed = np.full(len(raw), 0xFF, np.uint8)
        for part in (_AGE, _COUNTERS, *(slice(hole.at, hole.at + hole.size) for hole in self._holes)):
            fixed[part] = 0
        self._fixed = fixed.view(np.uint64)
        self._words = np.frombuffer(raw, np.uint64) & self._fixed
        self.used = True

    def matches(self, words: NDArray[np.uint64]) -> BoolArray:
        """Return the mask of the flow entries that differ from the template in variable fields only, (entries,).

        ``words`` (entries, words per entry) are the flow entries' bytes as 64-bit words.
        """
        alike: BoolArray = ((words & self._fixed) == self._words).all(axis=1)
        octets = words.view(np.uint8)
        for hole in self._holes:
            if (hole.low, hole.high) != (0, 256**hole.size - 1):  # otherwise any value fits
                values = octets[:, hole.at : hole.at + hole.size].copy().view(f">u{hole.size}")[:, 0]
                alike &= (values >= hole.low) & (values <= hole.high)
        return alike

    def columns(self, words: NDArray[np.uint64]) -> tuple[KeyArray, NDArray[np.uint32]]:
        """Return the keys and meters (0: none) of matching flow entries."""
        octets = words.view(np.uint8)
        keys = np.full(len(words), self.key)
        key_octets = keys.view(np.uint8).reshape(-1, KEY_BYTES)
        meter_id = np.zeros(len(words), np.uint32)
        for hole in self._holes:
            values = octets[:, hole.at : hole.at + hole.size]
            if hole.key_at is None:
                meter_id = values.copy().view(">u4")[:, 0].astype(np.uint32)
            else:
                key_octets[:, hole.key_at : hole.key_at + hole.size] = values
        return keys, meter_id


_Templates = dict[int, list[_Template]]
"""Templates by the length of the flow entries."""


class _Reader:
    """Reads one reply into ``update``, beginning with the templates of earlier replies."""

    def __init__(self, body: bytes, update: FlowTableRefresh, templates: _Templates) -> None:
        self.update = update
        self.foreign = 0
        self._body = body
        whole = len(body) // _WORD_BYTES * _WORD_BYTES
        self._words = np.frombuffer(body[:whole] if whole < len(body) else body, np.uint64)
        self._templates: defaultdict[int, list[_Template]] = defaultdict(list)
        for length, same_length in templates.items():
            self._templates[length] = list(same_length)
            for template in same_length:
                template.used = False

    def used_templates(self) -> _Templates:
        """Return the templates that matched flow entries of this reply."""
        groups = self._templates.items()
        used = [(length, template) for length, group in groups for template in group if template.used]
        kept: _Templates = {}
        for length, template in used[:_MAX_KEPT]:
            kept.setdefault(length, []).append(template)
        return kept

    def batches(self) -> Iterator[None]:
        """Read the whole reply, and yield after each batch."""
        offsets: defaultdict[int, list[IntArray]] = defaultdict(list)
        in_batch = 0
        for offset, length, count in entry_runs(self._body):
            done = 0
            while done < count:
                size = min(count - done, _READ_BATCH - in_batch)
                offsets[length].append(offset + length * np.arange(done, done + size))
                done, in_batch = done + size, in_batch + size
                if in_batch == _READ_BATCH:
                    yield from self._read_entries(offsets)
                    offsets, in_batch = defaultdict(list), 0
        yield from self._read_entries(offsets)

    def _read_entries(self, offsets: dict[int, list[IntArray]]) -> Iterator[None]:
        """Read the flow entries at ``offsets`` (bytes) of the reply, by the entries' length in bytes; yield in between.

        Flow entries that match a template are read as columns, the others one by one.
        """
        read: list[FlowColumns] = []
        order: list[IntArray] = []  # the offsets of the flow entries in ``read``: their order in the reply
        single: list[tuple[int, int]] = []  # offset and length of those that are read one by one
        for length, parts in offsets.items():
            starts = np.concatenate(parts)
            if length % _WORD_BYTES or (starts % _WORD_BYTES).any():
                single += [(start, length) for start in starts.tolist()]
                continue
            # (entries, words per entry), as in ``_Template.matches``.
            words = self._words[starts[:, None] // _WORD_BYTES + np.arange(length // _WORD_BYTES)]
            for template, rows in self._matching_rows(length, starts, words):
                if template is None:
                    single += [(start, length) for start in starts[rows].tolist()]
                    continue
                keys, meter_id = template.columns(words[rows])
                effect_index = np.full(len(rows), self.update.template_index(template.effect), np.uint32)
                read.append(FlowColumns(keys, meter_id, effect_index))
                order.append(starts[rows])
        for count, (start, length) in enumerate(sorted(single), 1):
            flow = decode_entry(self._body[start : start + length])
            if not is_own(flow):
                self.foreign += 1
            elif len(packed := pack_key(flow)) > KEY_BYTES:
                self.update.add_long(packed, flow.meter_id or 0, effect_of(flow))
            else:
                row = (flow.meter_id or 0, self.update.template_index(effect_of(flow)))
                read.append(FlowColumns(np.array([packed], KEY), *np.array([row], np.uint32).T))
                order.append(np.array([start]))
            if count % _DECODE_BATCH == 0:
                yield
        if read:
            # Of equal keys the last one of the reply counts.
            self.update.add(FlowColumns.concatenate(read).at(np.argsort(np.concatenate(order))))
        yield

    def _matching_rows(
        self, length: int, starts: IntArray, words: NDArray[np.uint64]
    ) -> Iterator[tuple[_Template | None, IntArray]]:
        """Yield each template with its matching rows, and at last None with the rows that match none.

        Where old templates do not match, new ones are made from flow entries of this reply.
        """
        templates, unmatched = self._templates[length], np.arange(len(starts))
        for template in templates:
            if not len(unmatched):
                return
            matches = template.matches(words[unmatched])
            template.used |= bool(matches.any())
            yield template, unmatched[matches]
            unmatched = unmatched[~matches]
        for _ in range(_MAX_TRIED):
            if len(unmatched) < _WORTH_KEEPING:
                break
            middle = int(starts[unmatched[len(unmatched) // 2]])
            raw = self._body[middle : middle + length]
            flow = decode_entry(raw)
            if not is_own(flow) or len(pack_key(flow)) > KEY_BYTES:  # such a flow entry makes no template
                break
            template = _Template(raw, flow)
            matches = template.matches(words[unmatched])
            yield template, unmatched[matches]
            if len(templates) < _MAX_KEPT and int(np.count_nonzero(matches)) >= _WORTH_KEEPING:
                templates.append(template)
            unmatched = unmatched[~matches]
        yield None, unmatched


def _holes(raw: bytes, flow: Flow) -> Iterator[_VariableField]:
    """Yield the variable fields of a flow entry that decodes to ``flow``."""
    key_at = {field: at for field, at, _, _ in _oxms(pack_key(flow).ljust(KEY_BYTES, b"\0"), _KEY_HEAD_BYTES)}
    end = _MATCH_AT + int.from_bytes(raw[_MATCH_AT + 2 : _MATCH_AT + 4])
    for field, at, size, masked in _oxms(raw[:end], _MATCH_AT + 4):
        expected, low, high = _FREE.get(field, (0, 0, 0))  # type: ignore[call-overload]
        if not masked and size == expected and low <= int.from_bytes(raw[at : at + size]) <= high:
            yield _VariableField(at, key_at[field], size, low, high)
    at = _MATCH_AT + (end - _MATCH_AT + 7) // 8 * 8  # the instructions follow the match, which is padded to 8 bytes
    while at < len(raw):
        kind, length = int.from_bytes(raw[at : at + 2]), int.from_bytes(raw[at + 2 : at + 4])
        if kind == InstructionType.METER:
            yield _VariableField(at + 4, None, _METER_BYTES, 1, ofp.METER_MAX)
        at += length


def _oxms(octets: bytes, at: int) -> Iterator[tuple[int, int, int, bool]]:
    """Yield the field, the payload's offset and size of each TLV, and whether it has a mask."""
    while at < len(octets) and octets[at : at + 2] == ofp.OXM_CLASS_BASIC.to_bytes(2):
        size = octets[at + 3]
        yield octets[at + 2] >> 1, at + 4, size, bool(octets[at + 2] & 1)
        at += 4 + size
