"""The files with which a node speaks TLS to etcd: each that is of no use is named, with its key."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest

from apps.cli.support.certificates import create_authority, issue
from apps.cluster.etcd_client import EtcdClient
from apps.runtime.tls import renewable_client, renewable_server
from controller.errors import InvalidValueError
from controller.fabric.config_model import Tls


@pytest.mark.parametrize("key", ["ca", "certificate", "key"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, key: str) -> None:
    there = tmp_path / "there.pem"
    there.write_text("nothing")
    files = dict.fromkeys(("ca", "certificate", "key"), str(there)) | {key: "absent.pem"}
    with pytest.raises(InvalidValueError, match=rf"cluster\.{key}: 'absent.pem' cannot be read: No such file"):
        renewable_client("cluster", files["ca"], files["certificate"], files["key"])


def test_files_that_hold_nothing_of_use_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    with pytest.raises(InvalidValueError, match=r"cluster\.ca: .*empty.pem' holds no certificate"):
        renewable_client("cluster", str(empty), None, None)
    with pytest.raises(InvalidValueError, match=r"cluster.certificate: .*empty.pem' is no certificate whose key is"):
        renewable_client("cluster", None, str(empty), str(empty))


def shown_to_server(client: ssl.SSLContext, folder: Path) -> str:
    """Return the common name of the certificate that a client's context shows to a server."""
    served = renewable_server("rest", Tls(str(folder / "s.pem"), str(folder / "s.key"), str(folder / "ca.pem")))
    assert served is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")]
    ends.append(served.current.wrap_bio(to_server, to_client, server_side=True))
    for end in ends * 3:
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    subject = (ends[1].getpeercert() or {})["subject"]
    return dict(pair for parts in subject for pair in parts)["commonName"]  # type: ignore[misc, arg-type]


def test_etcd_is_shown_renewed_files_and_the_old_ones_while_these_are_broken(tmp_path: Path) -> None:
    create_authority(tmp_path, "test CA", 30)
    issue(tmp_path, "s", 30, ["127.0.0.1"])
    for name in ("node", "renewed"):
        issue(tmp_path, name, 30, None)
    etcd = EtcdClient(["https://127.0.0.1:1"], *(str(tmp_path / name) for name in ("ca.pem", "node.pem", "node.key")))
    assert etcd.tls.prepare() is None
    (tmp_path / "renewed.pem").rename(tmp_path / "node.pem")
    with pytest.raises(
        InvalidValueError, match=r"cluster\.certificate: .*node.pem' is no certificate whose key is .*node.key"
    ):
        etcd.tls.prepare()
    assert shown_to_server(etcd.tls.current, tmp_path) == "node"
    (tmp_path / "renewed.key").rename(tmp_path / "node.key")
    renew = etcd.tls.prepare()
    assert renew is not None
    assert shown_to_server(etcd.tls.current, tmp_path) == "node"
    renew()
    assert shown_to_server(etcd.tls.current, tmp_path) == "renewed"
    assert etcd.tls.prepare() is None
    (tmp_path / "node.key").unlink()
    with pytest.raises(InvalidValueError, match=r"cluster\.key: .* cannot be read: No such file"):
        etcd.tls.prepare()
