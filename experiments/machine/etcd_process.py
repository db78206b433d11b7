"""A real etcd, of one member or several, for the time of one test or benchmark (Debian's etcd-server)."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from apps.cluster.etcd_client import EtcdClient, EtcdError, get
from experiments.machine.controller_process import free_ports
from experiments.machine.process_runner import ProcessRunner

START_S = 60.0


class EtcdProcessError(RuntimeError):
    """Etcd is not installed, or did not start."""


@dataclass(frozen=True, slots=True)
class EtcdTls:
    """Files in PEM form: the CA, the members' certificate with its key, and a client's. Clients must present one."""

    ca: Path
    certificate: Path
    key: Path
    client_certificate: Path
    client_key: Path


class EtcdMember(ProcessRunner):
    """One member: its process, its client URL, and its data, which remain while it is stopped."""

    def __init__(
        self,
        folder: Path,
        name: str,
        ports: tuple[int, int],
        peers: str,
        tls: EtcdTls | None,
        quota_bytes: int | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.port, peer_port = ports
        self.url = f"{'http' if tls is None else 'https'}://{host}:{self.port}"
        peer_url = f"http://127.0.0.1:{peer_port}"
        self._log, self._data, self._tls = folder / f"{name}.log", folder / name / "data", tls
        self._command = ["etcd", "--name", name, "--data-dir", str(self._data), "--logger", "zap"]
        self._command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        self._command += ["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url]
        self._command += ["--initial-cluster", peers]
        if tls is not None:
            self._command += ["--cert-file", str(tls.certificate), "--key-file", str(tls.key)]
            self._command += ["--client-cert-auth", "--trusted-ca-file", str(tls.ca)]
        if quota_bytes is not None:
            self._command += ["--quota-backend-bytes", str(quota_bytes)]

    def client(self) -> EtcdClient:
        """Return a client of this member alone."""
        if self._tls is None:
            return EtcdClient([self.url])
        return EtcdClient([self.url], str(self._tls.ca), str(self._tls.client_certificate), str(self._tls.client_key))

    def launch(self) -> None:
        """Start the process; it may not answer yet. Raises EtcdProcessError if etcd is not installed."""
        if shutil.which("etcd") is None:
            raise EtcdProcessError("etcd is not installed: apt-get install etcd-server")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)

    def wait_answers(self) -> None:
        """Wait until the member answers, which needs most of the members. Raises EtcdProcessError."""
        assert self._process is not None
        deadline_s = time.monotonic() + START_S
        with closing(self.client()) as client:
            while True:
                try:
                    client.read(get("/"))
                except EtcdError as error:
                    if self._process.poll() is not None or time.monotonic() > deadline_s:
                        tail = self._log.read_text()[-1000:]
                        raise EtcdProcessError(f"etcd does not answer; its log ends with {tail}") from error
                    time.sleep(0.05)
                else:
                    return

    def forget(self) -> None:
        """Remove the data of a stopped member, if any."""
        if self._data.exists():
            shutil.rmtree(self._data)


class EtcdProcesses:
    """An etcd of ``members`` members on free ports, for one ``with``; ``stop`` and ``start`` may alternate.

    It is full when it holds ``quota_bytes`` (None: etcd's default). Clients reach it at ``host``. A member's data are
    in a folder of its name: etcd1, etcd2, and so on.
    """

    def __init__(
        self,
        folder: Path,
        members: int = 1,
        tls: EtcdTls | None = None,
        quota_bytes: int | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.tls = tls
        ports = free_ports(2 * members)
        names = [f"etcd{number}" for number in range(1, members + 1)]
        peers = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in zip(names, ports[members:], strict=True))
        self.members = [
            EtcdMember(folder, name, (port, peer_port), peers, tls, quota_bytes, host)
            for name, port, peer_port in zip(names, ports[:members], ports[members:], strict=True)
        ]

    @property
    def urls(self) -> list[str]:
        """The members' client URLs."""
        return [member.url for member in self.members]

    def __enter__(self) -> EtcdProcesses:
        try:
            self.forget()  # data of an earlier run must not apply to this one
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop(signal.SIGTERM)

    def start(self) -> None:
        """Start all members, and wait until each answers. Raises EtcdProcessError if one does not."""
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_answers()

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End all members."""
        for member in self.members:
            member.end(number)

    def forget(self) -> None:
        """Remove the data of all stopped members."""
        for member in self.members:
            member.forget()
