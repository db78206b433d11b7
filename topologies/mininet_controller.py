"""The controller that ``mn --controller dets`` starts: ``dets run`` with the configuration of the chosen topology.

``--controller dets,port=6653,rest=8080`` sets its ports for switches and for REST. It runs before anything of the
network is created, so that a port in use ends ``mn`` with a sentence and leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from topologies._mininet_import import ensure_mininet
from topologies.mininet_topo import FabricTopo

ensure_mininet()

from mininet.log import info  # noqa: E402
from mininet.node import Controller  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S, STOP_TIMEOUT_S = 60.0, 15.0
_LOG_LINES = 5
_PR_SET_PDEATHSIG = 1


class DetsController(Controller):  # type: ignore[misc]  # Mininet has no types
    """``dets run`` in its own process, which ends with ``mn``, however ``mn`` ends."""

    def __init__(self, name: str, port: int = 6653, rest: int = 8080, **params: Any) -> None:
        """Start the controller and wait until it serves REST; ``port`` and ``rest`` are its TCP ports.

        Raises SystemExit with the reason if it does not start.
        """
        super().__init__(name, port=port)
        if params:
            raise SystemExit(f"--controller dets: there is no parameter {min(params)}; there are port, rest")
        if not FabricTopo.chosen:
            raise SystemExit("--controller dets: choose one of the topologies of this file, such as --topo dets-fig1")
        in_venv = ROOT / ".venv" / "bin" / "dets"
        dets = str(in_venv) if in_venv.exists() else shutil.which("dets")
        if dets is None:
            raise SystemExit("--controller dets: there is no command dets: run make setup")
        self._folder = Path(tempfile.mkdtemp(prefix="dets-mn-"))
        config, self._log = self._folder / "dets.yaml", self._folder / "dets.log"
        ports = ["--openflow-port", str(port), "--rest-port", str(rest)]
        topology = subprocess.run(
            [dets, "topology", FabricTopo.chosen, *ports], capture_output=True, text=True, check=False
        )
        if topology.returncode:
            raise SystemExit(topology.stderr.strip())
        config.write_text(topology.stdout)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [dets, "run", "--config", str(config)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for mn's prompt
                preexec_fn=_end_with_parent,
            )
        self._wait_live(f"http://127.0.0.1:{rest}")
        info(f"*** DETS: web UI http://127.0.0.1:{rest}/ui, configuration {config}, log {self._log}\n")

    def checkListening(self) -> None:  # noqa: N802 - overrides Mininet's name
        """Do nothing: the controller itself reports who uses its port."""

    def start(self) -> None:
        """Do nothing: the controller has run since ``__init__``."""

    def stop(self, *arguments: Any, **options: Any) -> None:
        """Stop the controller, which removes what it has installed."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        super(Controller, self).stop(*arguments, **options)

    @classmethod
    def isAvailable(cls) -> bool:  # noqa: N802 - overrides Mininet's name
        """Return True: ``__init__`` reports missing parts."""
        return True

    def _wait_live(self, url: str) -> None:
        """Wait until the controller serves REST; raise SystemExit with the end of its log if it does not."""
        end_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end_s and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{url}/v1/live", timeout=2):
                    pass
            except OSError:
                time.sleep(0.2)
            else:
                if self._process.poll() is None:
                    return
        self._process.kill()
        self._process.wait()
        last = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        raise SystemExit("\n".join(["--controller dets: it did not start:", *last]))


def _end_with_parent() -> None:
    """Let the kernel send SIGTERM to this process when its parent ends (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
