"""When which switch is audited, in a process of its own: audits import the framework."""

from __future__ import annotations

import subprocess
import sys

AUDITS = """
from types import SimpleNamespace
import eventlet.wsgi
eventlet.wsgi.ALREADY_HANDLED = []  # as the launcher does
from apps.southbound import audits
from apps.southbound.connected_switches import SwitchState

done, now_s, awaited = [], 0.0, True

class ConnectedSwitches(dict):
    clock = staticmethod(lambda: now_s)
    fabric = SimpleNamespace(awaits_switches=lambda now_s: awaited, switches=range(10))
    central = SimpleNamespace(fabric=fabric)

def peer(dpid, compared):
    ready = {"state": SwitchState.READY, "in_audit": False}
    return SimpleNamespace(connection=SimpleNamespace(dpid=dpid), compared=compared, cleaned_up=compared, **ready)

audits.trim_heap = lambda: done.append("given back")
audits.Audits._run = lambda self, peer: done.append(peer.connection.dpid)

def run(one, *peers):
    one._peers.clear()
    one._peers |= {peer.connection.dpid: peer for peer in peers}
    one.run_all()
    print(*done, sep=", ")
    done.clear()

awaited = False
for compared in ([True, True], [True, False], []):
    peers = [peer(dpid, one) for dpid, one in enumerate(compared)]
    run(audits.Audits(ConnectedSwitches(), None, lambda: done.append("breathed")), *peers)

awaited = True
one = audits.Audits(ConnectedSwitches(), None, lambda: None)
came, old = peer(1, False), peer(2, True)
for now_s in (0.0, 10.0):
    run(one, came, old)
run(one, peer(1, False), old)  # it has come again
now_s = 15.0
run(one, old)  # and goes
now_s = 20.0
run(one, peer(1, False), peer(3, False), old)
awaited = False
run(one, peer(3, False))
"""


def test_all_are_audited_but_those_that_have_just_come_while_others_are_awaited() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", AUDITS], capture_output=True, text=True, check=True)
    none_awaited = ["0, 1", "0, 1, breathed, given back", ""]
    awaited = ["2", "2", "2", "2", "1, 2, given back"]
    assert done.stdout.splitlines() == [*none_awaited, *awaited, "3, given back"]
