"""Who has a port: this process, a controller, one that may not be read, nobody."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from apps.runtime.port_holder import port_holder

ROW = "   0: {address}:1F90 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 1000 0 4711 1 0 100 0\n"
LOCAL, ANY, ANY6, MAPPED = "0100007F", "00000000", "0" * 32, "0000000000000000FFFF00000100007F"


def proc(folder: Path, address: str = LOCAL, state: str = "0A") -> Path:
    (folder / "net").mkdir()
    table = "tcp" if len(address) == 8 else "tcp6"
    (folder / "net" / table).write_text("  sl  local_address\n" + ROW.format(address=address, state=state))
    return folder


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0"])
def test_a_process_is_named(listening: str) -> None:
    with socket.create_server((listening, 0)) as taken:
        said = port_holder("127.0.0.1", taken.getsockname()[1])
    assert said.endswith(f" (process {os.getpid()})")


def test_another_process_is_named() -> None:
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    command = [sys.executable, "-c", code, "apps.runtime.launcher"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        assert port_holder("127.0.0.1", port) == f"another DETS controller (process {other.pid})"
        other.communicate("\n", timeout=30)


@pytest.mark.parametrize("address", [LOCAL, ANY, ANY6, MAPPED])
def test_a_process_of_another_user_is_not_named(address: str, tmp_path: Path) -> None:
    assert port_holder("127.0.0.1", 8080, proc(tmp_path, address)) == "a process of user 1000"


@pytest.mark.parametrize(
    ("host", "port", "state"), [("127.0.0.2", 8080, "0A"), ("127.0.0.1", 8081, "0A"), ("127.0.0.1", 8080, "01")]
)
def test_sockets_that_are_in_nobodys_way_are_passed_over(host: str, port: int, state: str, tmp_path: Path) -> None:
    assert port_holder(host, port, proc(tmp_path, state=state)) == "another program"


def test_a_name_moves_no_cursor(tmp_path: Path) -> None:
    process = proc(tmp_path) / "12"
    (process / "fd").mkdir(parents=True)
    (process / "fd" / "3").symlink_to("socket:[4711]")
    (process / "cmdline").write_bytes(b"x\0")
    (process / "comm").write_text("a\x1b[2J\n")
    said = port_holder("127.0.0.1", 8080, tmp_path)
    assert said.isprintable()
    assert said.endswith("(process 12)")


def test_without_proc_it_is_another_program(tmp_path: Path) -> None:
    assert port_holder("127.0.0.1", 8080, tmp_path) == "another program"
