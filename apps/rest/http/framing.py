"""Where requests begin and end, as RFC 9112 has it: what a server in front of this one might read otherwise is refused.

The library reads leniently: it takes what has come before a connection ends for the whole head, ends lines at a lone
carriage return, passes over a field with a space before its colon, takes the first of two lengths, reads lines between
chunks however long they are, and takes anything for the end of one.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from typing import Any

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(_TOKEN + rb" [\x21-\x7e\x80-\xff]+ HTTP/[0-9]\.[0-9]\r?\n")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):([\t\x20-\x7e\x80-\xff]*)\r?\n")
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[!$%&'()*+,;=\-.~_0-9A-Za-z]*)(:[0-9]*)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_SHOWN_BYTES = 60
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r?\n")
_MOST_CHUNK_LINE_BYTES, _MOST_TRAILERS = 256, 16


class LinesRead:
    """A file that is read by lines, which are kept in ``lines``."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.lines: list[bytes] = []

    def readline(self, size: int = -1) -> bytes:
        """Return the next line, empty at the end."""
        line: bytes = self._file.readline(size)
        self.lines.append(line)
        return line


class ChunksRead:
    """A file that a chunked body is read from, as the library does: the lines around each chunk are checked.

    Raises OSError where the body is not what RFC 9112, section 7.1, says.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._in_chunk = False
        self._trailers_left: int | None = None

    def read(self, size: int) -> bytes:
        """Return that much of a chunk's data, less at the end of the file."""
        self._in_chunk = True
        data: bytes = self._file.read(size)
        return data

    def readline(self) -> bytes:
        """Return the line behind a chunk's data, that of the next one's size, or a trailer; b"" at the end."""
        line: bytes = self._file.readline(_MOST_CHUNK_LINE_BYTES)
        if self._trailers_left is not None:
            self._trailers_left -= 1
            good = self._trailers_left >= 0 and line.endswith(b"\n")
        elif self._in_chunk:
            good, self._in_chunk = line in (b"\r\n", b"\n"), False
        else:
            size = _CHUNK_SIZE.fullmatch(line)
            good = size is not None
            if size is not None and not int(size[1], 16):
                self._trailers_left = _MOST_TRAILERS
        if not good:
            raise OSError(errno.EPROTO, f"this does not belong between chunks: {_shown(line)}")
        return line


def fault_of_request_line(line: bytes) -> str | None:
    """Return what is wrong with the line of a request, None if nothing is."""
    return None if _REQUEST_LINE.fullmatch(line) else f"this is no METHOD TARGET HTTP/1.1: {_shown(line)}"


def fault(lines: Sequence[bytes], version: str) -> str | None:
    """Return what is wrong with a head, None if nothing is.

    ``lines`` are those behind the request line, the empty one included; ``version`` is that of the request line.
    """
    if not lines or lines[-1] not in (b"\r\n", b"\n"):
        return "the head ends before its empty line"
    values: dict[bytes, list[bytes]] = {}
    for line in lines[:-1]:
        field = _FIELD.fullmatch(line)
        if field is None:
            return f"a line of the head is not NAME: VALUE in printable characters: {_shown(line)}"
        values.setdefault(field[1].lower(), []).append(field[2].strip(b" \t"))
    for name in (b"host", b"content-length", b"transfer-encoding"):
        if len(values.get(name, ())) > 1:
            return f"{name.decode()} stands {len(values[name])} times in the head, and may stand once"
    if b"host" not in values and version != "HTTP/1.0":
        return f"a request of {version} needs the field host"
    for host in values.get(b"host", ()):
        if _HOST.fullmatch(host) is None:
            return f"host is {_shown(host)}, which is no name or address, with a port or without"
    return _fault_of_body(values.get(b"content-length"), values.get(b"transfer-encoding"), version)


def _fault_of_body(length: list[bytes] | None, coding: list[bytes] | None, version: str) -> str | None:
    if length and coding:
        return "content-length and transfer-encoding exclude each other"
    if length and _LENGTH.fullmatch(length[0]) is None:
        return f"content-length is {_shown(length[0])}: write at most 18 decimal digits"
    if coding and (coding[0].lower() != b"chunked" or version == "HTTP/1.0"):
        return f"transfer-encoding is {_shown(coding[0])}: only chunked is understood, and not in HTTP/1.0"
    return None


def _shown(data: bytes) -> str:
    return repr(data[:_SHOWN_BYTES].decode("latin-1"))
