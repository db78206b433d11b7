"""When which switch is audited."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import support.framework  # noqa: F401

from apps.southbound import audits
from apps.southbound.connected_switches import SwitchState


class Desk(dict[int, Any]):
    """Connected switches of ten, on a clock that is moved by hand, and what their audits have done."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s, self.awaited, self.done = 0.0, False, list[object]()
        self.fabric = SimpleNamespace(awaits_switches=lambda now_s: self.awaited, switches=range(10))
        self.central = SimpleNamespace(fabric=self.fabric)
        self.audits = audits.Audits(self, None, lambda: self.done.append("breathed"))  # type: ignore[arg-type]

    def clock(self) -> float:
        return self.now_s

    def run(self, *peers: Any) -> list[object]:
        self.clear()
        self |= {peer.connection.dpid: peer for peer in peers}
        self.audits.run_all()
        done, self.done[:] = list(self.done), []
        return done


def peer(dpid: int, compared: bool) -> Any:
    ready = {"state": SwitchState.READY, "in_audit": False}
    return SimpleNamespace(connection=SimpleNamespace(dpid=dpid), compared=compared, cleaned_up=compared, **ready)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk()
    monkeypatch.setattr(audits, "trim_heap", lambda: made.done.append("given back"))
    monkeypatch.setattr(audits.Audits, "_run", lambda _self, one: made.done.append(one.connection.dpid))
    return made


def test_all_are_audited_and_after_the_first_time_memory_is_given_back(desk: Desk) -> None:
    assert desk.run(peer(0, True), peer(1, True)) == [0, 1]
    assert desk.run(peer(0, True), peer(1, False)) == [0, 1, "breathed", "given back"]
    assert desk.run() == []


def test_those_that_have_just_come_wait_while_others_are_awaited(desk: Desk) -> None:
    desk.awaited, came, old = True, peer(1, False), peer(2, True)
    for now_s in (0.0, 10.0):
        desk.now_s = now_s
        assert desk.run(came, old) == [2]
    assert desk.run(peer(1, False), old) == [2], "it has come again"
    desk.now_s = 15.0
    assert desk.run(old) == [2], "it goes"
    desk.now_s = 20.0
    assert desk.run(peer(1, False), peer(3, False), old) == [1, 2, "breathed", "given back"]
    desk.awaited = False
    assert desk.run(peer(3, False)) == [3, "breathed", "given back"]
