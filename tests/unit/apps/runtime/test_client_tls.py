"""The files with which a node speaks TLS to etcd: each that is of no use is named, with its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.runtime.tls import client_context
from controller.errors import InvalidValueError


@pytest.mark.parametrize("key", ["ca", "certificate", "key"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, key: str) -> None:
    there = tmp_path / "there.pem"
    there.write_text("nothing")
    files = dict.fromkeys(("ca", "certificate", "key"), str(there)) | {key: "absent.pem"}
    with pytest.raises(InvalidValueError, match=rf"cluster\.{key}: 'absent.pem' cannot be read: No such file"):
        client_context("cluster", files["ca"], files["certificate"], files["key"])


def test_files_that_hold_nothing_of_use_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    with pytest.raises(InvalidValueError, match=r"cluster\.ca: .*empty.pem' holds no certificate"):
        client_context("cluster", str(empty), None, None)
    with pytest.raises(InvalidValueError, match=r"cluster.certificate: .*empty.pem' is no certificate whose key is"):
        client_context("cluster", None, str(empty), str(empty))
