"""A switch full of an earlier version's entries is taken over amid traffic, on real Open vSwitch."""

from __future__ import annotations

import itertools
import re
import signal
import sys
from pathlib import Path

from support.ovs import controlled

from controller.forwarding.pipeline import Table
from experiments.ovs.ovs_vsctl import ofctl
from topologies.builders import fig1

EARLIER = {Table.FORWARD: 4, Table.REPORT: 5}
FOR_MARKS = (Table.MARKS, Table.COUNT, Table.PHANTOM)
PER_S = 1000  # datagrams; an interval is 55 of them
MOST_LOST = 55
SEND = """
import itertools, socket, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
start_s = time.monotonic()
for number in itertools.count():
    sock.sendto(number.to_bytes(4) + bytes(60), ("{}", 9))
    time.sleep(max(start_s + (number + 1) / {} - time.monotonic(), 0.0))
"""
RECEIVE = """
import signal, socket, sys
numbers = []
def stop(*_):
    print(*numbers)
    sys.exit()
signal.signal(signal.SIGTERM, stop)
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
sock.bind(("", 9))
print("listening", flush=True)
while True:
    numbers.append(int.from_bytes(sock.recv(100)[:4]))
"""


def renumber(bridge: str, folder: Path) -> None:
    """Let a switch's entries be those of an earlier version: without tables for marks, and with other numbers."""
    lines = [line for line in ofctl("dump-flows", bridge, "--no-stats", "--no-names").splitlines() if "cookie=" in line]
    text = "\n".join(line for line in lines if not any(f"table={table:d}," in line for table in FOR_MARKS))
    text = text.replace(f"goto_table:{Table.MARKS:d}", f"goto_table:{Table.FORWARD:d}")
    for table, earlier in EARLIER.items():
        text = re.sub(rf"\btable={table:d}\b", f"table={earlier}", text)
        text = re.sub(rf"\bgoto_table:{table:d}\b", f"goto_table:{earlier}", text)
        text = re.sub(rf"(cookie=0xde7500000000000){table:x}\b", rf"\g<1>{earlier:x}", text)
    path = folder / f"{bridge}.flows"
    path.write_text(text)
    ofctl("replace-flows", bridge, str(path))


def tables_of(bridge: str) -> set[int]:
    return {int(number) for number in re.findall(r"\btable=(\d+)", ofctl("dump-flows", bridge))}


def test_an_upgrade_amid_traffic_loses_less_than_an_interval(tmp_path: Path) -> None:
    topology = fig1(pns=2)
    limits_bps = {1: 40_000_000, 2: 40_000_000}
    with controlled(topology, limits_bps, tmp_path, static_arp=True, control={"on_stop": "keep"}) as (ovs, app):
        send = [sys.executable, "-c", SEND.format(ovs.fabric.vn(1, 2).ip, PER_S)]
        sender = ovs.host("v1_1").popen(send)
        app.wait_for(lambda: app.get("/v1/entries?vlan=1")["entries"], "an entry")
        sender.terminate()
        sender.communicate(timeout=5)
        assert app.stop() == 0
        bridges = [switch.name for switch in topology.switches]
        for bridge in bridges:
            renumber(bridge, tmp_path)
            assert tables_of(bridge) >= set(EARLIER.values())
            assert not tables_of(bridge) & set(EARLIER)
        receiver = ovs.host("v1_2").popen([sys.executable, "-c", RECEIVE])
        assert receiver.stdout.readline() == b"listening\n"
        sender = ovs.host("v1_1").popen(send)
        try:
            app.start()
            app.wait_ready()
            app.wait_for(lambda: not any(tables_of(bridge) & set(EARLIER.values()) for bridge in bridges), "taken over")
            assert all(tables_of(bridge) >= set(EARLIER) for bridge in bridges)
        finally:
            sender.terminate()
            sender.communicate(timeout=5)
            receiver.send_signal(signal.SIGTERM)
            output, _ = receiver.communicate(timeout=5)
        numbers = [int(word) for word in output.split()]
        lost = [later - number - 1 for number, later in itertools.pairwise(numbers)]
        print(f"lost at most {max(lost)} of {len(numbers)} datagrams in a row, {sum(lost)} in all")
        assert len(set(numbers)) == len(numbers)
        assert max(lost) < MOST_LOST
        assert sum(lost) < MOST_LOST
