"""The real application and its store: one controller at a time, and nothing acknowledged that would be lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from support.application import Application
from support.paths import ROOT
from support.wire import configuration

from experiments.machine.controller_process import free_ports

VN = "/v1/vns/10/s1/1"


@contextmanager
def serving(folder: Path) -> Iterator[Application]:
    with Application(configuration({1: [1, 2]}), folder) as app:
        app.wait_for(lambda: app.request("GET", "/v1/health")[0] == 200, "it serves", 60.0)
        yield app


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """One for all tests that leave its store as it is to be."""
    with serving(tmp_path_factory.mktemp("store")) as app:
        yield app


def set_limit(app, send_limit_bps):
    body = b'{"send_limit_bps": %d}' % send_limit_bps
    return app.request("PATCH", VN, body)


def store(app) -> Path:
    return app.config_path.with_suffix(".db")


def test_a_second_controller_on_the_store_is_refused_and_told_who_has_it(app, tmp_path):
    (tmp_path / "second").mkdir()
    config = configuration({1: [1, 2]}, store={"file": str(store(app))})
    second = Application(config, tmp_path / "second")
    second.by_command = True
    with second:
        assert second.wait_ended(60) == 2
    assert f"is in use by process {app.pid} on host" in second.log()
    assert "Traceback" not in second.log()
    assert set_limit(app, 30_000_000)[0] == 200


def unlink(path: Path) -> None:
    path.unlink()


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xa5" * (path.stat().st_size // 2))


@pytest.mark.parametrize("damage", [unlink, overwrite])
def test_a_store_damaged_under_it_takes_no_change_and_loses_none(tmp_path, damage: Callable[[Path], None]):
    with serving(tmp_path) as app:
        assert set_limit(app, 30_000_000)[0] == 200
        damage(store(app))
        for _ in range(2):
            status, kind, problem = set_limit(app, 20_000_000)
            assert (status, kind) == (503, "application/problem+json")
            assert problem["type"] == "urn:dets:problem:store"
            assert str(store(app)) in problem["detail"]
            assert problem["detail"].endswith("nothing has changed")
        assert len(app.events("store-write-failed")) == 1
        assert app.get(VN)["send_limit_bps"] == 30_000_000


def test_the_store_of_0_1_0_is_carried_on(tmp_path):
    """Limits, a VLAN's values, a token and history, left by a build of 0.1.0 with the container's configuration."""
    shutil.copy(Path(__file__).parent / "data" / "store-0.1.0.db", tmp_path / "old.db")
    config = yaml.safe_load((ROOT / "deploy" / "container" / "dets.yaml").read_text())
    openflow, rest = free_ports(2)
    config |= {"openflow": {"listen": f"127.0.0.1:{openflow}"}, "store": {"file": str(tmp_path / "old.db")}}
    config["rest"] = {"listen": f"127.0.0.1:{rest}", "authentication": "token"}
    with Application(config, tmp_path) as app:
        app.token = "dets_rytsUhEV2BjcCz6Vyax0APeYi3MLotd3iMyI5pGByjw"
        app.wait_for(lambda: app.request("GET", "/v1/vlans/20")[0] == 200, "it serves", 60.0)
        vlan = app.request("GET", "/v1/vlans/20")[2]
        assert (vlan["name"], vlan["algorithm"]) == ("crimson", "sp")
        assert app.request("GET", "/v1/vns/10/s1/3")[2]["receive_limit_bps"] == 100_000_000
        assert app.request("GET", "/v1/vns/10/s1/1")[2]["send_limit_bps"] == 400_000_000
        assert app.request("GET", "/v1/vns/20/s1/2")[2]["weight"] == 2.0
        status, _, changed = app.request("PATCH", "/v1/vns/10/s1/3", b'{"receive_limit_bps": 200000000}')
        assert (status, changed["receive_limit_bps"]) == (200, 200_000_000)
        assert changed["revision"] > 6
        app.token = app.token[:-1]
        assert app.request("GET", "/v1/vlans/20")[0] == 401
