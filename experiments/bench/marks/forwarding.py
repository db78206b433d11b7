"""``dets bench marks --forwarding``: what the tables for marks cost Open vSwitch, in its processor time a frame (root).

Frames of one pair go from one edge switch to another at a fixed pace, so that the machine is not the limit. All modes
run in turns, and what counts is the median of how many times the first one's a mode took in the same turn. What a
frame costs in full is forwarding and both switches' interfaces.
"""

from __future__ import annotations

import socket
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from controller.errors import InvalidValueError
from controller.forwarding.pipeline import CE
from controller.openflow.constants import ETH_TYPES_IP
from controller.openflow.frames import FrameHeader, build_frame, with_ip_ecn
from experiments.bench.marks.bench import LINK_BPS, MODES
from experiments.machine.controller_process import ControllerProcess, configuration, free_ports
from experiments.ovs.fabric import OvsFabric, OvsOptions
from topologies.builders import dumbbell

FABRIC = dumbbell(pns=2, link_rate_bps=LINK_BPS, vlans=(1,))
PACE_PER_S, BATCH = 8000, 80
FRAME_BYTES = 200
SETTLE_S, SECONDS, ROUNDS = 3.0, 4.0, 5
TARGET_TIMES = 1.15  # of what a frame costs without the tables
PID_FILE = Path("/var/run/openvswitch/ovs-vswitchd.pid")
# IPv4 and UDP, without ECN: addresses 10.0.0.1 and 10.0.0.2.
PACKET = bytes.fromhex("450000b4 00000000 40116637 0a000001 0a000002").ljust(FRAME_BYTES - 18, b"\0")


def run(seconds: float = SECONDS) -> dict[str, Any]:
    """Measure each mode ``seconds`` long, ROUNDS times."""
    if not 1.0 <= seconds <= 60.0:
        raise InvalidValueError("seconds", seconds, "is outside 1 to 60")
    runs: dict[str, list[dict[str, float]]] = {what: [] for what in MODES}
    for _ in range(ROUNDS):
        for what, mode in MODES.items():
            runs[what].append(cost(*mode, seconds))
            print(f"{what}: {runs[what][-1]}", flush=True)
    without, *others = ([one["us_per_frame"] for one in found] for found in runs.values())
    times = {
        what: median(us / us_without for us, us_without in zip(found, without, strict=True))
        for what, found in zip(list(runs)[1:], others, strict=True)
    }
    return {
        "figures": {"runs": runs, "median_us_per_frame_without": median(without)},
        "settings": {"frames_per_s": PACE_PER_S, "frame_bytes": FRAME_BYTES, "seconds": seconds},
        "targets": [
            {
                "name": f"a frame with {what}, of one without",
                "value": round(one, 3),
                "unit": "x",
                "target": TARGET_TIMES,
                "met": one <= TARGET_TIMES,
            }
            for what, one in times.items()
        ],
    }


def cost(algorithm: str, marks: str, seconds: float) -> dict[str, float]:
    """Return microseconds of ovs-vswitchd's processor time a frame, and the part of the frames that arrived.

    Every other frame comes with a mark, so that all tables have work.
    """
    openflow_port, rest_port = free_ports(2)
    document = configuration(FABRIC, {1: LINK_BPS}, algorithm, {}, openflow_port=openflow_port, rest_port=rest_port) | {
        "ecn": {"marks": marks}
    }
    options = OvsOptions(controller=f"tcp:127.0.0.1:{openflow_port}")
    plain = yaml.safe_load(yaml.safe_dump(document))
    with (
        tempfile.TemporaryDirectory() as folder,
        ControllerProcess(plain, Path(folder)) as process,
        OvsFabric(FABRIC, options),
    ):
        process.wait_ready({switch.name for switch in FABRIC.switches})
        sender, receiver = (Wire(pn.trunk_interface) for pn in FABRIC.pns)
        macs = [int(FABRIC.vn(1, pn.number).mac.replace(":", ""), 16) for pn in FABRIC.pns]
        there, back = (_frame(*ends) for ends in (macs, macs[::-1]))
        receiver.send(back, 5)
        sender.send(there, 5)
        time.sleep(SETTLE_S)
        used_s, got = _processor_s(), receiver.arrived
        sent = sender.paced((there, with_ip_ecn(there, CE)), seconds)
        time.sleep(0.2)
        used_s, got = _processor_s() - used_s, receiver.arrived - got
    return {"us_per_frame": round(used_s * 1e6 / sent, 2), "arrived": round(got / sent, 4)}


def _frame(source: int, target: int) -> bytes:
    return build_frame(FrameHeader(target, source, 1, ETH_TYPES_IP[0]), PACKET)


class Wire:
    """A PN's end of its link: frames go into the fabric, and what comes is counted by the interface."""

    def __init__(self, interface: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._socket.bind((interface, 0))
        self._counter = Path(f"/sys/class/net/{interface}/statistics/rx_packets")

    @property
    def arrived(self) -> int:
        """How many frames have come so far."""
        return int(self._counter.read_text())

    def send(self, frame: bytes, times: int) -> None:
        """Send a frame so many times, a tenth of a second apart."""
        for _ in range(times):
            self._socket.send(frame)
            time.sleep(0.1)

    def paced(self, frames: tuple[bytes, ...], seconds: float) -> int:
        """Send frames in turns, PACE_PER_S in a second; return how many that were."""
        began_s, batches = time.monotonic(), int(seconds * PACE_PER_S / BATCH)
        for number in range(batches):
            for one in range(BATCH):
                self._socket.send(frames[one % len(frames)])
            time.sleep(max(began_s + (number + 1) * BATCH / PACE_PER_S - time.monotonic(), 0.0))
        return batches * BATCH


def _processor_s() -> float:
    """Return the processor time of ovs-vswitchd so far, of all its threads, to the nanosecond."""
    tasks = Path(f"/proc/{int(PID_FILE.read_text())}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in tasks) / 1e9
