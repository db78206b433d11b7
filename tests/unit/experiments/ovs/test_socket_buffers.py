"""Socket buffers: raised for as long as needed, never lowered, put back; and what is said of a badly set machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiments.ovs import socket_buffers
from experiments.ovs.socket_buffers import RECEIVE_BUFFER_BYTES, large_receive_buffers, vswitchd_warnings


@pytest.fixture
def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(socket_buffers, "_CORE", tmp_path)
    monkeypatch.setenv("OVS_RUNDIR", str(tmp_path))
    (tmp_path / "rmem_default").write_text("212992\n")
    (tmp_path / "wmem_default").write_text("33554432\n")
    return tmp_path


def test_the_default_is_raised_inside_and_put_back_even_after_an_error(core: Path) -> None:
    def fail_inside() -> None:
        with large_receive_buffers():
            assert int((core / "rmem_default").read_text()) == RECEIVE_BUFFER_BYTES
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert (core / "rmem_default").read_text() == "212992\n"
    (core / "rmem_default").write_text("99999999\n")  # a larger one stays
    with large_receive_buffers():
        assert (core / "rmem_default").read_text() == "99999999\n"


def test_a_small_send_buffer_and_an_ordinary_priority_are_told(core: Path) -> None:
    assert vswitchd_warnings() == []
    (core / "wmem_default").write_text("212992\n")
    (core / "ovs-vswitchd.pid").write_text(f"{os.getpid()}\n")
    expected = ["wmem_default is 212992"] + (["niceness"] if os.getpriority(os.PRIO_PROCESS, 0) >= 0 else [])
    told = vswitchd_warnings()
    assert len(told) == len(expected)
    assert all(word in line for word, line in zip(expected, told, strict=True))
