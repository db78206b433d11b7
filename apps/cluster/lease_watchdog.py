"""Helper process that revokes a node's lease when the node's process dies, so that another node takes over at once.

It runs next to the node, with two file descriptors from it. One is a pipe, which the kernel closes when the node ends
in any way. The other is a file in memory with the lease id, which the node can write without waiting. If the machine
dies, or the helper too, the lease expires.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

from apps.cluster.etcd_client import EtcdClient, EtcdError
from apps.runtime.launcher import module_command
from controller.errors import InvalidValueError

END_S = 5.0  # how long ``close`` waits for the helper to end
_DIGITS = 20  # digits of a lease's id, which has 64 bits


class LeaseWatchdog:
    """The helper process of this process's lease; one for a node, from its start on.

    ``ca``, ``certificate`` and ``key`` are those of ``EtcdClient``.
    """

    def __init__(self, endpoints: tuple[str, ...], ca: str | None, certificate: str | None, key: str | None) -> None:
        self._lease_file = os.memfd_create("lease")
        self.set_lease(None)
        reading, self._pipe = os.pipe()
        files = json.dumps([endpoints, ca, certificate, key])
        self._process = subprocess.Popen(
            [*module_command("apps.cluster.lease_watchdog"), str(self._lease_file), files],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            pass_fds=[self._lease_file],
            start_new_session=True,
        )
        os.close(reading)

    def set_lease(self, lease_id: int | None) -> None:
        """Set the lease to revoke when the process dies; None: no lease."""
        os.pwrite(self._lease_file, f"{lease_id or 0:0{_DIGITS}}".encode(), 0)

    def close(self) -> None:
        """End the helper: the node ends regularly, and has released its lease."""
        self.set_lease(None)
        os.close(self._pipe)
        os.close(self._lease_file)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)


def main(lease_file: int, endpoints: list[str], ca: str | None, certificate: str | None, key: str | None) -> None:
    """Wait until the node has ended, then revoke its lease."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # ending a service signals all its processes
        signal.signal(number, signal.SIG_IGN)
    etcd = EtcdClient(endpoints, ca, certificate, key)
    sys.stdin.buffer.read()  # returns when the node's end of the pipe is closed
    lease_id = int(os.pread(lease_file, _DIGITS, 0))
    if lease_id:
        with suppress(InvalidValueError):  # the node uses the previous contents of the files
            renew = etcd.tls.prepare()
            if renew is not None:
                renew()
        try:
            etcd.revoke(lease_id)
        except EtcdError as error:
            print(f"the lease of a node that died has to run out: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]), *json.loads(sys.argv[2]))
