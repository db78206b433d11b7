"""A real ovsdb-server of a test's own: no root, no ovs-vswitchd."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
needs_ovsdb = pytest.mark.skipif(
    shutil.which("ovsdb-server") is None or not SCHEMA.exists(), reason="needs Debian's openvswitch-switch"
)


class Server:
    """An ovsdb-server with one bridge of that dpid and these ports, on a socket in ``folder``."""

    def __init__(self, folder: Path, dpid: int, ports: Sequence[str], *options: str) -> None:
        self._dpid = dpid
        self.address = f"unix:{folder / 'db.sock'}"
        self._folder = folder
        self._options = options
        database = str(folder / "conf.db")
        subprocess.run(["ovsdb-tool", "create", database, str(SCHEMA)], check=True, timeout=20)
        self.start()
        self.vsctl("init")
        self.vsctl("add-br", "b", *(word for port in ports for word in ("--", "add-port", "b", port)))
        self.be_vswitchd()

    def start(self) -> None:
        remotes = [f"--remote=p{self.address}", f"--unixctl={self._folder / 'ctl'}", "--no-chdir", *self._options]
        command = ["ovsdb-server", *remotes, "-vconsole:off", str(self._folder / "conf.db")]
        self.process = subprocess.Popen(command, cwd=self._folder)
        deadline_s = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(self._folder / "db.sock"))
                return
            if time.monotonic() > deadline_s or self.process.poll() is not None:
                raise TimeoutError("ovsdb-server did not start")
            time.sleep(0.02)

    def be_vswitchd(self) -> None:
        """Write the dpid, as ovs-vswitchd does after every start of ovsdb-server: the column is ephemeral."""
        self.vsctl("set", "bridge", "b", f'datapath_id="{self._dpid:016x}"')

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)

    def vsctl(self, *arguments: str) -> str:
        command = ["ovs-vsctl", f"--db={self.address}", "--no-wait", "--timeout=10", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout

    def versions(self) -> dict[str, str]:
        """Return each row's ``_version``, which every write to it changes."""
        selects = [
            {"op": "select", "table": t, "where": [], "columns": ["_uuid", "_version"]}
            for t in ("Port", "QoS", "Queue")
        ]
        command = ["ovsdb-client", "transact", self.address, json.dumps(["Open_vSwitch", *selects])]
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
        return {row["_uuid"][1]: row["_version"][1] for table in json.loads(text) for row in table["rows"]}
