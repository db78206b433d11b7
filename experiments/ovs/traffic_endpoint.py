"""Both ends of a scenario's sources on an emulated fabric: processes in VNs' namespaces. Standard library only.

``python traffic_endpoint.py receive|send JOB`` reads its job (JSON), prints ``ready``, and waits for a line on stdin:
the start of the traffic (ns of CLOCK_MONOTONIC, the same clock in every process). It ends at the end of the job and
writes its report beside the job.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import math
import os
import selectors
import signal
import socket
import sys
import termios
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

PAYLOAD_BYTES = 1448  # of a full TCP segment with timestamps, and of each datagram
READY = b"ready\n"
CONNECT_TIMEOUT_S = 20.0
GRACE_S = 1.0
TICK_S = 0.002
NOT_SENT_BYTES = 16_384  # so that a burst ends when its source stops, not when a full buffer has drained
TCP_NOTSENT_LOWAT = 25
RECEIVE_BUFFER_BYTES = 1 << 20
REQUEST_BYTES = 8
RETRANSMITTED_AT, SEGMENTS_AT = 100, 136  # offsets in Linux's struct tcp_info


class Client:
    """The client of a web server: makes requests on the connections that the server opened, and times the answers.

    A session takes a free connection, or waits for one. A request is the number of requested bytes, as 8 bytes.
    """

    def __init__(self, sessions: list[Any]) -> None:
        self._waiting = deque(sessions)
        self._free: deque[socket.socket] = deque()
        self._busy: dict[
            socket.socket, tuple[float, int, deque[int]]
        ] = {}  # time of the request, bytes missing, answers left
        self.start_s = 0.0
        self.answered_s: list[tuple[float, float | None]] = []  # of each request: when it was made, and answered

    def connected(self, connection: socket.socket) -> None:
        """Add a connection."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._free.append(connection)

    def next_s(self) -> float:
        """Return when the next session is due, on the monotonic clock."""
        return self.start_s + self._waiting[0][0] if self._free and self._waiting else math.inf

    def begin_due(self, now_s: float) -> None:
        """Begin the sessions that are due and find a free connection."""
        while self.next_s() <= now_s:
            begin_s, answers = self._waiting.popleft()
            self._ask(self._free.popleft(), self.start_s + begin_s, deque(answers))

    def took(self, connection: socket.socket, octets: int, now_s: float) -> None:
        """Count bytes of an answer; after its last one make the next request."""
        wanted_s, left, answers = self._busy[connection]
        if left > octets:
            self._busy[connection] = (wanted_s, left - octets, answers)
            return
        self.answered_s.append((wanted_s - self.start_s, now_s - self.start_s))
        del self._busy[connection]
        if answers:
            self._ask(connection, now_s, answers)
        else:
            self._free.append(connection)

    def all_rows(self, end_s: float) -> list[tuple[float, float | None]]:
        """Return (requested, answered) of every request, None without an answer; a waiting session counts as one."""
        open_s = [wanted_s - self.start_s for wanted_s, _, _ in self._busy.values()]
        open_s += [begin_s for begin_s, _ in self._waiting if begin_s < end_s]
        return [*self.answered_s, *((at_s, None) for at_s in open_s)]

    def _ask(self, connection: socket.socket, wanted_s: float, answers: deque[int]) -> None:
        octets = answers.popleft()
        self._busy[connection] = (wanted_s, octets, answers)
        connection.send(octets.to_bytes(REQUEST_BYTES, "big"))  # the buffer is empty: it takes all of it


def receive(job: dict[str, Any]) -> dict[str, Any]:
    """Receive from each source at its own port, and record the counts once an interval."""
    selector = selectors.DefaultSelector()
    count = [0] * len(job["sources"])
    clients = {
        n: Client(source["sessions"]) for n, source in enumerate(job["sources"]) if source["sessions"] is not None
    }
    for index, source in enumerate(job["sources"]):
        kind = socket.SOCK_DGRAM if source["protocol"] == "udp" else socket.SOCK_STREAM
        sock = socket.socket(socket.AF_INET, kind)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if kind == socket.SOCK_DGRAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        sock.bind((job["address"], source["port"]))
        sock.setblocking(False)
        if kind == socket.SOCK_STREAM:
            sock.listen(source["flows"])
        selector.register(sock, selectors.EVENT_READ, (index, kind == socket.SOCK_STREAM))
    with contextlib.suppress(PermissionError):
        os.nice(-5)  # late samples blur the series
    start_s = wait_for_start()
    for client in clients.values():
        client.start_s = start_s
    rows: list[list[int]] = []
    buffer = bytearray(1 << 18)
    for interval in range(job["intervals"] + 1):
        count_until(start_s + interval * job["interval_s"], selector, count, buffer, clients)
        # Time since the start in ns, bytes and packets of the interface, and the payload of each source in bytes.
        rows.append([time.monotonic_ns() - round(start_s * 1e9), *received(job["interface"]), *count])
    answers = {str(index): client.all_rows(job["duration_s"]) for index, client in clients.items()}
    count_until(time.monotonic() + GRACE_S, selector, count, buffer, {})
    return {"rows": rows, "total": count, "requests": answers}


def count_until(
    end_s: float, selector: selectors.BaseSelector, count: list[int], buffer: bytearray, clients: dict[int, Client]
) -> None:
    """Count the received payload of each source in ``count``, (sources,) in bytes, until ``end_s``.

    ``clients``, by the number of their source, make their requests meanwhile. ``buffer`` is scratch space.
    """
    while (now_s := time.monotonic()) < end_s:
        for client in clients.values():
            client.begin_due(now_s)
        next_s = min([end_s, *(client.next_s() for client in clients.values())])
        for key, _ in selector.select(max(next_s - time.monotonic(), 0.0)):
            index, is_listening = key.data
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            web_client = clients.get(index)
            if is_listening:
                connection, _ = sock.accept()
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ, (index, False))
                if web_client is not None:
                    web_client.connected(connection)
                continue
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                received_bytes = sock.recv_into(buffer)
                count[index] += received_bytes
                if received_bytes and web_client is not None:
                    web_client.took(sock, received_bytes, time.monotonic())
                if not received_bytes and sock.type == socket.SOCK_STREAM:
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
    """Send the traffic of each source, in a thread for each."""
    flows = [(source, open_socket(job, source)) for source in job["sources"] for _ in range(source["flows"])]
    reports: list[dict[str, Any]] = [{} for _ in flows]
    start_s = max(wait_for_start(), time.monotonic())  # traffic that was due before is not sent later
    threads = []
    for (source, sock), report in zip(flows, reports, strict=True):
        sender = send_udp if source["protocol"] == "udp" else send_tcp if source["sessions"] is None else serve
        thread = threading.Thread(target=sender, args=(sock, source, start_s, start_s + job["duration_s"], report))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    by_flow = iter(reports)
    return {"sources": [summed([next(by_flow) for _ in range(source["flows"])]) for source in job["sources"]]}


def summed(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the reports of a source's flows as one."""
    sums: dict[str, Any] = {key: sum(host[key] for host in reports) for key in ("sent", "lost") if key in reports[0]}
    return {**sums, "transfers": [row for report in reports for row in report.get("transfers", [])]}


def open_socket(job: dict[str, Any], source: dict[str, Any]) -> socket.socket:
    """Return a socket that is connected with its receiver; for UDP after one small datagram, for ARP."""
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
    """Send datagrams at the source's rate in each of its spans; datagrams that find no buffer count as sent."""
    datagram, datagrams_per_s, sent = bytes(PAYLOAD_BYTES), source["payload_bps"] / (8 * PAYLOAD_BYTES), 0
    for begin, end in source["spans"]:
        sleep_until(start_s + begin)
        span_start_s, stop_s, span_sent = start_s + begin, min(start_s + end, end_s), 0
        while (now_s := time.monotonic()) < stop_s:
            due = int((now_s - span_start_s) * datagrams_per_s) - span_sent
            for _ in range(due):
                with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                    sock.send(datagram)
            span_sent += due
            time.sleep(max(TICK_S, (span_sent + 1) / datagrams_per_s - (time.monotonic() - span_start_s)))
        sent += span_sent
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
    note_segments(sock, report)


def serve(sock: socket.socket, source: dict[str, Any], start_s: float, end_s: float, report: dict[str, Any]) -> None:
    """Answer web requests until the end: each is the number of requested bytes."""
    block, request = bytes(PAYLOAD_BYTES * 8), b""
    while (remaining_s := end_s - time.monotonic()) > 0:
        sock.settimeout(remaining_s)
        with contextlib.suppress(TimeoutError):
            part = sock.recv(REQUEST_BYTES - len(request))
            if not part:
                break
            request += part
        if len(request) == REQUEST_BYTES:
            unsent_bytes, request = int.from_bytes(request, "big"), b""
            while unsent_bytes and (remaining_s := end_s - time.monotonic()) > 0:
                sock.settimeout(remaining_s)
                with contextlib.suppress(TimeoutError):
                    unsent_bytes -= sock.send(block[: min(unsent_bytes, len(block))])
    note_segments(sock, report)


def note_segments(sock: socket.socket, report: dict[str, Any]) -> None:
    """Record how many segments a connection has sent, and retransmitted."""
    information = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    report["lost"] = int.from_bytes(information[RETRANSMITTED_AT : RETRANSMITTED_AT + 4], sys.byteorder)
    report["sent"] = int.from_bytes(information[SEGMENTS_AT : SEGMENTS_AT + 4], sys.byteorder)


def write_until(sock: socket.socket, stop_s: float) -> None:
    """Write as much as TCP takes until ``stop_s``, seconds of CLOCK_MONOTONIC."""
    block = bytes(PAYLOAD_BYTES * 8)
    while (remaining_s := stop_s - time.monotonic()) > 0:
        sock.settimeout(remaining_s)
        with contextlib.suppress(TimeoutError):
            sock.send(block)


def write_at_rate(sock: socket.socket, octets_per_s: float, begin_s: float, stop_s: float) -> None:
    """Write at a rate until ``stop_s``, like an application whose data TCP takes when it can.

    Of the data that TCP does not take at once, at most a send buffer (90 segments) is written later.
    """
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
    """Write ``octets`` bytes; return when the last of them was acknowledged, None if not in time."""
    block, unsent_bytes = bytes(PAYLOAD_BYTES * 8), octets
    while unsent_bytes and (remaining_s := end_s - time.monotonic()) > 0:
        sock.settimeout(remaining_s)
        with contextlib.suppress(TimeoutError):
            unsent_bytes -= sock.send(block[: min(unsent_bytes, len(block))])
    unacknowledged = array.array("i", [0])
    while not unsent_bytes and time.monotonic() < end_s:
        fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, unacknowledged)
        if unacknowledged[0] == 0:
            return time.monotonic()
        time.sleep(TICK_S)
    return None


def sleep_until(at_s: float) -> None:
    """Sleep until a time of the monotonic clock, in seconds."""
    while (remaining_s := at_s - time.monotonic()) > 0:
        time.sleep(remaining_s)


def wait_for_start() -> float:
    """Print that the process is ready; return the start of the traffic, in seconds."""
    os.write(sys.stdout.fileno(), READY)
    line = sys.stdin.readline()
    if not line.strip():
        raise RuntimeError("no start time was given")
    return int(line) / 1e9


def main(arguments: list[str]) -> int:
    """Do a job; ``arguments`` are ``receive`` or ``send``, and the job's path. Return the exit status.

    SIGALRM ends the process if the job takes far too long.
    """
    role, path = arguments
    job = json.loads(Path(path).read_text())
    signal.alarm(round(job["duration_s"]) + 90)
    report = {"receive": receive, "send": send}[role](job)
    Path(path).with_suffix(".report.json").write_text(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
