"""Databases of switches that connect to the controller, which switches behind NAT need (``ovs-vsctl set-manager``).

A connection stays as long as the switch keeps it. Its own thread (under the hub: a greenlet) answers the server's
probes and executes jobs. The dpids of the database's bridges identify the switch.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from apps.ovsdb.ovsdb_client import (
    MAX_REPLY_BYTES,
    MAX_UNASKED_BYTES,
    TIMEOUT_S,
    OvsdbError,
    OvsdbSession,
    naming,
    write_queues,
)
from apps.runtime.connection.connection_limits import ConnectionLimits, LogRateLimiter
from apps.runtime.retrying_listener import RetryingListener, listening_address
from apps.runtime.tls import RenewableContext
from controller.config.value_types import ovsdb_endpoint
from controller.errors import DetsError, InvalidValueError, ProtocolError
from controller.switch.desired_queues import PortQueues

MAX_CONNECTIONS, MAX_UNKNOWN, MAX_UNKNOWN_OF_HOST = 4096, 32, 16
CONNECTIONS_PER_S = 100.0
UNKNOWN_S, KNOWN_S = 2.0, 15.0
"""intervals of reading a database's bridges: while none belongs to a configured switch, and after that"""
PROBE_TIMEOUT_S = 2.0
PACE_S = 0.05
"""pause after unrequested messages: a server's probes are seconds apart"""
_BRIDGES = [{"op": "select", "table": "Bridge", "where": [], "columns": ["datapath_id"]}]
LOG = logging.getLogger("dets.queues")


class OvsdbListener:
    """Listens at ``address`` (``ptcp:PORT:HOST``, or ``pssl:`` with ``tls``); writes queues as OvsdbQueueWriter does.

    ``dpids`` are the switches whose databases may connect. ``on_switch`` is called when one of these has connected. If
    several databases have a bridge with the same dpid, the first one is used as long as it replies. Raises OvsdbError
    if the address cannot be listened on.
    """

    def __init__(
        self,
        address: str,
        tls: RenewableContext | None,
        on_switch: Callable[[], None],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        endpoint = ovsdb_endpoint(address)
        assert endpoint is not None
        self.address, self.dpids, self.writes = address, frozenset[int](), 0
        self._tls, self._on_switch, self._timeout_s = tls, on_switch, timeout_s
        self._connection_of: dict[int, _Connection] = {}
        self._connections: set[_Connection] = set()
        self._limits: ConnectionLimits[_Connection] = ConnectionLimits(
            MAX_CONNECTIONS, MAX_UNKNOWN, MAX_UNKNOWN_OF_HOST
        )
        self._log_limiter = LogRateLimiter(time.monotonic)
        with naming(address, timeout_s):
            family, bound = listening_address(*endpoint)
            self._listener = socket.create_server(bound, family=family)
        LOG.info("listens for databases of switches at %s", address)
        threading.Thread(target=self._accept, daemon=True).start()

    def apply(self, dpid: int, desired: Mapping[str, PortQueues]) -> list[str]:
        """Install the desired queues of a switch, by interface name, as ``OvsdbQueueWriter.apply`` does.

        Raises OvsdbError also while no database of the switch is connected.
        """
        connection = self._connection_of.get(dpid)
        if connection is None:
            raise OvsdbError(self.address, f"no database with a bridge of dpid {dpid:016x} has connected")
        with naming(self.address, self._timeout_s):
            problems, wrote = connection.run(lambda session: write_queues(session, dpid, desired), self._timeout_s)
        self.writes += wrote
        return list(problems)

    def remove(self, dpid: int) -> list[str]:
        """Remove the controller's queues from all ports of a switch; returns and raises what ``apply`` does."""
        return self.apply(dpid, {})

    def close(self) -> None:
        """Stop listening, and close all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._connections):
            connection.end()

    def _accept(self) -> None:
        """Accept connections, each served in a thread, until the listener is closed."""
        listener = RetryingListener(self._listener, "OVSDB", time.sleep)
        with suppress(OSError):  # already closed
            while True:
                sock, address = listener.accept()
                connection = _Connection(sock, address)
                self._connections.add(connection)
                for evicted in list(self._limits.admit(connection, address[0])):
                    evicted.end()
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()
                time.sleep(1.0 / CONNECTIONS_PER_S)

    def _serve(self, connection: _Connection) -> None:
        """Serve one incoming connection until it ends; identify its switch at the beginning and periodically."""
        try:
            connection.begin(self._tls, self._timeout_s)
            while True:
                identify_s = time.monotonic() + (KNOWN_S if self._identify(connection) else UNKNOWN_S)
                while (remaining_s := identify_s - time.monotonic()) > 0.0:
                    connection.serve(remaining_s, self._timeout_s)
        except (OSError, DetsError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            if not connection.ended and self._log_limiter.due(connection.address[0]):
                LOG.warning("OVSDB %s: connection of %s ends: %s", self.address, connection.address, error)
        finally:
            connection.close()
            self._limits.leave(connection)
            self._connections.discard(connection)
            for dpid in [dpid for dpid, other in self._connection_of.items() if other is connection]:
                del self._connection_of[dpid]

    def _identify(self, connection: _Connection) -> bool:
        """Read a database's bridges, and use the connection for their switches; return whether any is configured.

        Raises ProtocolError if another database of such a switch is connected and replies.
        """
        connection.session.begin(self._timeout_s)
        rows = connection.session.transact(_BRIDGES)[0]["rows"]
        bridges = {int(row["datapath_id"], 16) for row in rows if isinstance(row["datapath_id"], str)}
        configured = bridges & self.dpids
        new = {dpid for dpid in configured if self._connection_of.get(dpid) is not connection}
        for dpid in new:
            other = self._connection_of.get(dpid)
            if other is not None and other.answers(PROBE_TIMEOUT_S):
                raise ProtocolError(f"transact: switch {dpid:016x} has another database already, which answers")
        if new:
            self._connection_of |= dict.fromkeys(new, connection)
            connection.session.max_reply_bytes = MAX_REPLY_BYTES
            self._limits.on_handshake_done(connection)
            self._limits.mark_controlled(connection)
            self._on_switch()
        return bool(configured)


class _Job:
    """A job for a connection's thread: ``work`` gets the session, then ``done`` is set with ``result`` or ``error``."""

    def __init__(self, work: Callable[[OvsdbSession], Any], timeout_s: float) -> None:
        self.work, self.timeout_s = work, timeout_s
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


class _Connection:
    """A connected database. One thread uses its socket; other threads give that thread jobs."""

    def __init__(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        self.address, self.ended = address, False
        self._sock = sock
        self._jobs: deque[_Job] = deque()
        self._waker, self._woken = socket.socketpair()  # a byte into ``_waker`` wakes the thread for a job
        self._waker.setblocking(False)

    def begin(self, tls: RenewableContext | None, timeout_s: float) -> None:
        """Do the TLS handshake, if any. Raises OSError."""
        self._sock.settimeout(timeout_s)
        if tls is not None:
            self._sock = tls.current.wrap_socket(self._sock, server_side=True)
        self.session = OvsdbSession(self._sock, MAX_UNASKED_BYTES)

    def serve(self, duration_s: float, timeout_s: float) -> None:
        """Wait at most ``duration_s`` for messages or jobs, and process those that are there."""
        # Bytes that TLS has decrypted already do not make the socket readable.
        has_pending = isinstance(self._sock, ssl.SSLSocket) and self._sock.pending()
        ready = [self._sock] if has_pending else select.select([self._sock, self._woken], [], [], duration_s)[0]
        if self._woken in ready:
            self._woken.recv(4096)
            while self._jobs:
                self._do(self._jobs.popleft())
        elif ready:
            self.session.begin(timeout_s)
            self.session.answer_probes()
            time.sleep(PACE_S)

    def _do(self, job: _Job) -> None:
        """Execute a job; raise its error again, which ends the connection, unless only the job's values are invalid."""
        try:
            self.session.begin(job.timeout_s)
            job.result = job.work(self.session)
        except InvalidValueError as error:  # the values to write are invalid; the connection is good
            job.error = error
        except BaseException as error:
            job.error = error
            raise
        finally:
            job.done.set()

    def run(self, work: Callable[[OvsdbSession], Any], timeout_s: float) -> Any:
        """Let the connection's thread execute ``work``; return its result or raise its error.

        Raises TimeoutError or ConnectionResetError if the thread does not execute it.
        """
        job = _Job(work, timeout_s)
        self._jobs.append(job)
        if self.ended:
            raise ConnectionResetError("the server closed the connection")
        with suppress(BlockingIOError):  # already woken
            self._waker.send(b"j")
        if not job.done.wait(2 * timeout_s):  # the job before it may take the first half
            with suppress(ValueError):  # it has begun
                self._jobs.remove(job)
            raise TimeoutError
        if job.error is not None:
            raise job.error
        return job.result

    def answers(self, timeout_s: float) -> bool:
        """Return whether the server answers a probe."""
        try:
            self.run(OvsdbSession.probe, timeout_s)
        except (OSError, DetsError):
            return False
        return True

    def end(self) -> None:
        """Let the connection's thread end."""
        self.ended = True
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the sockets, from the connection's thread; waiting jobs get an error."""
        self.ended = True
        for sock in (self._sock, self._waker, self._woken):
            sock.close()
        while self._jobs:
            job = self._jobs.popleft()
            job.error = ConnectionResetError("the server closed the connection")
            job.done.set()
