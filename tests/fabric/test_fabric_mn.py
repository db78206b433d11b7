"""``mn --custom topologies/dets.py`` as a person starts it, with the application as its controller."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support import tcp_ends
from support.application import Application
from support.paths import ROOT

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


def mn(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["/usr/bin/python3", "-W", "ignore", "-c", MN, "--custom", "topologies/dets.py", "--test", "none", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)


def test_mn_starts_the_controller_of_its_topology(tmp_path: Path) -> None:
    fabric = fig1(pns=2, vlans=(10, 20))
    openflow_port, rest_port = free_ports(2)
    sender, receiver, other = fabric.vn(10, 1), fabric.vn(10, 2), fabric.vn(20, 2)
    url = f"http://127.0.0.1:{rest_port}"
    lines = [
        f"sh {sys.executable} -m apps.cli status --wait --timeout 60 --url {url}",
        f"{sender.name} ping -c 3 -i 0.3 {receiver.ip}",
        f"{sender.name} ip route add {other.ip} dev {sender.name}-eth0",
        f"{sender.name} ping -c 1 -W 1 {other.ip}",
        f"sh {sys.executable} -m apps.cli vn list --url {url}",
    ]
    script = tmp_path / "script"
    script.write_text("\n".join(lines) + "\n")
    controller = f"dets,port={openflow_port},rest={rest_port}"
    try:
        done = mn("--topo", "dets-fig1,pns=2,vlans=10+20", "--controller", controller, "--post", str(script))
        bridges = vsctl("list-br")
    finally:
        vsctl(*(word for switch in fabric.switches for word in ("--", "--if-exists", "del-br", switch.name)))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "3 packets transmitted, 3 received" in said, said
    assert "1 packets transmitted, 0 received" in said, said
    assert f"DETS: web UI {url}/ui" in said
    assert len(re.findall(r"^ +[12]0 .*50M", said, re.MULTILINE)) == 4, said  # half of each link of 100 Mb/s
    assert "s1" not in bridges
    with socket.socket() as one:
        assert one.connect_ex(("127.0.0.1", rest_port)) != 0  # the controller has ended with mn


def test_mn_ends_with_a_sentence_if_the_controller_cannot_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = mn("--topo", "dets-fig1,pns=2", "--controller", f"dets,port={port},rest={free_ports(1)[0]}")
    assert (done.returncode, "mn would clean up" in done.stderr) == (1, False), done.stderr
    assert f"127.0.0.1:{port}" in done.stderr
    none = mn("--topo", "single,2", "--controller", "dets")
    assert "choose one of the topologies" in none.stderr
    wrong = mn("--topo", "dets-fig1", "--controller", "dets,speed=3")
    assert "speed" in wrong.stderr
    assert "mn would clean up" not in none.stderr + wrong.stderr


@pytest.mark.parametrize(
    ("topology", "sentence"),
    [
        ("dets-fig1,pn=2", "dets-fig1: there is no parameter pn; there are pns, link_rate_bps, vlans"),
        ("dets-fig1,pns=0", "dets-fig1: pns: 0 is below 2"),
        ("dets-fig5,6", "dets-fig5: '6' has no name: write KEY=VALUE, as in dets-fig5,pns=4"),
    ],
)
def test_a_wrong_parameter_ends_mn_with_a_sentence(topology: str, sentence: str) -> None:
    done = mn("--topo", topology, "--controller", "none")
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "mn would clean up" not in done.stderr
