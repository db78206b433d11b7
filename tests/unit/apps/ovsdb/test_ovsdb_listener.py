"""Jobs for the thread of a switch's database."""

from __future__ import annotations

import socket

import pytest

from apps.ovsdb.ovsdb_listener import _Connection


def test_a_job_that_nobody_waits_for_any_more_is_not_done() -> None:
    """Its queues may no longer be the desired ones."""
    controllers_end, databases_end = socket.socketpair()
    connection = _Connection(controllers_end, ("192.0.2.1", 6640))
    connection.begin(None, 1.0)
    done: list[str] = []
    with pytest.raises(TimeoutError):
        connection.run(lambda _session: done.append("late"), 0.01)
    connection.serve(1.0, 1.0)
    assert done == []
    connection.close()
    databases_end.close()
