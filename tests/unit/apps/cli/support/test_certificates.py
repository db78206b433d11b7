"""``dets cert`` and TLS contexts: who is let in by which certificate, and what is said of files that are unusable."""

from __future__ import annotations

import contextlib
import ssl
import stat
from unittest.mock import Mock

import pytest
from support.rest_server import CONFIG

from apps.cli import main
from apps.cli.support.certificates import create_authority, issue
from apps.runtime.tls import TlsConnection, renewable_server
from controller.config.loader import parse_config
from controller.config.yaml_document import ConfigError
from controller.errors import InvalidValueError
from controller.fabric.config_model import Tls


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    create_authority(folder, "test CA", 30)
    issue(folder, "controller", 30, ["controller.lab", "127.0.0.1", "::1"])
    issue(folder, "s1", 30, None)
    return folder


def tls(pki, name="controller", client_ca="ca.pem"):
    return Tls(str(pki / f"{name}.pem"), str(pki / f"{name}.key"), str(pki / client_ca) if client_ca else None)


def served(key, files):
    return renewable_server(key, files).current


def client_context(pki, name=None):
    context = ssl.create_default_context(cafile=pki / "ca.pem")
    if name is not None:
        context.load_cert_chain(pki / f"{name}.pem", pki / f"{name}.key")
    return context


def handshake(server, client, host="controller.lab"):
    """Let two ends of a connection in memory shake hands; the error of the one that refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_end = client.wrap_bio(to_client, to_server, server_hostname=host)
    ends = [client_end, server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
        if not ends:
            return client_end.version()
    raise AssertionError("no end of the handshake")


@pytest.mark.parametrize(
    ("client_ca", "client", "host", "refusal"),
    [
        ("ca.pem", "s1", "controller.lab", None),
        ("ca.pem", "s1", "127.0.0.1", None),
        ("ca.pem", "s1", "::1", None),
        ("ca.pem", "s1", "elsewhere.lab", "Hostname mismatch"),
        ("ca.pem", None, "controller.lab", "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        ("ca.pem", "controller", "controller.lab", r"CERTIFICATE_VERIFY_FAILED.*purpose"),
        (None, None, "controller.lab", None),
    ],
)
def test_the_controller_and_its_switch_know_each_other(pki, client_ca, client, host, refusal):
    server = served("openflow", tls(pki, client_ca=client_ca))
    with pytest.raises(ssl.SSLError, match=refusal) if refusal else contextlib.nullcontext():
        assert handshake(server, client_context(pki, client), host) == "TLSv1.3"


def test_a_certificate_of_another_ca_is_refused(pki, tmp_path):
    create_authority(tmp_path, "another CA", 30)
    issue(tmp_path, "s1", 30, None)
    stranger = client_context(pki)
    stranger.load_cert_chain(tmp_path / "s1.pem", tmp_path / "s1.key")
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        handshake(served("openflow", tls(pki)), stranger)


def test_a_certificate_for_both_is_a_servers_and_a_clients(pki, tmp_path):
    create_authority(tmp_path, "test CA", 30)
    issue(tmp_path, "member", 30, ["127.0.0.1"], client=True)
    both = tls(tmp_path, "member")
    assert handshake(served("openflow", both), client_context(tmp_path, "member"), "127.0.0.1") == "TLSv1.3"


@pytest.mark.parametrize(
    ("files", "key", "reason"),
    [
        (("absent.pem", "controller.key", None), "openflow.certificate", "No such file"),
        (("controller.pem", "absent.key", None), "openflow.key", "No such file"),
        (("controller.pem", "controller.key", "absent.pem"), "openflow.client_ca", "No such file"),
        (("controller.pem", "s1.key", None), "openflow.certificate", "KEY_VALUES_MISMATCH"),
        (("controller.pem", "controller.key", "s1.key"), "openflow.client_ca", "holds no certificate"),
    ],
)
def test_unusable_files_are_named(pki, files, key, reason):
    with pytest.raises(InvalidValueError, match=reason) as refusal:
        served("openflow", Tls(*(str(pki / name) if name else None for name in files)))
    assert refusal.value.key == key


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"certificate": "c.pem"}, "openflow.certificate: is set without openflow.key: TLS needs both"),
        ({"key": "c.key"}, "openflow.key: is set without openflow.certificate: TLS needs both"),
        ({"client_ca": "ca.pem"}, "openflow.client_ca: is set without openflow.certificate: it is for TLS"),
    ],
)
def test_half_a_tls_configuration_is_refused(keys, said):
    lines = "".join(f"  {key}: {value}\n" for key, value in keys.items())
    with pytest.raises(ConfigError, match=said):
        parse_config(f"{CONFIG}openflow:\n{lines}")


def test_files_are_relative_to_the_configuration():
    openflow = "openflow: {certificate: pki/c.pem, key: /etc/pki/c.key, client_ca: pki/ca.pem}\n"
    assert parse_config(CONFIG + openflow, "/etc/dets/dets.yaml").openflow_tls == Tls(
        "/etc/dets/pki/c.pem", "/etc/pki/c.key", "/etc/dets/pki/ca.pem"
    )


def test_the_command_makes_files_that_fit_and_keeps_what_is_there(tmp_path, capsys):
    folder = tmp_path / "pki"
    at = ["--folder", str(folder)]
    assert main(["cert", "server", "c1", "--host", "127.0.0.1", *at]) == 2
    assert "make one with dets cert ca" in capsys.readouterr().err
    assert main(["cert", "ca", *at]) == 0
    assert main(["cert", "server", "c1", "--host", "127.0.0.1", *at]) == 0
    assert main(["cert", "client", "s1", *at]) == 0
    assert capsys.readouterr().out.split() == [
        str(folder / f"{name}.{kind}") for name in ("ca", "c1", "s1") for kind in ("pem", "key")
    ]
    assert stat.S_IMODE((folder / "c1.key").stat().st_mode) == 0o600
    before = (folder / "ca.key").read_bytes()
    assert main(["cert", "ca", *at]) == 2
    assert "holds ca.pem already" in capsys.readouterr().err
    assert (folder / "ca.key").read_bytes() == before
    assert handshake(served("rest", tls(folder, "c1")), client_context(folder, "s1"), "127.0.0.1") == "TLSv1.3"


@pytest.mark.parametrize(
    "words",
    [
        ["server", "../c1", "--host", "127.0.0.1"],
        ["client", "c1", "--days", "0"],
        ["client", "x" * 65],
        ["server", "c1", "--host", "ö.lab"],
        ["server", "c1", "--host", ""],
        ["server", "c1", "--host", "a b"],
        ["server", "c1", "--host", "http://a"],
        ["server", "c1", "--host", "a..b"],
    ],
)
def test_bad_words_are_refused_and_leave_nothing(pki, words, capsys):
    before = sorted(pki.iterdir())
    assert main(["cert", *words, "--folder", str(pki)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert sorted(pki.iterdir()) == before


@pytest.mark.parametrize("error", [ssl.SSLEOFError(), ssl.SSLZeroReturnError(), ValueError("closed")])
def test_the_end_of_a_tls_connection_looks_like_that_of_a_plain_one(error):
    assert TlsConnection(Mock(recv=Mock(side_effect=error))).recv(8) == b""


def test_a_time_out_is_no_end():
    with pytest.raises(TimeoutError):
        TlsConnection(Mock(recv=Mock(side_effect=TimeoutError))).recv(8)


def test_nothing_is_read_after_a_shutdown():
    plain = Mock(fileno=lambda: 7)
    connection = TlsConnection(plain)
    connection.sendall(b"bytes")
    connection.shutdown(1)
    assert (connection.recv(8), connection.fileno()) == (b"", 7)
    plain.recv.assert_not_called()
    plain.shutdown.assert_called_once_with(1)
    assert bytes(plain.sendall.call_args.args[0]) == b"bytes"
