"""A real etcd with one member, for the time of one test or benchmark (Debian's etcd-server)."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

from experiments.machine.controller_process import free_ports

START_S, STOP_S = 30.0, 10.0


class EtcdProcessError(RuntimeError):
    """Etcd is not installed, or did not start."""


class EtcdProcess:
    """One etcd member on free ports, for one ``with``; ``stop`` and ``start`` may follow each other."""

    def __init__(self, folder: Path) -> None:
        self.port, peer_port = free_ports(2)
        self._client, peer = (f"http://127.0.0.1:{port}" for port in (self.port, peer_port))
        self._log, self._data = folder / "etcd.log", folder / "etcd"
        self._command = ["etcd", "--data-dir", str(self._data), "--logger", "zap"]
        self._command += ["--listen-client-urls", self._client, "--advertise-client-urls", self._client]
        self._command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        self._command += ["--initial-cluster", f"default={peer}"]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EtcdProcess:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop(signal.SIGTERM)

    def start(self) -> None:
        """Start it, and wait until it answers. Raises EtcdProcessError when it does not."""
        if shutil.which("etcd") is None:
            raise EtcdProcessError("etcd is not installed: apt-get install etcd-server")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)
        deadline_s = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(f"{self._client}/health", timeout=1):
                    return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline_s:
                    tail = self._log.read_text()[-1000:]
                    raise EtcdProcessError(f"etcd does not answer; its log ends with {tail}") from error
                time.sleep(0.05)

    def forget(self) -> None:
        """Remove what it holds, while it is stopped."""
        shutil.rmtree(self._data)

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(STOP_S)
