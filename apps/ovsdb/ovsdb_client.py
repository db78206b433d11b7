"""Writes the receiving queues of switches into their Open vSwitch databases (RFC 7047, OVSDB management protocol).

    writer = OvsdbQueueWriter("unix:/run/openvswitch/db.sock")
    problems = writer.apply(dpid, {"s1-eth1": PortQueues(...)})

Each call connects, reads the few relevant tables, writes the differences in one transaction, and closes the connection.
Only people change limits: a permanent connection, with probes, reconnects and a copy of the database, would have no
benefit. Only sockets of the standard library are used: where eventlet has patched them, the event loop goes on while
they wait.

Choice: no OVSDB library. ovsdbapp blocks the hub for 160 to 260 ms while it writes 48 ports of 20 queues; this module,
for 7 to 18 ms (docs/adr/0003-meters-and-queues.md).
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from apps.runtime.tls import RenewableContext
from controller.config.value_types import check_ovsdb, parse_address
from controller.errors import DetsError, InvalidValueError, ProtocolError
from controller.switch.desired_queues import PortQueues
from controller.switch.ovsdb_queues import DATABASE, Operation, plan_rows, read_operations, read_tables

TIMEOUT_S = 5.0
ATTEMPTS = 5
MAX_REPLY_BYTES = 8 << 20  # the rows of 30,000 queues
_MAX_REASON_LENGTH = 200
_MAX_PARTS = 500_000  # lists and objects in a reply, which are created all at once; 30,000 rows have about so many
_CHUNK_BYTES = 1 << 16
MAX_UNASKED_BYTES = 1 << 16
_MAX_OTHERS = 100  # unrequested messages of one connection; a server's probes are seconds apart
_TOKEN = re.compile(rb'["{}]')
# A string up to its end. A character after a backslash is escaped; a backslash at the end waits for it.
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
# The error of a transaction's ``wait`` if a row changed between reading and writing.
_TIMED_OUT = "timed out"


class OvsdbError(DetsError):
    """The database at ``address`` did not execute a request; ``reason`` is short. A retry may help."""

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        self.reason = " ".join(reason.split())
        if len(self.reason) > _MAX_REASON_LENGTH:
            self.reason = self.reason[: _MAX_REASON_LENGTH - 3] + "..."
        super().__init__(f"OVSDB {address}: {self.reason}")


class OvsdbQueueWriter:
    """Writes queues into one database, for any number of its bridges. One call at a time; further calls wait.

    ``address`` is ``unix:/PATH``, ``tcp:HOST:PORT`` or ``ssl:HOST:PORT`` (otherwise InvalidValueError). ``tls`` has the
    certificates for ``ssl:``; without it the server needs a certificate for its host name from the system's CAs.
    """

    def __init__(self, address: str, *, tls: RenewableContext | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self.address = check_ovsdb(address)
        self._tls = tls
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._closed = False
        self.writes = 0
        """How many transactions have changed rows."""

    def apply(self, dpid: int, desired: Mapping[str, PortQueues]) -> list[str]:
        """Install the desired queues of a switch, by interface name, in one transaction, if they differ.

        The controller's queues on other ports are removed, and so are rows of its earlier runs. Returns the problems of
        single ports as texts ``PORT: REASON`` (a foreign QoS row, no such port); these ports are not changed.

        Raises OvsdbError if the database is unreachable, too slow, rejects the transaction, or has no bridge with this
        dpid, as for a moment after a restart of ovs-vswitchd. Then nothing has changed; only after "no answer" the
        transaction may have been executed.
        """
        with self._lock:
            if self._closed:
                raise OvsdbError(self.address, "this writer is closed")
            with naming(self.address, self._timeout_s):
                sock = _connect(self.address, self._tls, self._timeout_s)
                try:
                    session = OvsdbSession(sock)
                    session.begin(self._timeout_s)
                    problems, wrote = write_queues(session, dpid, desired)
                finally:
                    sock.close()
            self.writes += wrote
            return problems

    def remove(self, dpid: int) -> list[str]:
        """Remove the controller's queues from all ports of a switch; returns and raises what ``apply`` does."""
        return self.apply(dpid, {})

    def close(self) -> None:
        """Reject further calls, after the present one has ended."""
        with self._lock:
            self._closed = True


def write_queues(session: OvsdbSession, dpid: int, desired: Mapping[str, PortQueues]) -> tuple[list[str], bool]:
    """Write queues as ``OvsdbQueueWriter.apply`` does; return the problems, and whether rows have changed.

    The transaction is repeated if another program changes the same rows between reading and writing. Raises OSError,
    ProtocolError, InvalidValueError, and any error of reading rows that do not have OVSDB's form.
    """
    for _ in range(ATTEMPTS):
        rows = session.transact(read_operations())
        _let_others_run()
        plan = plan_rows(read_tables(rows), dpid, desired)
        if not plan.operations:
            return plan.problems, False
        _let_others_run()
        results = session.transact(plan.operations)
        error = next((result for result in results if result and result.get("error")), None)
        if error is None:
            return plan.problems, True
        if error["error"] != _TIMED_OUT:
            raise ProtocolError(f"transact: {error['error']}: {error.get('details', '')}")
    raise ProtocolError(f"transact: others changed the same rows {ATTEMPTS} times meanwhile")


@contextmanager
def naming(address: str, timeout_s: float) -> Iterator[None]:
    """Turn the errors of a connection to a database into OvsdbError with its ``address``."""
    try:
        yield
    except TimeoutError as error:
        raise OvsdbError(address, f"no answer within {timeout_s:g} s") from error
    except (OSError, ProtocolError, InvalidValueError) as error:
        raise OvsdbError(address, _reason(error)) from error
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise OvsdbError(address, f"answers in a form that is not OVSDB's: {error!r}") from error


class OvsdbSession:
    """Transactions on one connection. Call ``begin`` first: it sets the deadline of the calls that follow."""

    def __init__(self, sock: socket.socket, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        self._socket, self.max_reply_bytes = sock, max_reply_bytes
        self._deadline_s = 0.0
        self._buffer = bytearray()
        self._scanner = _JsonMessage()  # of the first message in the buffer
        self._last_id = self._unrequested = 0

    def begin(self, timeout_s: float) -> None:
        """Set the deadline of the following calls to ``timeout_s`` from now."""
        self._deadline_s = time.monotonic() + timeout_s
        self._unrequested = 0

    def answer_probes(self) -> None:
        """Read once, and answer the server's probes; raise ProtocolError for more than a server may send."""
        if not self._fill():
            raise ConnectionResetError("the server closed the connection")
        while (message := self._next()) is not None:
            self._handle_unrequested(message)
        if len(self._buffer) > MAX_UNASKED_BYTES:
            raise ProtocolError(f"message: is longer than {MAX_UNASKED_BYTES} bytes, and nobody has asked for it")

    def probe(self) -> None:
        """Raise OSError or ProtocolError unless the server answers an echo (RFC 7047, section 4.1.11)."""
        self._request("echo", [])

    def transact(self, operations: list[Operation]) -> list[Any]:
        """Return the results of one transaction (RFC 7047, section 4.1.3), including errors of single operations.

        Raises OSError and ProtocolError.
        """
        return self._request("transact", [DATABASE, *operations])

    def _request(self, method: str, parameters: list[Any]) -> list[Any]:
        """Send a request and return its results; handle messages that arrive before the reply."""
        self._last_id += 1
        self._send({"method": method, "params": parameters, "id": self._last_id})
        while True:
            message = self._receive()
            if message.get("id") == self._last_id and message.get("method") is None:
                break
            self._handle_unrequested(message)
        if message.get("error") or not isinstance(message.get("result"), list):
            raise ProtocolError(f"{method}: {message.get('error') or 'the reply has no results'}")
        return list(message["result"])

    def _handle_unrequested(self, message: dict[str, Any]) -> None:
        """Answer an echo request, ignore any other message; raise ProtocolError if there are too many."""
        self._unrequested += 1
        if self._unrequested > _MAX_OTHERS:
            raise ProtocolError(f"message: more than {_MAX_OTHERS} that nobody has asked for")
        if message.get("method") == "echo":
            self._send({"result": message.get("params"), "error": None, "id": message.get("id")})

    def _send(self, message: object) -> None:
        """Send a message as JSON. Raises OSError, also for a timeout."""
        self._limit_time()
        self._socket.sendall(json.dumps(message, separators=(",", ":")).encode())

    def _receive(self) -> dict[str, Any]:
        """Return the next message, waiting for all of it."""
        while (message := self._next()) is None:
            if len(self._buffer) > self.max_reply_bytes:
                raise ProtocolError(f"message: is longer than {self.max_reply_bytes} bytes")
            if not self._fill():
                raise ConnectionResetError("the server closed the connection")
        return message

    def _next(self) -> dict[str, Any] | None:
        """Remove and return the first message in the buffer, decoded; None while it is incomplete."""
        end = self._scanner.end(self._buffer) if self._buffer else None
        if end is None:
            return None
        text, self._buffer, self._scanner = self._buffer[:end], self._buffer[end:], _JsonMessage()
        if text.count(b"[") + text.count(b"{") > _MAX_PARTS:
            raise ProtocolError(f"message: has more than {_MAX_PARTS} lists and objects")
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise ProtocolError(f"message: is not JSON: {error}") from error

    def _fill(self) -> bool:
        """Wait for bytes and add them to the buffer; return whether the connection is still open."""
        self._limit_time()
        chunk = self._socket.recv(_CHUNK_BYTES)
        self._buffer += chunk
        _let_others_run()  # ``recv`` never waits while the server sends without end
        return bool(chunk)

    def _limit_time(self) -> None:
        """Set the socket's timeout to the time until the deadline; raise TimeoutError after it."""
        remaining_s = self._deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining_s)


class _JsonMessage:
    """Finds the end of a JSON message as its bytes arrive; scanned bytes are not scanned again.

    JSON-RPC 1.0 has no framing: a message is an object, which ends with the brace that closes its first one.
    """

    def __init__(self) -> None:
        self._at = self._depth = 0  # the number of scanned bytes, and of open braces
        self._in_string = False

    def end(self, buffer: bytearray) -> int | None:
        """Return the index behind the first message in ``buffer``, None if the message is incomplete.

        Each call gets the buffer of the last call, with more bytes at its end. Raises ProtocolError if the buffer does
        not begin with an object.
        """
        if not self._depth and buffer.lstrip()[:1] not in (bytearray(), bytearray(b"{")):
            raise ProtocolError("message: expected a JSON object")
        while self._pass_string(buffer) and (token := _TOKEN.search(buffer, self._at)):
            self._at = token.end()
            if token[0] == b'"':
                self._in_string = True
                continue
            self._depth += 1 if token[0] == b"{" else -1
            if self._depth == 0:
                return self._at
        if not self._in_string:
            self._at = len(buffer)
        return None

    def _pass_string(self, buffer: bytearray) -> bool:
        """Move behind the string in which the last scan ended, if any; return False if the string is incomplete."""
        if self._in_string and (rest := _IN_STRING.match(buffer, self._at)):
            self._at = rest.end()
            self._in_string = buffer[self._at : self._at + 1] != b'"'
            self._at += not self._in_string
        return not self._in_string


def _connect(address: str, tls: RenewableContext | None, timeout_s: float) -> socket.socket:
    """Return a connection to a database at ``unix:PATH``, ``tcp:HOST:PORT`` or ``ssl:HOST:PORT``. Raises OSError."""
    scheme, _, endpoint = address.partition(":")
    if scheme == "unix":
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            unix.settimeout(timeout_s)
            unix.connect(endpoint)
        except BaseException:
            unix.close()
            raise
        return unix
    host, port = parse_address(endpoint)
    plain = socket.create_connection((host, port), timeout_s)
    if scheme == "tcp":
        return plain
    try:
        context = ssl.create_default_context() if tls is None else tls.current
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def _let_others_run() -> None:
    """Let other greenlets run between two steps, each of which takes some 20 ms for a switch of 1,000 queues."""
    time.sleep(0)


def _reason(error: Exception) -> str:
    """Return an error's text without its number."""
    if isinstance(error, ssl.SSLError | socket.gaierror):
        return error.strerror or str(error)
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # eventlet has "ENOENT" in place of the text
    return str(error) or type(error).__name__
