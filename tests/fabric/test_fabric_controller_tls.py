"""Open vSwitch connects to the real application over TLS: several switches, and nobody else."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.application import Application
from support.ovs import controlled

from apps.cli.support.certificates import create_authority, issue
from experiments.ovs.fabric import OvsFabric
from experiments.ovs.ovs_vsctl import vsctl
from topologies.builders import fig7

HELLO = bytes.fromhex("0400000800000001")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("pki")
    create_authority(folder, "test CA", 30)
    issue(folder, "controller", 30, ["127.0.0.1"])
    issue(folder, "switch", 30, None)
    vsctl("set-ssl", *(str(folder / name) for name in ("switch.key", "switch.pem", "ca.pem")))
    yield folder
    vsctl("del-ssl")


@pytest.fixture(scope="module")
def fabric(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OvsFabric, Application]]:
    files = {"certificate": "controller.pem", "key": "controller.key", "client_ca": "ca.pem"}
    openflow = {key: str(pki / name) for key, name in files.items()}
    folder = tmp_path_factory.mktemp("tls")
    with controlled(fig7(), {1: 40_000_000, 2: 40_000_000}, folder, scheme="ssl", openflow=openflow) as both:
        yield both


def endpoint(app: Application) -> tuple[str, int]:
    host, _, port = app.config()["openflow"]["listen"].rpartition(":")
    return host, int(port)


def test_all_switches_are_ready_and_forward(fabric: tuple[OvsFabric, Application], can_connect) -> None:
    ovs, app = fabric
    assert len(app.get("/v1/health")["switches"]) == len(ovs.fabric.switches) > 1
    vns = [vn for vn in ovs.fabric.vns() if vn.vlan_vid == 1]
    assert can_connect(ovs, vns[0].name, vns[-1].name)


def refusal(app: Application, context: ssl.SSLContext | None) -> str:
    """What becomes of somebody who says hello in this way."""
    with contextlib.ExitStack() as opened:
        connection = opened.enter_context(socket.create_connection(endpoint(app), timeout=15))
        try:
            if context is None:
                connection.sendall(HELLO)
            else:  # the controller greets first: what is written before its verdict may meet a closed connection
                connection = opened.enter_context(context.wrap_socket(connection, server_hostname="127.0.0.1"))
            return "closed" if connection.recv(8) == b"" else "served"
        except OSError as error:
            return str(error)


def test_who_has_no_certificate_is_refused_and_the_switches_stay(
    fabric: tuple[OvsFabric, Application], pki: Path
) -> None:
    _, app = fabric
    last = app.last_event()
    stranger = ssl.create_default_context(cafile=pki / "ca.pem")
    assert "CERTIFICATE_REQUIRED" in refusal(app, stranger)
    assert refusal(app, None) in ("closed", "[Errno 104] Connection reset by peer")
    # Of one address's refusals the first is logged, then one in a while.
    app.wait_for(lambda: "did not return a certificate" in app.log(), "told of the refusal")
    friend = ssl.create_default_context(cafile=pki / "ca.pem")
    friend.load_cert_chain(pki / "switch.pem", pki / "switch.key")
    assert refusal(app, friend) == "served"
    assert [event["kind"] for event in app.events("switch-down", last)] == []
    assert app.get("/v1/health")["status"] == "ready"
