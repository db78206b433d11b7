"""Gives a node's lease up when its process has died, so that the other node takes over at once.

It is a process of its own next to the node, with two files from it. The kernel closes the one, a pipe, when the node
ends, however it ends. The other, in memory, holds the lease then: to write there waits for nothing and nobody. Where
the machine dies, or this process too, the lease runs out.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

from apps.cluster.etcd_client import EtcdClient, EtcdError
from controller.errors import InvalidValueError

END_S = 5.0
_DIGITS = 20  # of a lease's id, which has 64 bits


class LeaseWatchdog:
    """What happens to the lease of this process when it dies; one for a node, from its start on.

    ``ca``, ``certificate`` and ``key`` are those of ``Etcd``.
    """

    def __init__(self, endpoints: tuple[str, ...], ca: str | None, certificate: str | None, key: str | None) -> None:
        self._lease_file = os.memfd_create("lease")
        self.set_lease(None)
        reading, self._pipe = os.pipe()
        files = json.dumps([endpoints, ca, certificate, key])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "apps.cluster.lease_watchdog", str(self._lease_file), files],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            pass_fds=[self._lease_file],
            start_new_session=True,
        )
        os.close(reading)

    def set_lease(self, lease_id: int | None) -> None:
        """Let this lease be given up when the process dies; none if it is None."""
        os.pwrite(self._lease_file, f"{lease_id or 0:0{_DIGITS}}".encode(), 0)

    def close(self) -> None:
        """The node ends by itself, and has given its lease up: nothing is left to do."""
        self.set_lease(None)
        os.close(self._pipe)
        os.close(self._lease_file)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)


def main(lease_file: int, endpoints: list[str], ca: str | None, certificate: str | None, key: str | None) -> None:
    """Wait until the node has ended, then give its lease up."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # whoever ends a service tells all its processes
        signal.signal(number, signal.SIG_IGN)
    etcd = EtcdClient(endpoints, ca, certificate, key)
    sys.stdin.buffer.read()
    lease_id = int(os.pread(lease_file, _DIGITS, 0))
    if lease_id:
        with suppress(InvalidValueError):  # the node has taken the files as they were before
            renew = etcd.tls.prepare()
            if renew is not None:
                renew()
        try:
            etcd.revoke(lease_id)
        except EtcdError as error:
            print(f"the lease of a node that died has to run out: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]), *json.loads(sys.argv[2]))
