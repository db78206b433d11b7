"""Controllers that start with all modules imported, forked from a process that has imported them once.

Imports are most of a controller's time until it listens, and tests start hundreds. Only imports are shared: each
process has its own descriptors, environment and limits from the beginning, and reads its configuration itself. Tests
that start ``dets run`` by the command check that its imports come in the right order.
"""

from __future__ import annotations

import _socket
import array
import atexit
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MAX_MESSAGE_BYTES = 1 << 20
POLL_INTERVAL_S = 0.02
# Not apps.dets: its other imports open descriptors.
SHARED = ("ryu.cmd.manager", "ryu.base.app_manager", "ryu.controller.controller", "apps.rest", "apps.settings.settings")


class ForkedProcess:
    """A forked process with the methods of ``subprocess.Popen``. It ends with the process that forked it."""

    def __init__(self, forker: ProcessForker, pid: int) -> None:
        self._forker, self.pid = forker, pid

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""
        return self._forker.status(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once it has ended; subprocess.TimeoutExpired."""
        deadline_s = time.monotonic() + timeout if timeout is not None else None
        while (status := self.poll()) is None:
            if deadline_s is not None and time.monotonic() > deadline_s:
                assert timeout is not None
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(POLL_INTERVAL_S)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ProcessForker:
    """The process that forks; ``close`` ends it and all that it has forked."""

    def __init__(self) -> None:
        self._socket, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, size, MAX_MESSAGE_BYTES)
        command = [sys.executable, __file__, str(there.fileno())]
        with there:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[there.fileno()]
            )
        self._started: list[int] = []
        self._status: dict[int, int] = {}

    def start(
        self,
        arguments: Sequence[str],
        files: tuple[int, int, int],
        *,
        script: str | None = None,
        environment: Mapping[str, str] | None = None,
        max_files: int | None = None,
    ) -> ForkedProcess:
        """Start ryu-manager with these arguments, or a script; ``files`` are its standard input, output and error.

        ``environment`` is this process's by default; ``max_files`` is the limit of descriptors.
        """
        order = {
            "arguments": list(arguments),
            "script": script,
            "environment": dict(os.environ if environment is None else environment),
            "max_files": max_files,
        }
        socket.send_fds(self._socket, [json.dumps(order).encode()], list(files))
        while not self._started:
            self._receive(None)
        return ForkedProcess(self, self._started.pop())

    def status(self, pid: int) -> int | None:
        """Return the exit status of a process; None while it runs."""
        while pid not in self._status and self._receive(0.0):
            pass
        return self._status.get(pid)

    def close(self) -> None:
        """End the process and all that it has forked."""
        self._socket.close()
        self._process.wait(10.0)

    def _receive(self, timeout_s: float | None) -> bool:
        """Receive the next message, if one comes in time; return whether one did."""
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return False
        data = self._socket.recv(MAX_MESSAGE_BYTES)
        assert data, "the process that forks controllers has ended"
        message = json.loads(data)
        if "started" in message:
            self._started.append(message["started"])
        else:
            self._status[message["ended"]] = message["status"]
        return True


_process_forker: ProcessForker | None = None


def process_forker() -> ProcessForker:
    """Return the forker of this process, started on the first call."""
    global _process_forker
    if _process_forker is None:
        _process_forker = ProcessForker()
        atexit.register(_process_forker.close)
    return _process_forker


def _serve(number: int) -> None:
    """Fork on each request; return only in the forked processes, set up as requested.

    Functions that eventlet replaces are not used here: a hub that exists before a fork would be shared.
    """
    sock = _socket.socket(fileno=number)
    children: dict[int, int] = {}
    while True:
        for one in _real_select([number, *children], [], [])[0]:
            if one != number:
                pid = children.pop(one)
                os.close(one)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, os.WNOHANG)[1])
                sock.send(json.dumps({"ended": pid, "status": status}).encode())
                continue
            data, ancillary, _, _ = sock.recvmsg(MAX_MESSAGE_BYTES, _socket.CMSG_SPACE(3 * 4))
            if not data:
                for pid in children.values():
                    os.kill(pid, signal.SIGKILL)
                os._exit(0)
            files = array.array("i")
            files.frombytes(ancillary[0][2])
            pid = os.fork()
            if pid == 0:
                sock.detach()
                _become(json.loads(data), list(files))
                return
            for file in files:
                os.close(file)
            children[os.pidfd_open(pid)] = pid
            sock.send(json.dumps({"started": pid}).encode())


def _check_descriptors(number: int) -> None:
    """Check that no module has opened a descriptor: all forked processes would have it."""
    opened = {int(name) for name in os.listdir("/proc/self/fd")}
    opened = {one for one in opened if os.path.exists(f"/proc/self/fd/{one}")}  # except the one that listed them
    assert opened == {0, 1, 2, number}, {one: os.readlink(f"/proc/self/fd/{one}") for one in opened}


def _become(order: dict[str, Any], files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    os.environ.clear()
    os.environ.update(order["environment"])
    if order["max_files"] is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (order["max_files"],) * 2)
    sys.argv = ["-c" if order["script"] else "ryu-manager", *order["arguments"]]
    _orders.append(order)


_orders: list[dict[str, Any]] = []
_real_select = select.select

if __name__ == "__main__":
    from missing_packages import leave_out_as_told  # in this file's folder: it runs as a script

    sys.path[0] = str(ROOT)
    leave_out_as_told()
    from apps.runtime import launcher

    launcher._prepare()
    import eventlet.hubs

    for module in SHARED:
        importlib.import_module(module)
    eventlet.hubs.get_hub().poll.close()
    eventlet.hubs.use_hub()  # each process makes its own when it needs one
    _check_descriptors(int(sys.argv[1]))
    _serve(int(sys.argv[1]))
    (_order,) = _orders
    if _order["script"]:
        warnings.simplefilter("ignore")
        exec(compile(_order["script"], "-c", "exec"), {"__name__": "__main__"})
    else:
        sys.exit(launcher.manager(_order["arguments"]))
