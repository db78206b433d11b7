"""Framing of requests (RFC 9112): requests that a proxy in front could read differently are rejected.

These checks run before h11 sees the bytes, because h11 accepts more: lines that end with a line feed only, folded
lines, control characters in values, a length next to a transfer coding, a length given twice, any text as a host, chunk
lines of any length and any number of trailers.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(_TOKEN + rb" [\x21-\x7e]+ HTTP/[0-9]\.[0-9]")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):([\t\x20-\x7e\x80-\xff]*)")
# RFC 9110 knows no zone of an IPv6 address, but clients of older Pythons (3.11.2) send one.
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+(%[-.~_0-9A-Za-z]{1,64})?\]|[!$%&'()*+,;=\-.~_0-9A-Za-z]*)(:[0-9]*)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_SHOWN_BYTES = 60
_CHUNK_SIZE = re.compile(rb"(?:\r\n)?([0-9a-fA-F]{1,8})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_MAX_LINE_BYTES = 256
_MAX_TRAILERS = 16
MAX_TRAILERS_BYTES = _MAX_TRAILERS * _MAX_LINE_BYTES
LONE_LINE_FEED = re.compile(rb"(?<!\r)\n")


def chunk_size(waiting: bytes) -> int | None:
    """Return the size of the next chunk, None while its line is incomplete.

    ``waiting`` are the received bytes, from the chunk's line or from the line end of the previous chunk on. Raises
    OSError for a line that violates RFC 9112, section 7.1.
    """
    line = waiting[:_MAX_LINE_BYTES]
    size = _CHUNK_SIZE.match(line)
    if size is not None:
        return int(size[1], 16)
    line_feed = line.find(b"\n", 2)  # behind the line end of the previous chunk
    if line_feed >= 0 or len(line) == _MAX_LINE_BYTES:
        raise OSError(errno.EPROTO, f"this does not belong between chunks: {shown(line[: line_feed + 1] or line)}")
    return None


def check_trailers(fields: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise OSError if more, or longer, trailers follow the last chunk than allowed."""
    longest = max((len(name) + len(value) for name, value in fields), default=0)
    if len(fields) > _MAX_TRAILERS or longest > _MAX_LINE_BYTES:
        raise OSError(
            errno.EPROTO, f"after the last chunk {_MAX_TRAILERS} fields of {_MAX_LINE_BYTES} bytes are the most"
        )


def fault_of_request_line(line: bytes) -> str | None:
    """Return the fault of a request line, None if it is valid."""
    return None if _REQUEST_LINE.fullmatch(line) else f"this is not METHOD TARGET HTTP/1.1: {shown(line)}"


def head_error(lines: Sequence[bytes], version: str) -> str | None:
    """Return the fault of a head, None if it is valid.

    ``lines`` follow the request line, without their ends; ``version`` is the version in the request line.
    """
    values: dict[bytes, list[bytes]] = {}
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            return f"a line of the head is not NAME: VALUE in printable characters: {shown(line)}"
        values.setdefault(field[1].lower(), []).append(field[2].strip(b" \t"))
    for name in (b"host", b"content-length", b"transfer-encoding"):
        if len(values.get(name, ())) > 1:
            return f"{name.decode()} stands {len(values[name])} times in the head, and may stand once"
    if b"host" not in values and version != "HTTP/1.0":
        return f"a request of {version} needs the field host"
    for host in values.get(b"host", ()):
        if _HOST.fullmatch(host) is None:
            return f"host is {shown(host)}, which is no name or address, with a port or without"
    return _fault_of_body(values.get(b"content-length"), values.get(b"transfer-encoding"), version)


def _fault_of_body(length: list[bytes] | None, coding: list[bytes] | None, version: str) -> str | None:
    """Return the fault of Content-Length and Transfer-Encoding, which delimit a body; None if they are valid."""
    if length and coding:
        return "content-length and transfer-encoding exclude each other"
    if length and _LENGTH.fullmatch(length[0]) is None:
        return f"content-length is {shown(length[0])}: write at most 18 decimal digits"
    if coding and (coding[0].lower() != b"chunked" or version == "HTTP/1.0"):
        return f"transfer-encoding is {shown(coding[0])}: only chunked is understood, and not in HTTP/1.0"
    return None


def shown(data: bytes) -> str:
    """Return a client's bytes for a message: printable and short."""
    return repr(data[:_SHOWN_BYTES].decode("latin-1"))
