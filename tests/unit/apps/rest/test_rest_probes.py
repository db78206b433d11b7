"""What load balancers, orchestrators and Prometheus ask for."""

from __future__ import annotations

from typing import Any

import pytest
from support.rest_in_process import Desk

FOREIGN = {"Host": "10.1.2.3:8080"}


def test_a_process_that_serves_is_live_and_ready_under_any_name(desk: Desk) -> None:
    for path, status in (("/v1/live", "live"), ("/v1/ready", "ready")):
        answer = desk.client.get(path, headers=FOREIGN)
        assert (answer.status_code, answer.get_json()) == (200, {"status": status})
    assert desk.client.get("/v1/health", headers=FOREIGN).status_code == 421


@pytest.mark.parametrize(
    ("health", "reason"),
    [
        ({"loops": {"control": {"failures": 3, "fault": "stuck for 9 s"}}}, "control: stuck for 9 s"),
        ({"cluster": {"etcd": "no answer"}}, "etcd: no answer"),
    ],
)
def test_what_keeps_the_process_from_its_work_is_the_reason(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, health: dict[str, Any], reason: str
) -> None:
    health = {"status": "degraded", "switches": {}, **health}
    monkeypatch.setattr(desk.service, "health", lambda: health)
    assert desk.get("/v1/health") == health
    answer = desk.client.get("/v1/ready")
    assert (answer.status_code, answer.get_json()["detail"]) == (503, reason)
    assert desk.client.get("/v1/live").status_code == 200


def test_a_switch_that_is_away_takes_nobody_from_the_load_balancer(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    health = {"status": "degraded", "switches": {"s1": "disconnected"}, "loops": {"control": {"fault": None}}}
    monkeypatch.setattr(desk.service, "health", lambda: health)
    assert desk.client.get("/v1/ready").status_code == 200


def test_metrics_are_picked_by_name_and_other_parameters_ignored(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    page = b"# HELP a_total x\n# TYPE a_total counter\na_total 1.0\n", b'b{vlan="1"} 2\nab 3\nb 4\n'
    monkeypatch.setattr(desk.service, "metrics", lambda: iter(page))
    assert desk.client.get("/metrics?timeout=10&timeout=20").data == b"".join(page)
    assert desk.client.get("/metrics?name[]=b&name[]=a_total&x=1").data == b'a_total 1.0\nb{vlan="1"} 2\nb 4\n'
    assert desk.client.get("/metrics?name[]=none").data == b""
    assert desk.client.get("/metrics?" + "&".join(41 * ["name[]=b"])).status_code == 422
