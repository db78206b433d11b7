"""Certificates are read again with the configuration: ``openssl s_client`` shows which one is served."""

from __future__ import annotations

import re
import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.application import Application
from support.wire import configuration

from apps.cli.support.certificates import create_authority, issue

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="OPENSSL IS NOT THERE: nobody looks at certificates"
)


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    create_authority(tmp_path, "test CA", 30)
    for name in ("rest", "openflow", "renewed", "other"):
        issue(tmp_path, name, 30, ["127.0.0.1"])
    return tmp_path


@pytest.fixture
def app(pki: Path) -> Iterator[Application]:
    files = {name: {"certificate": f"{name}.pem", "key": f"{name}.key"} for name in ("rest", "openflow")}
    with Application(configuration({1: [1, 2]}, **files), pki) as app:
        app.wait_for(lambda: "listens for REST" in app.log(), "listening")
        yield app


def serial(address: str) -> str:
    """Return the serial number of the certificate that a listener shows."""
    client = ["openssl", "s_client", "-connect", address]
    shown = subprocess.run(client, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False).stdout
    return serial_of(shown)


def serial_of(pem: bytes) -> str:
    read = ["openssl", "x509", "-noout", "-serial"]
    return subprocess.run(read, input=pem, capture_output=True, timeout=20, check=True).stdout.decode().strip()


def replace(pki: Path, name: str, by: str, *suffixes: str) -> None:
    """Put other files where a listener's are, as tools that renew certificates do."""
    for suffix in suffixes:
        (pki / "new").write_bytes((pki / f"{by}.{suffix}").read_bytes())
        (pki / "new").rename(pki / f"{name}.{suffix}")


def test_openssl_sees_the_renewed_certificate_and_the_old_one_while_a_pair_is_broken(
    app: Application, pki: Path
) -> None:
    config = app.config()
    listen = {name: config[name]["listen"] for name in ("rest", "openflow")}
    before = {name: serial_of((pki / f"{name}.pem").read_bytes()) for name in listen}
    renewed = serial_of((pki / "renewed.pem").read_bytes())
    assert {name: serial(address) for name, address in listen.items()} == before
    replace(pki, "openflow", "renewed", "pem", "key")
    replace(pki, "rest", "other", "pem")  # and not its key
    app.send_signal(signal.SIGHUP)
    refusal = r"not reloaded, .*: rest\.certificate: '.*rest\.pem' is no certificate whose key is .*rest\.key"
    app.wait_for(lambda: re.search(refusal, app.log()), "refused by name")
    assert {name: serial(address) for name, address in listen.items()} == before
    replace(pki, "rest", "renewed", "pem", "key")
    tls = ssl.create_default_context(cafile=str(pki / "ca.pem"))
    with urllib.request.urlopen(
        urllib.request.Request(f"https://{listen['rest']}/v1/reload", b""), context=tls
    ) as answer:
        assert b"rest: certificates renewed" in answer.read()
    assert {name: serial(address) for name, address in listen.items()} == dict.fromkeys(listen, renewed)
    assert "Traceback" not in app.log()
