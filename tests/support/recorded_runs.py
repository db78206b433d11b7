"""The runs whose recordings ``tests/model/data`` keeps: seconds of a small fabric in virtual time, under each policy.

``.venv/bin/python tests/support/recorded_runs.py`` makes them again, and says of each whether its records are still
those that were kept, byte for byte; with ``--write`` it keeps the new ones. That is for when the format of recordings
has changed, or what is decided, on purpose.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.configs import fabric
from support.fabrics import ControlLoop, Fabric
from support.host_traffic import LEFT, RIGHT, restarted

from apps.cli.support.recording_files import write
from controller.central.controller import CentralController
from controller.config.loader import parse_config
from controller.whatif.recording import Recorder
from experiments.machine.controller_process import configuration
from experiments.model.control.agents import ModelAgents
from experiments.model.control.control_plane import ControlPlane
from experiments.model.fabric import ModelFabric, ModelOptions
from experiments.model.sources import UdpSource
from experiments.model.tcp import TcpSource
from topologies.builders import fabrics

DATA = Path(__file__).parents[1] / "model" / "data"
INTERVAL_S = 0.055
HALF = 24  # of what is recorded, in intervals
LINK_BPS = 50_000_000
LIMITS_BPS = {1: 20_000_000, 2: 25_000_000}
CEILINGS = {"send_ceiling": LINK_BPS, "receive_ceiling": LINK_BPS}


def of_policy(algorithm: str, second: str = "", *, queues: bool = True, agents: bool = False, **values: Any) -> bytes:
    """Return what was recorded of five PNs with a VN each in two VLANs under one policy, or VLAN 2 under a second one.

    TCP and UDP go to PN 5, and some UDP to PN 4. Half-way a sender stops, another one begins to send to a PN that it
    has not sent to, and limits are changed. ``agents`` are on all PNs but 3; ``values`` are further ones of the VLANs.
    """
    description = fabrics["dets-fig5"](pns=5, link_rate_bps=LINK_BPS)
    document = configuration(description, LIMITS_BPS, algorithm, {}, 6653, 8080, queues=queues)
    for vlan in document["vlans"].values():
        vlan |= values
    if second:
        document["vlans"][2]["algorithm"] = second
    for switch in document["switches"].values():
        for number, port in switch["ports"].items():
            if agents and number != 3:
                port["agent"] = "trust"
    model = ModelFabric(description, ModelOptions(seed=1))
    plane = ControlPlane(model, CentralController(parse_config(yaml.safe_dump(document), "model"), epoch=9))
    plane.start()
    if agents:
        ModelAgents(plane, description.pns)

    def send(kind: str, vid: int, sender: int, receiver: int) -> UdpSource | TcpSource:
        ends = description.vn(vid, sender), description.vn(vid, receiver)
        if kind == "udp":
            source = UdpSource(18e6, model.slot_s)
        else:
            source = TcpSource("cubic", model.slot_s, return_s=model.round_trip_s(*ends) / 2, rng=model.rng)
        model.connect(source, *ends)
        source.start(model.slot)
        return source

    central = plane.central
    central.recorder = recorder = Recorder()
    send("tcp", 1, 1, 5)
    first = send("udp", 1, 2, 5)
    send("udp", 2, 1, 5)
    send("tcp", 2, 2, 5)
    send("udp", 2, 3, 4)
    model.run(model.now_s + HALF * INTERVAL_S)
    first.stop(model.slot)
    send("udp", 1, 3, 5)
    for vid, limit_bps in ((1, 15_000_000), (2, 27_000_000)):
        row = central.vns.row_of(vid, *model.edge_port(description.vn(vid, 5)))
        plane.operator.set_vn(row, model.now_s, receive_limit_bps=limit_bps)
    model.run(model.now_s + HALF * INTERVAL_S)
    return recorder.drain()


def after_restart(algorithm: str) -> bytes:
    """Return what was recorded after a new controller had found the grants of the last one on one switch of two.

    The other one comes half-way.
    """
    ports = {1: {port: [10] for port in (1, 2, 3)}, 2: {4: [10]}}
    net = Fabric(fabric(ports, limits={10: "400M"}, algorithm=algorithm), [(LEFT, RIGHT)])
    net.start()
    before = ControlLoop(net)
    for place in ((1, 1), (1, 2), (2, 4)):
        before.add(place, (1, 3), 10, 300e6)
    before.run(HALF)
    again = ControlLoop(restarted(net))
    again.senders = before.senders
    again.fabric.connect(1)
    again.fabric.central.recorder = recorder = Recorder()
    again.run(HALF)
    again.fabric.connect(2)
    again.fabric.hello()
    again.run(HALF)
    return recorder.drain()


RUNS: dict[str, Callable[[], bytes]] = {
    **{name: partial(of_policy, name) for name in ("fs", "sp", "fp", "fe", "level", "max-min")},
    "seawall": partial(of_policy, "seawall", **CEILINGS),
    "seawall-cubic": partial(of_policy, "seawall-cubic", **CEILINGS),
    "seawall-dctcp": partial(of_policy, "seawall-dctcp", **CEILINGS),
    "seawall-strawman": partial(of_policy, "seawall-strawman", **CEILINGS),
    "seawall-exact": partial(of_policy, "seawall-exact", **CEILINGS),
    "gatekeeper": partial(of_policy, "gatekeeper"),
    "hygenicc": partial(of_policy, "hygenicc"),
    "two-policies": partial(of_policy, "level", "max-min"),
    "fs-without-queues": partial(of_policy, "fs", queues=False),
    "max-min-without-queues": partial(of_policy, "max-min", queues=False, **CEILINGS),
    "fp-with-agents": partial(of_policy, "fp", agents=True),
    "fp-after-restart": partial(after_restart, "fp"),
}


def path_of(name: str) -> Path:
    """Return where the recording of a run is kept."""
    return DATA / f"{name}.dets"


def main() -> int:
    """Make all runs again; return how many were others than those that are kept."""
    others = 0
    for name, run in RUNS.items():
        records, path = run(), path_of(name)
        kept = b""
        if path.exists():
            with zipfile.ZipFile(path) as archive:
                kept = archive.read("records/000000")
        print(f"{name}: {len(records)} bytes, {'the same' if records == kept else 'OTHER'}")
        others += records != kept
        if "--write" in sys.argv:
            file = io.BytesIO()
            write(file, [records])
            path.write_bytes(file.getvalue())
    return others


if __name__ == "__main__":
    sys.exit(main())
