"""``mn --custom topologies/dets.py`` as a person starts it, with the application as its controller."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import tcp_ends
from support.application import ROOT, Application

from experiments.machine.controller_process import configuration, free_ports
from experiments.ovs.ovs_vsctl import vsctl
from topologies.builders import fig1

LIMIT_BPS = 20e6
SECONDS = 3
# mn as it is, but that it never cleans up by name: that would end others' processes.
MN = """
import mininet.clean
import sys
mininet.clean.cleanup = lambda: sys.exit("mn would clean up")
exec(compile(open("/usr/bin/mn").read(), "/usr/bin/mn", "exec"), {"__name__": "__main__"})
"""


def test_tcp_gets_its_limit_between_hosts_of_mn(tmp_path: Path) -> None:
    fabric = fig1(pns=2)
    config = configuration(fabric, dict.fromkeys(fabric.vlans, int(LIMIT_BPS)), "fp", {}, *free_ports(2))
    sender, receiver = (fabric.vn(1, pn) for pn in (1, 2))
    address, _, port = config["openflow"]["listen"].rpartition(":")
    result, program = tmp_path / "goodput", tcp_ends.__file__
    lines = [
        f"sh {sys.executable} -m apps.cli status --wait --timeout 30 --url http://{config['rest']['listen']}",
        f"{receiver.name} {sys.executable} {program} receive {result} &",
        f"{sender.name} ping -c 3 -i 0.3 {receiver.ip}",
        f"{sender.name} {sys.executable} {program} send {receiver.ip} {SECONDS + tcp_ends.SKIP_S} cubic",
        f"{sender.name} ip route add 10.2.0.0/16 dev {sender.name}-eth0",  # so that only the fabric is in the way
        f"{sender.name} ping -c 1 -W 1 {fabric.vn(2, 2).ip}",
    ]
    script = tmp_path / "script"
    script.write_text("\n".join(lines) + "\n")
    words = ["--custom", "topologies/dets.py", "--topo", "dets-fig1,pns=2", "--test", "none", "--post", str(script)]
    words += ["--controller", f"remote,ip={address},port={port}"]
    try:
        with Application(config, tmp_path) as app:
            app.wait_for(lambda: "listens for switches" in app.log(), "listening")
            command = ["/usr/bin/python3", "-W", "ignore", "-c", MN, *words]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    finally:
        vsctl(*(word for switch in fabric.switches for word in ("--", "--if-exists", "del-br", switch.name)))
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert "3 packets transmitted, 3 received" in said, said
    assert "1 packets transmitted, 0 received" in said, said  # the other VLAN is another network
    goodput_bps = float(result.read_text())
    assert 0.8 * LIMIT_BPS < goodput_bps < LIMIT_BPS


@pytest.mark.parametrize(
    ("topology", "sentence"),
    [
        ("dets-fig1,pn=2", "dets-fig1: there is no parameter pn; there are datapath, pns, link_rate_bps, vlans"),
        ("dets-fig1,pns=0", "dets-fig1: "),
    ],
)
def test_a_wrong_parameter_ends_mn_with_a_sentence(topology: str, sentence: str) -> None:
    words = ["--custom", "topologies/dets.py", "--topo", topology, "--controller", "none", "--test", "none"]
    command = ["/usr/bin/python3", "-W", "ignore", "-c", MN, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "mn would clean up" not in done.stderr
