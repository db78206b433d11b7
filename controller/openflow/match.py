"""The match of a flow entry: the seven fields in use, as OXM TLVs (OpenFlow 1.3.5, section 7.2.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, NamedTuple, Self

from controller.errors import InvalidValueError
from controller.openflow import constants as ofp
from controller.openflow.bounded_reader import check_range, malformed, read, read_bytes

_HEADER = Struct("!HH")
_OXM = Struct("!HBB")
_FIELD_BYTES: dict[int, int] = {
    ofp.OxmField.IN_PORT: 4,
    ofp.OxmField.METADATA: 8,
    ofp.OxmField.ETH_DST: 6,
    ofp.OxmField.ETH_SRC: 6,
    ofp.OxmField.ETH_TYPE: 2,
    ofp.OxmField.VLAN_VID: 2,
    ofp.OxmField.IP_ECN: 1,
}
_MAC_MAX = 2**48 - 1
_METADATA_MAX = 2**64 - 1
_SMALLEST = 8  # ofp_match with no field: four bytes, padded


class Oxm(NamedTuple):
    """One TLV of a match as received; ``mask`` is None if it has none."""

    oxm_class: int
    field: int
    value: int
    mask: int | None


class UnknownMatchError(Exception):
    """Well-formed bytes that match on something that Match does not support."""


class _MatchFields(NamedTuple):
    in_port: int | None
    vlan_vid: int | None
    eth_dst: int | None
    eth_src: int | None
    eth_type: int | None
    eth_dst_mask: int | None
    eth_src_mask: int | None
    metadata: int | None
    metadata_mask: int | None
    ip_ecn: int | None


_LIMITS = (
    ("match.in_port", 1, ofp.PORT_ANY - 1),
    ("match.vlan_vid", ofp.VLAN_NONE, ofp.VLAN_PRIORITY),
    ("match.eth_dst", 0, _MAC_MAX),
    ("match.eth_src", 0, _MAC_MAX),
    ("match.eth_type", 0, 0xFFFF),
    ("match.eth_dst_mask", 1, _MAC_MAX),
    ("match.eth_src_mask", 1, _MAC_MAX),
    ("match.metadata", 0, _METADATA_MAX),
    ("match.metadata_mask", 1, _METADATA_MAX),
    ("match.ip_ecn", 0, ofp.IP_ECN_MAX),
)
_MASKED = (("eth_dst", _MAC_MAX), ("eth_src", _MAC_MAX), ("metadata", _METADATA_MAX))


class Match(_MatchFields):
    """What a flow entry matches on; None is any. Addresses are integers of 48 bits.

    ``vlan_vid`` is the VLAN id 1..4094 of a tagged packet, VLAN_PRIORITY for a tag of VLAN id 0, or VLAN_NONE for
    untagged ones. A mask has ones where its field is compared; a mask of all ones equals no mask and is stored as None.
    ``metadata`` was written by earlier tables (section 5.1). ``ip_ecn`` needs an ``eth_type`` of IPv4 or IPv6 (section
    7.2.3.8). Raises InvalidValueError naming the field. It is a tuple, because switches hold tens of thousands, and
    tables are dicts of them.
    """

    __slots__ = ()

    def __new__(
        cls,
        in_port: int | None = None,
        vlan_vid: int | None = None,
        eth_dst: int | None = None,
        eth_src: int | None = None,
        eth_type: int | None = None,
        eth_dst_mask: int | None = None,
        eth_src_mask: int | None = None,
        metadata: int | None = None,
        metadata_mask: int | None = None,
        ip_ecn: int | None = None,
    ) -> Self:
        """Return a match from fields that are in their ranges."""
        masked = (eth_dst_mask, eth_src_mask, metadata, metadata_mask)
        match = super().__new__(cls, in_port, vlan_vid, eth_dst, eth_src, eth_type, *masked, ip_ecn)
        for value, (key, low, high) in zip(match, _LIMITS, strict=True):
            if value is not None:
                check_range(key, value, low, high)
        if vlan_vid == ofp.VLAN_MAX + 1:
            raise InvalidValueError("match.vlan_vid", vlan_vid, "is reserved (IEEE 802.1Q, table 9-2)")
        if ip_ecn is not None and eth_type not in ofp.ETH_TYPES_IP:
            raise InvalidValueError("match.ip_ecn", ip_ecn, "needs eth_type 0x0800 or 0x86dd")
        if eth_dst_mask is None and eth_src_mask is None and metadata_mask is None:
            return match
        masks = [None if _checked_mask(match, key) == ones else getattr(match, f"{key}_mask") for key, ones in _MASKED]
        return super().__new__(cls, *match[:5], masks[0], masks[1], metadata, masks[2], ip_ecn)

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Self:  # type: ignore[override]  # mypy takes the inherited for generic
        return cls(*iterable)  # what _replace returns is checked as well


def encode_match(match: Match) -> bytes:
    """Return the ofp_match with its padding to 8 bytes; fields in ascending OXM order."""
    fields = b""
    if match.in_port is not None:
        fields += _encode_oxm(ofp.OxmField.IN_PORT, match.in_port)
    if match.metadata is not None:
        fields += _encode_oxm(ofp.OxmField.METADATA, match.metadata, match.metadata_mask)
    if match.eth_dst is not None:
        fields += _encode_oxm(ofp.OxmField.ETH_DST, match.eth_dst, match.eth_dst_mask)
    if match.eth_src is not None:
        fields += _encode_oxm(ofp.OxmField.ETH_SRC, match.eth_src, match.eth_src_mask)
    if match.eth_type is not None:
        fields += _encode_oxm(ofp.OxmField.ETH_TYPE, match.eth_type)
    if match.vlan_vid is not None:
        tagged = ofp.VID_PRESENT if match.vlan_vid != ofp.VLAN_NONE else 0
        fields += _encode_oxm(ofp.OxmField.VLAN_VID, match.vlan_vid | tagged)
    if match.ip_ecn is not None:
        fields += _encode_oxm(ofp.OxmField.IP_ECN, match.ip_ecn)
    length = _HEADER.size + len(fields)
    return _HEADER.pack(ofp.MATCH_TYPE_OXM, length) + fields + bytes(-length % 8)


def read_oxms(view: memoryview, offset: int, message: str) -> tuple[list[Oxm], int]:
    """Return the TLVs of the ofp_match at ``offset`` and the offset after its padding; ProtocolError when malformed."""
    match_type, length = read(_HEADER, view, offset, message, "match")
    if match_type != ofp.MATCH_TYPE_OXM:
        raise malformed(message, "match.type", match_type, f"{ofp.MATCH_TYPE_OXM} (OXM)")
    if length < _HEADER.size:
        raise malformed(message, "match.length", length, f"{_HEADER.size} or more")
    padded = max((length + 7) // 8 * 8, _SMALLEST)
    whole = read_bytes(view, offset, padded, message, "match.length")
    return list(walk_oxms(whole[_HEADER.size : length], message)), offset + padded


def walk_oxms(view: memoryview, message: str) -> Iterator[Oxm]:
    """Yield the TLVs that fill ``view`` exactly; raises ProtocolError when they do not."""
    offset, end = 0, len(view)
    while offset < end:
        oxm_class, field_and_mask, size = read(_OXM, view, offset, message, "oxm header")
        offset += _OXM.size
        payload = view[offset : offset + size]
        if len(payload) < size:
            raise malformed(message, "oxm_length", size, f"0 to {len(payload)}, the bytes left")
        field, has_mask = field_and_mask >> 1, field_and_mask & 1
        _check_size(oxm_class, field, has_mask, size, message)
        split = size // 2 if has_mask else size
        mask = int.from_bytes(payload[split:]) if has_mask else None
        yield Oxm(oxm_class, field, int.from_bytes(payload[:split]), mask)
        offset += size


def match_from_oxms(oxms: list[Oxm]) -> Match:
    """Return the Match that the TLVs express; raises UnknownMatchError for a field, mask or value beyond it."""
    values: dict[str, int] = {}
    for oxm in oxms:
        key = _KEYS.get(oxm.field) if oxm.oxm_class == ofp.OXM_CLASS_BASIC else None
        if key is None or key in values:
            raise UnknownMatchError(f"field {oxm.field} of class {oxm.oxm_class:#06x}")
        value = oxm.value
        if key == "vlan_vid":
            value = _vlan_vid(oxm)
        elif oxm.mask is not None and oxm.mask != _ones(oxm.field):
            if key not in dict(_MASKED):
                raise UnknownMatchError(f"{key} under a mask")
            values[f"{key}_mask"] = oxm.mask
        values[key] = value
    try:
        return Match(**values)
    except InvalidValueError as error:
        raise UnknownMatchError(str(error)) from error


def _checked_mask(match: Match, key: str) -> int | None:
    """Return the mask of a field; raise InvalidValueError if the field has bits outside it."""
    value, mask = getattr(match, key), getattr(match, f"{key}_mask")
    if mask is None:
        return None
    if value is None:
        raise InvalidValueError(f"match.{key}_mask", mask, f"is set without {key}")
    if value & ~mask:
        raise InvalidValueError(f"match.{key}", value, f"has bits outside {key}_mask; switches refuse that")
    return int(mask)


_KEYS: dict[int, str] = {field: field.name.lower() for field in ofp.OxmField}


def _encode_oxm(field: ofp.OxmField, value: int, mask: int | None = None) -> bytes:
    size = _FIELD_BYTES[field]
    payload = int(value).to_bytes(size)
    if mask is not None:
        payload += int(mask).to_bytes(size)
    return _OXM.pack(ofp.OXM_CLASS_BASIC, field << 1 | (mask is not None), len(payload)) + payload


def _check_size(oxm_class: int, field: int, has_mask: int, size: int, message: str) -> None:
    if oxm_class == ofp.OXM_CLASS_BASIC and field in _KEYS:
        expected = _FIELD_BYTES[field] * (2 if has_mask else 1)
        if size != expected:
            raise malformed(message, f"oxm_length of {_KEYS[field]}", size, str(expected))
    elif has_mask and size % 2:
        raise malformed(message, f"oxm_length of field {field} with a mask", size, "an even number")


def _ones(field: int) -> int:
    return int((1 << 8 * _FIELD_BYTES[field]) - 1)


def _vlan_vid(oxm: Oxm) -> int:
    """Return the VLAN id without VID_PRESENT, or VLAN_NONE or VLAN_PRIORITY, as ``Match.vlan_vid``.

    The field's 13 bits may come with an exact mask of 13 or of 16 bits. Raises UnknownMatchError for another mask, and
    for a VLAN id that is not valid.
    """
    if oxm.mask not in (None, 0x1FFF, 0xFFFF):
        raise UnknownMatchError("vlan_vid under a mask")
    if oxm.value == ofp.VLAN_NONE:
        return ofp.VLAN_NONE
    vid = oxm.value ^ ofp.VID_PRESENT
    if not 0 <= vid <= ofp.VLAN_MAX:
        raise UnknownMatchError(f"vlan_vid {oxm.value:#06x}")
    return vid or ofp.VLAN_PRIORITY
