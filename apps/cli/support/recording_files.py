"""``dets record`` and ``dets replay``: recordings as files.

A file is a zip of ``format.json`` and of members ``records/NNNNNN``, in the order in which they were drained from the
controller.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import json
import os
import sys
import time
import zipfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from apps.cli.support.answers import AnswerError, Shape
from apps.cli.support.rest_client import Client
from controller.errors import DetsError, InvalidValueError, ProtocolError
from controller.policy.policy_groups import PolicyChoice
from controller.printable import printable
from controller.whatif.recording import FORMAT, MAX_RECORDING_BYTES, Interval, Start, decode
from controller.whatif.replay import Replayed, differences, replay, vn_location

TAKE_EVERY_S = 0.5
_RECORDS: Shape = {"records": str, "overrun": bool}
_MAX_RECORDS_BYTES = 2 * MAX_RECORDING_BYTES
"""of the records since the last request, and of a member of a file: a controller keeps at most half of it"""
_MAX_FORMAT_BYTES = 4096


def record(client: Client, output: Path, duration_s: float | None) -> int:
    """Record a controller for a time, or until Ctrl-C; return the number of recorded intervals.

    ``output`` is a new file, or ``-`` for the standard output. The controller's recording is stopped in any case.
    Raises InvalidValueError if ``output`` is a terminal, exists already or cannot be written, RequestError if the
    controller is unreachable, ProtocolError if its records overran.
    """
    intervals = 0

    def counted() -> Generator[bytes]:
        nonlocal intervals
        with contextlib.closing(_recorded_chunks(client, output, duration_s)) as chunks:
            for chunk in chunks:
                intervals += sum(isinstance(decoded, Interval) for decoded in decode(chunk))
                yield chunk

    to_stdout = str(output) == "-"
    if to_stdout and sys.stdout.isatty():
        raise InvalidValueError("output", "-", "is a terminal, and a recording is binary: send it to a file or a pipe")
    try:
        file = os.fdopen(os.dup(sys.stdout.fileno()), "wb") if to_stdout else output.open("xb")
    except FileExistsError as error:
        raise InvalidValueError("output", str(output), "exists already") from error
    except OSError as error:
        raise InvalidValueError("output", str(output), f"cannot be written: {error.strerror}") from error
    with file:
        try:
            _request_action(client, "start")
        except DetsError:
            if not to_stdout:
                output.unlink()
            raise
        with contextlib.closing(counted()) as chunks:
            write(file, chunks)
    return intervals


def _request_action(client: Client, action: str) -> dict[str, Any]:
    """Let the controller ``start`` a recording, ``take`` the records since the last request, or ``stop``."""
    body, shape = {"action": action}, dict if action == "start" else _RECORDS
    answer: dict[str, Any] = client.call(
        "/v1/recording", method="POST", body=body, shape=shape, most_bytes=_MAX_RECORDS_BYTES
    )
    return answer


def _recorded_chunks(client: Client, output: Path, duration_s: float | None) -> Generator[bytes]:
    """Yield a controller's records, chunk by chunk; ProtocolError if they overran."""
    end_s = None if duration_s is None else time.monotonic() + duration_s
    stop = False
    try:
        while not stop:
            try:
                wait_s = TAKE_EVERY_S if end_s is None else min(TAKE_EVERY_S, end_s - time.monotonic())
                time.sleep(max(wait_s, 0.0))
                stop = end_s is not None and time.monotonic() >= end_s
            except KeyboardInterrupt:
                stop = True
            answer = _request_action(client, "stop" if stop else "take")
            yield _decoded(answer["records"])
            if answer["overrun"]:
                raise ProtocolError(f"recording: records were lost; {output} holds what came before them")
    finally:
        if not stop:
            with contextlib.suppress(DetsError):  # the recording may have ended, or the controller not answer
                _request_action(client, "stop")


def _decoded(records: str) -> bytes:
    """Return the bytes of records in Base64. Raises AnswerError."""
    try:
        return base64.b64decode(records, validate=True)
    except ValueError as error:
        raise AnswerError(f"records are not in base64: {error}") from error


def write(file: BinaryIO, chunks: Iterable[bytes]) -> None:
    """Write a recording to an empty file, chunk by chunk."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        archive.writestr("format.json", json.dumps(FORMAT))
        for number, data in enumerate(chunks):
            archive.writestr(f"records/{number:06}", data)


def read(path: Path) -> Iterator[Start | Interval]:
    """Yield the records of a file; raise InvalidValueError if it is not a readable recording."""
    try:
        with zipfile.ZipFile(path) as archive:
            with archive.open("format.json") as format_file:
                file_format = json.loads(format_file.read(_MAX_FORMAT_BYTES))
            if file_format != FORMAT:
                raise InvalidValueError("FILE", str(path), f"is of format {file_format}, not {FORMAT}")
            members = [file for file in archive.infolist() if file.filename.startswith("records/")]
            for member in sorted(members, key=lambda file: file.filename):
                if member.file_size > _MAX_RECORDS_BYTES:
                    reason = (
                        f"is not a recording: {member.filename} has {member.file_size} bytes of {_MAX_RECORDS_BYTES}"
                    )
                    raise InvalidValueError("FILE", str(path), reason)
                yield from decode(archive.read(member))
    except InvalidValueError:
        raise
    except OSError as error:
        raise InvalidValueError("FILE", str(path), f"cannot be read: {error.strerror}") from error
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise InvalidValueError("FILE", str(path), f"is not a recording: {error}") from error


CSV_COLUMNS = ("interval", "time_s", "same", "vlan", "from", "to", "limit_bps", "alternative_bps")


def write_decisions(path: Path, algorithm: str | None, parameters: Mapping[str, object], output: TextIO) -> bool:
    """Write the replayed decisions of a recording as CSV, a row for each pair and interval.

    Return whether all decisions equal the recorded ones. Column ``time_s`` is the clock of the recording controller,
    ``alternative_bps`` the limit by ``algorithm``, empty without one. Intervals are not kept in memory. Raises as
    ``replayed`` does.
    """
    rows = csv.writer(output, lineterminator="\n")
    rows.writerow(CSV_COLUMNS)
    as_recorded = True
    for number, row in enumerate(_replayed_rows(path, algorithm, parameters)):
        as_recorded &= row.same
        vid = row.start.vns.vlan_vid
        columns = (row.sender.tolist(), row.receiver.tolist(), row.limit_bps.tolist(), row.alternative_bps.tolist())
        for sender, receiver, limit_bps, alternative_bps in zip(*columns, strict=True):
            ends = [printable(vn_location(row.start, vn)) for vn in (sender, receiver)]
            rates = [f"{limit_bps:.0f}", "" if alternative_bps != alternative_bps else f"{alternative_bps:.0f}"]  # NaN
            rows.writerow([number, f"{row.now_s:.3f}", int(row.same), vid[sender], *ends, *rates])
    return as_recorded


def _replayed_rows(path: Path, algorithm: str | None, parameters: Mapping[str, object]) -> Iterator[Replayed]:
    """Yield the replayed intervals of a file, with the limits by ``algorithm`` if one is given."""
    if algorithm is None and parameters:
        raise InvalidValueError("parameter", ", ".join(parameters), "means nothing without --algorithm")
    return replay(read(path), None if algorithm is None else PolicyChoice(algorithm, dict(parameters)))


def replayed(path: Path, algorithm: str | None, parameters: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the result of a replay: whether it equals the recording, and the differences from ``algorithm``.

    Raises InvalidValueError for an unknown algorithm, bad parameters and parameters without an algorithm.
    """
    intervals = list(_replayed_rows(path, algorithm, parameters or {}))
    differing = [number for number, interval in enumerate(intervals) if not interval.same]
    rows = [
        {
            "vlan": row.vlan_vid,
            "from": row.sender,
            "to": row.receiver,
            "intervals": row.intervals,
            "mean_bps": round(row.mean_bps),
            "alternative_mean_bps": round(row.alternative_mean_bps),
            "largest_bps": round(row.largest_bps),
        }
        for row in differences(intervals)
    ]
    return {
        "intervals": len(intervals),
        "seconds": round(intervals[-1].now_s - intervals[0].now_s, 3) if intervals else 0.0,
        "same": not differing,
        "first_other": differing[0] if differing else None,
        "algorithm": algorithm,
        "parameters": dict(parameters or {}),
        "differences": rows,
    }
