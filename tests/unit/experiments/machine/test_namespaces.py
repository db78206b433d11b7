"""The addresses of experiments that run at the same time."""

from __future__ import annotations

import os

import pytest

from controller.errors import InvalidValueError
from experiments.machine.namespaces import MAX_HOSTS, PROCESSES, Namespaces


def addresses(pid: int, monkeypatch: pytest.MonkeyPatch, count: int = 3, more: int = MAX_HOSTS - 3) -> list[str]:
    monkeypatch.setattr(os, "getpid", lambda: pid)
    made = Namespaces(count, more)
    return [made.host, *made.hosts, *made.more_hosts]


def test_processes_have_networks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = [*range(600), *range(PROCESSES - 600, PROCESSES)]
    found = [one for pid in pids for one in addresses(pid, monkeypatch)]
    assert len(set(found)) == len(found) == len(pids) * (MAX_HOSTS + 1)
    assert found[0] == "10.200.0.1"
    assert found[-1] == "10.214.165.254"


def test_more_than_a_network_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidValueError, match=r"count: 14 is above 13"):
        addresses(1, monkeypatch, 2, MAX_HOSTS - 1)
