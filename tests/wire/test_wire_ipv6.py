"""Listeners at an address of one link and at a name that has an IPv6 address alone, in a network of its own (root)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.ovs import wait_until
from support.paths import ROOT

CONFIG = """\
openflow: {listen: "six.example:6653"}
rest: {listen: "[fe80::1%d0]:8080", authentication: token}
vlans: {10: {send_limit: 40M, receive_limit: 40M}}
switches:
  s1: {dpid: 1, ovsdb: "ptcp:6640:[fe80::1%d0]", ports: {1-2: {capacity: 100M, access: 10}}}
"""
NETWORK = """\
ip link set lo up
ip link add d0 type veth peer name d1
ip link set d0 up
ip link set d1 up
ip address add fe80::1/64 dev d0 nodad
mount --bind "$1/hosts" /etc/hosts
exec "$2" -m apps.cli run --config "$1/dets.yaml"
"""
ASK = """\
import http.client, socket
rest = http.client.HTTPConnection("fe80::1%d0", 8080, timeout=5)
rest.request("GET", "/v1/live", headers={"Host": "[fe80::1%d0]:8080"})  # as older Pythons do
print(rest.getresponse().status)
switch = socket.create_connection(("six.example", 6653), 5)
print(switch.getpeername()[0], switch.recv(2).hex())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT ROOT: no network of its own, so IPv6 listeners are not tried")
def test_a_link_local_address_and_a_name_without_ipv4_are_listened_at(tmp_path: Path) -> None:
    (tmp_path / "dets.yaml").write_text(CONFIG)
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n::1 six.example\n")
    log = tmp_path / "dets.log"
    command = ["unshare", "--net", "--mount", "sh", "-ec", NETWORK, "sh", str(tmp_path), sys.executable]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_until(lambda: process.poll() is not None or "listens for REST" in log.read_text(), "listening", 40.0)
        assert process.poll() is None, log.read_text()
        ask = ["nsenter", "--net", "--mount", f"--target={process.pid}", sys.executable, "-c", ASK]
        answers = subprocess.run(ask, capture_output=True, text=True, timeout=30, check=True).stdout.split("\n")
        assert answers[:2] == ["200", "::1 0400"]  # the first bytes of a Hello of OpenFlow 1.3
        assert "listens for REST at [fe80::1%d0]:8080" in log.read_text()
    finally:
        process.terminate()
        process.wait(15.0)
    assert "Traceback" not in log.read_text()
