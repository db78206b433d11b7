"""A change is in force once all that came of it has been sent and confirmed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from apps.change_tracker import ChangeTracker


class Peers(dict[int, Any]):
    """Two switches that have confirmed whatever they were sent."""

    def collect_confirmations(self) -> None:
        """Have nothing to note."""


class Desk:
    """A shell whose rounds send at once, and queues that were seen to at once; ``pending`` entries wait."""

    def __init__(self) -> None:
        self.pending = set[int]()
        self.switches = {dpid: SimpleNamespace(name=f"s{dpid}", ovsdb=None) for dpid in (1, 2, 3)}
        records = {dpid: SimpleNamespace(switch=switch) for dpid, switch in self.switches.items()}
        central = SimpleNamespace(switches=records, network=SimpleNamespace(desired=self))
        self.peers = Peers({dpid: SimpleNamespace(unconfirmed=list) for dpid in (1, 2)})
        shell: Any = SimpleNamespace(
            now_s=lambda: 5.0, times=SimpleNamespace(sent_after=lambda at_s: at_s), peers=self.peers, central=central
        )
        self.queues: Any = SimpleNamespace(reconciled_s=9.0, failing=dict)
        self.changes = ChangeTracker(shell, self.queues, 1)

    def waiting(self, revision: int) -> tuple[int, list[str]]:
        """Return the last change in force and who is waited for."""
        found = self.changes.status(revision)
        assert found["disconnected_switches"] == ["s3"]
        return found["installed_revision"], found["unconfirmed_switches"]


def test_flow_entries_that_wait_for_a_later_round_are_waited_for_where_a_switch_is_there() -> None:
    desk = Desk()
    assert desk.waiting(1) == (1, [])
    desk.changes.changed(2)
    desk.pending = {2, 3}
    assert desk.waiting(2) == (1, ["s2"])
    desk.pending = {3}
    assert desk.waiting(2) == (2, [])


def test_a_barrier_that_is_not_answered_is_waited_for() -> None:
    desk = Desk()
    desk.peers[1].unconfirmed = lambda: [(5.0, None)]
    assert desk.waiting(1) == (0, ["s1"])
    desk.peers[1].unconfirmed = list
    assert desk.waiting(1) == (1, [])


def test_queues_that_were_last_seen_to_before_a_change_are_waited_for() -> None:
    desk = Desk()
    desk.switches[2].ovsdb = "unix:/run/db.sock"
    desk.queues.reconciled_s = 4.0
    assert desk.waiting(1) == (0, ["s2"])
    desk.queues.reconciled_s = 9.0
    assert desk.waiting(1) == (1, [])
