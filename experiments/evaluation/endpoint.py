"""Both ends of a scenario's sources on an emulated fabric: processes in VNs' namespaces. Standard library only.

``python endpoint.py receive|send JOB`` reads its job (JSON), prints ``ready``, and waits for a line on stdin: when the
traffic begins (ns of CLOCK_MONOTONIC, the same clock in every process). It ends by itself and leaves its report beside
the job. Choice: not iperf3, which cannot stay silent and go on, nor count by sender at the receiver.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any

PAYLOAD_BYTES = 1448  # of a full TCP segment with timestamps, and of our datagrams
READY = b"ready\n"
CONNECT_TIMEOUT_S = 20.0
GRACE_S = 1.0
TICK_S = 0.002
NOT_SENT_BYTES = 16_384  # so that a burst ends when its source stops, not when a full buffer is empty
TCP_NOTSENT_LOWAT = 25
RECEIVE_BUFFER_BYTES = 1 << 20
RETRANSMITTED_AT, SEGMENTS_AT = 100, 136  # offsets in Linux's struct tcp_info


def receive(job: dict[str, Any]) -> dict[str, Any]:
    """Take what comes for each source at its own port, and note the counts once an interval."""
    selector = selectors.DefaultSelector()
    count = [0] * len(job["sources"])
    for index, source in enumerate(job["sources"]):
        kind = socket.SOCK_DGRAM if source["protocol"] == "udp" else socket.SOCK_STREAM
        sock = socket.socket(socket.AF_INET, kind)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if kind == socket.SOCK_DGRAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        sock.bind((job["address"], source["port"]))
        sock.setblocking(False)
        if kind == socket.SOCK_STREAM:
            sock.listen()
        selector.register(sock, selectors.EVENT_READ, (index, kind == socket.SOCK_STREAM))
    with contextlib.suppress(PermissionError):
        os.nice(-5)  # late samples blur the series
    start_s = wait_for_start()
    rows: list[list[int]] = []
    buffer = bytearray(1 << 18)
    for interval in range(job["intervals"] + 1):
        take_until(start_s + interval * job["interval_s"], selector, count, buffer)
        rows.append([time.monotonic_ns() - round(start_s * 1e9), *received(job["interface"]), *count])
    take_until(time.monotonic() + GRACE_S, selector, count, buffer)
    return {"rows": rows, "total": count}


def take_until(end_s: float, selector: selectors.BaseSelector, count: list[int], buffer: bytearray) -> None:
    """Count payload until then."""
    while (left_s := end_s - time.monotonic()) > 0:
        for key, _ in selector.select(left_s):
            index, listening = key.data
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if listening:
                connection, _ = sock.accept()
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ, (index, False))
                continue
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                got = sock.recv_into(buffer)
                count[index] += got
                if not got and sock.type == socket.SOCK_STREAM:
                    selector.unregister(sock)
                    sock.close()


def received(interface: str) -> tuple[int, int]:
    """Return the bytes, as tagged frames on the wire, and the packets that an interface of this namespace received."""
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == interface:
            octets, packets = numbers.split()[:2]
            return int(octets) + 4 * int(packets), int(packets)
    raise RuntimeError(f"no interface {interface} in this namespace")


def send(job: dict[str, Any]) -> dict[str, Any]:
    """Send what each source has to, in a thread for each."""
    reports: list[dict[str, Any]] = [{} for _ in job["sources"]]
    sockets = [open_socket(job, source) for source in job["sources"]]
    start_s = wait_for_start()
    threads = []
    for source, sock, report in zip(job["sources"], sockets, reports, strict=True):
        work = send_udp if source["protocol"] == "udp" else send_tcp
        thread = threading.Thread(target=work, args=(sock, source, start_s, start_s + job["duration_s"], report))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    return {"sources": reports}


def open_socket(job: dict[str, Any], source: dict[str, Any]) -> socket.socket:
    """Return a socket that is connected with its receiver; for UDP one small datagram has asked for the way."""
    address = (source["address"], source["port"])
    if source["protocol"] == "udp":
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((job["address"], 0))
        sock.connect(address)
        sock.send(b"?")
        return sock
    deadline_s = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, source["congestion_control"].encode())
        sock.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(CONNECT_TIMEOUT_S)
        try:
            sock.bind((job["address"], 0))
            sock.connect(address)
        except OSError:
            sock.close()
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)
            continue
        return sock


def send_udp(sock: socket.socket, source: dict[str, Any], start_s: float, end_s: float, report: dict[str, Any]) -> None:
    """Send datagrams at the source's rate in each of its spans, whatever becomes of them."""
    datagram, per_s, sent = bytes(PAYLOAD_BYTES), source["payload_bps"] / (8 * PAYLOAD_BYTES), 0
    for begin, end in source["spans"]:
        sleep_until(start_s + begin)
        begun_s, stop_s, mine = start_s + begin, min(start_s + end, end_s), 0
        while (now_s := time.monotonic()) < stop_s:
            due = int((now_s - begun_s) * per_s) - mine
            for _ in range(due):
                with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                    sock.send(datagram)
            mine += due
            time.sleep(max(TICK_S, (mine + 1) / per_s - (time.monotonic() - begun_s)))
        sent += mine
    report["sent"] = sent


def send_tcp(sock: socket.socket, source: dict[str, Any], start_s: float, end_s: float, report: dict[str, Any]) -> None:
    """Send in each span: as much as TCP takes, at the application's rate, or a number of bytes."""
    report["transfers"] = transfers = []
    for begin, end in source["spans"]:
        sleep_until(start_s + begin)
        stop_s = min(start_s + end, end_s)
        if source["octets"] is not None:
            done_s = transfer(sock, source["octets"], end_s)
            transfers.append([begin, None if done_s is None else done_s - start_s])
        elif source["payload_bps"] is None:
            write_until(sock, stop_s)
        else:
            write_at_rate(sock, source["payload_bps"] / 8, start_s + begin, stop_s)
    information = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    report["lost"] = int.from_bytes(information[RETRANSMITTED_AT : RETRANSMITTED_AT + 4], sys.byteorder)
    report["sent"] = int.from_bytes(information[SEGMENTS_AT : SEGMENTS_AT + 4], sys.byteorder)


def write_until(sock: socket.socket, stop_s: float) -> None:
    """Write as much as TCP takes."""
    block = bytes(PAYLOAD_BYTES * 8)
    while (left_s := stop_s - time.monotonic()) > 0:
        sock.settimeout(left_s)
        with contextlib.suppress(TimeoutError):
            sock.send(block)


def write_at_rate(sock: socket.socket, octets_per_s: float, begin_s: float, stop_s: float) -> None:
    """Write at a rate; what TCP does not take at once is not made up for beyond a buffer's worth."""
    written = 0.0
    while (now_s := time.monotonic()) < stop_s:
        due = (now_s - begin_s) * octets_per_s - written
        if due > 90 * PAYLOAD_BYTES:
            written += due - 90 * PAYLOAD_BYTES
            due = 90 * PAYLOAD_BYTES
        if due >= PAYLOAD_BYTES:
            sock.settimeout(max(stop_s - now_s, TICK_S))
            with contextlib.suppress(TimeoutError):
                written += sock.send(bytes(int(due // PAYLOAD_BYTES) * PAYLOAD_BYTES))
        time.sleep(TICK_S)


def transfer(sock: socket.socket, octets: int, end_s: float) -> float | None:
    """Write so many bytes; return when the last of them was acknowledged, None if it was not in time."""
    block, left = bytes(PAYLOAD_BYTES * 8), octets
    while left and (left_s := end_s - time.monotonic()) > 0:
        sock.settimeout(left_s)
        with contextlib.suppress(TimeoutError):
            left -= sock.send(block[: min(left, len(block))])
    waiting = array.array("i", [0])
    while not left and time.monotonic() < end_s:
        fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, waiting)
        if waiting[0] == 0:
            return time.monotonic()
        time.sleep(TICK_S)
    return None


def sleep_until(at_s: float) -> None:
    """Sleep until then."""
    while (left_s := at_s - time.monotonic()) > 0:
        time.sleep(left_s)


def wait_for_start() -> float:
    """Say that everything is ready; return when the traffic begins, in seconds."""
    os.write(sys.stdout.fileno(), READY)
    line = sys.stdin.readline()
    if not line.strip():
        raise RuntimeError("no time to begin was given")
    return int(line) / 1e9


def main(arguments: list[str]) -> int:
    """Do a job, and be ended by a signal should it take far too long."""
    role, path = arguments
    job = json.loads(Path(path).read_text())
    signal.alarm(round(job["duration_s"]) + 90)
    report = {"receive": receive, "send": send}[role](job)
    Path(path).with_suffix(".report.json").write_text(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
