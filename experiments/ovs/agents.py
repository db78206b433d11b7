"""The agents of an emulated fabric's PNs, all in one process: eleven processes would be eleven interpreters.

    with fabric_agents([pn, ...], folder): ...

Each agent communicates and shapes on its PN's trunk as ``dets agent`` does; only the loop around them is shared.
"""

from __future__ import annotations

import contextlib
import json
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from apps.agent.agent import Agent, AgentOptions
from apps.agent.frame_socket import FrameSocket
from apps.agent.htb import HtbShaper
from apps.agent.root_qdisc import DIRECT_PRIORITY
from experiments.machine.controller_process import ROOT
from topologies.fabric import PhysicalNode

READY = "ready\n"
TIMEOUT_S = 20.0


@contextlib.contextmanager
def fabric_agents(pns: Iterable[PhysicalNode], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the agents of these PNs until the block ends; RuntimeError with their last output if they do not start."""
    job = [{"interface": pn.trunk_interface, "vlans": list(pn.vlans), "link_rate_bps": pn.link_rate_bps} for pn in pns]
    path = folder / "agents.log"
    with path.open("w") as log:
        command = [sys.executable, "-m", "experiments.ovs.agents", json.dumps(job)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != READY:
            raise RuntimeError(f"agents did not start: {' '.join(path.read_text().strip().splitlines()[-1:])}")
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TIMEOUT_S)
        if process.poll() is None:
            process.kill()
            process.wait(TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()


def run_all(agents: dict[FrameSocket, Agent], stopped: threading.Event) -> None:
    """Run the agents, each at its own interval, until ``stopped``; receive frames between the intervals."""
    begun_s = time.monotonic()
    # The agents begin one after the other within an interval (55 ms), so that they do not all work at the same time.
    due_s = {sock: begun_s + number * 0.055 / len(agents) for number, sock in enumerate(agents)}
    while not stopped.is_set():
        next_socket = min(due_s, key=due_s.__getitem__)
        wait_s = due_s[next_socket] - time.monotonic()
        if wait_s > 0:
            for ready_socket in select.select(list(agents), [], [], wait_s)[0]:
                agents[ready_socket].receive_frames()
            continue
        agents[next_socket].run_interval()
        due_s[next_socket] = max(due_s[next_socket] + agents[next_socket].interval_s, time.monotonic())


def main(text: str) -> int:
    """Run the agents of a JSON list."""
    stopped = threading.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda _number, _frame: stopped.set())
    with contextlib.ExitStack() as stack:
        agents: dict[FrameSocket, Agent] = {}
        for job in json.loads(text):
            sock = stack.enter_context(FrameSocket(job["interface"], DIRECT_PRIORITY))
            options = AgentOptions(tuple(job["vlans"]), job["link_rate_bps"])
            shaper = HtbShaper(job["interface"], options.vlans, options.link_rate_bps, replace=True)
            stack.callback(shaper.close, keep=True)
            agents[sock] = Agent(options, shaper, sock)
        print(READY, end="", flush=True)
        run_all(agents, stopped)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
