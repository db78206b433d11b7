"""Both ends of a source over loopback: many flows as one, and web requests with their answers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

import pytest

from experiments.ovs import traffic_endpoint

SOURCE = {
    "protocol": "tcp", "address": "127.0.0.1", "payload_bps": None, "spans": [[0.0, 0.4]], "octets": None, "flows": 1,
    "sessions": None, "congestion_control": "reno",
}  # fmt: skip


def both_ends(tmp_path, **changes):
    """Run a source for half a second; return the reports of both ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = {**SOURCE, "port": port, **changes}
    job = {
        "address": "127.0.0.1", "interface": "lo", "duration_s": 0.5, "intervals": 9, "interval_s": 0.055,
        "sources": [source],
    }  # fmt: skip
    processes = []
    for role in ("receive", "send"):
        path = tmp_path / f"{role}.json"
        path.write_text(json.dumps(job))
        command = [sys.executable, traffic_endpoint.__file__, role, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout.readline() == traffic_endpoint.READY
        processes.append(process)
    begin = f"{time.monotonic_ns() + 100_000_000}\n".encode()
    for process in processes:
        process.stdin.write(begin)
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=30)
        assert process.returncode == 0
    return [json.loads((tmp_path / f"{role}.report.json").read_text()) for role in ("receive", "send")]


@pytest.mark.parametrize("flows", [1, 5])
def test_what_all_flows_bring_counts_for_their_source(tmp_path, flows):
    received, sent = both_ends(tmp_path, flows=flows, payload_bps=8e6 / flows)
    assert len(received["rows"]) == 10
    assert received["total"][0] >= 300_000  # a megabyte a second for 0.4 s, in whole segments
    assert sent["sources"][0]["sent"] >= flows


def test_sessions_of_web_requests_are_answered_and_timed_at_the_client(tmp_path):
    sessions = [[0.0, [500, 200_000]], [0.05, [5_000]], [0.06, [1]], [0.45, [100]], [9.0, [5]]]
    received, sent = both_ends(tmp_path, flows=2, sessions=sessions)
    answered = [(wanted_s, done_s) for wanted_s, done_s in received["requests"]["0"] if done_s is not None]
    assert received["total"][0] == 500 + 200_000 + 5_000 + 1 + 100
    assert len(answered) == len(received["requests"]["0"]) == 5  # the session after the end is none
    assert all(0 <= wanted_s < done_s < 0.55 for wanted_s, done_s in answered)
    assert sent["sources"][0]["transfers"] == []


def test_a_session_without_a_free_connection_waits_and_its_time_counts():
    client = traffic_endpoint.Client([(0.1, [5, 7]), (0.2, [3]), (0.3, [1])])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client._free.append(ours)
        client.start_s = 10.0
        client.begin_due(10.0)
        assert client.next_s() == pytest.approx(10.1)
        client.begin_due(10.25)
        assert client.next_s() == float("inf")  # no connection is free
        assert theirs.recv(100) == (5).to_bytes(8, "big")
        client.took(ours, 4, 10.3)
        client.took(ours, 1, 10.4)
        assert theirs.recv(100) == (7).to_bytes(8, "big")
        client.took(ours, 7, 10.5)
        assert client.answered_s == [pytest.approx((0.1, 0.4)), pytest.approx((0.4, 0.5))]
        client.begin_due(10.6)
        assert client.all_rows(0.25)[2:] == [(pytest.approx(0.2), None)]
        assert client.all_rows(0.5)[2:] == [(pytest.approx(0.2), None), (0.3, None)]
