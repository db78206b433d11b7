"""deploy/wireshark/dets.lua reads what the codec writes: tshark finds the same numbers."""

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import ROOT

from controller.agents.control_frames import CONTROLLER_MAC, FrameAddress, Opcode, encode, records
from controller.openflow.ethernet import ETH_TYPE_LOCAL_EXPERIMENT

A, B = 0x0016_3E00_0001, 0x0016_3E00_0002
PAIR = {"sender": [A], "receiver": [B]}
PAUSE = bytes.fromhex("0180c2000001 00163e000001 8808 0001 ffff").ljust(60, b"\0")

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="dissector: tshark is not installed")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that nobody may read: as root tshark loads no Lua, and says nothing of it."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        shutil.copy(ROOT / "deploy" / "wireshark" / "dets.lua", path)
        yield path


def dissect(folder: Path, frames: list[bytes], *fields: str) -> list[list[str]]:
    """Return the fields that tshark finds in each frame, run as an ordinary user."""
    path = folder / "frames.pcap"
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, frame in enumerate(frames):
            file.write(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)
    command = ["tshark", "-X", f"lua_script:{folder}/dets.lua", "-r", str(path), "-T", "fields", "-E", "separator=|"]
    for field in fields:
        command += ["-e", field]
    user = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60, **user)
    assert done.returncode == 0, done.stderr
    return [line.split("|") for line in done.stdout.splitlines()]


def test_every_message_is_read_as_it_was_written(folder: Path) -> None:
    agent = FrameAddress(B, A, 10, 0xCAFE_BABE)
    report = records(
        Opcode.TRAFFIC_REPORT,
        **PAIR,
        measured_kbps=[50_000],
        dropped_kbps=[3],
        limit_kbps=[2**32 - 1],
        available_kbps=[100_000],
        flags=[5],
    )
    grants = records(Opcode.SET_RATE, sender=[A, A], receiver=[B, A], rate_kbps=[20_000, 40_000])
    hello = records(Opcode.HELLO, features=[7], interval_ms=[55], most_classes=[128], link_rate_kbps=[1_000_000])
    frames = [
        *encode(agent, Opcode.TRAFFIC_REPORT, report, 1, 2),
        *encode(FrameAddress(A, CONTROLLER_MAC, None, 1), Opcode.SET_RATE, grants, 3, 4),
        *encode(FrameAddress(A, CONTROLLER_MAC, 10, 1, ETH_TYPE_LOCAL_EXPERIMENT), Opcode.HELLO, hello, 5, 6),
        *(
            encode(agent, opcode, records(opcode, **PAIR), 7, 8)[0]
            for opcode in (Opcode.INITIALIZE, Opcode.KEEP_ALIVE, Opcode.DEACTIVATE)
        ),
    ]
    names = (
        "dets.opcode",
        "dets.seq",
        "dets.measured_kbps",
        "dets.limit_kbps",
        "dets.rate_kbps",
        "dets.link_rate_kbps",
    )
    assert dissect(folder, frames, *names, "_ws.col.Info") == [
        ["0xde01", "1", "50000", "4294967295", "", "", "Traffic Report, 1"],
        ["0xde03", "3", "", "", "20000,40000", "", "Set Rate, 2"],
        ["0xde06", "5", "", "", "", "1000000", "Hello, 1"],
        ["0xde02", "7", "", "", "", "", "Initialize, 1"],
        ["0xde04", "7", "", "", "", "", "Keep Alive, 1"],
        ["0xde05", "7", "", "", "", "", "Deactivate, 1"],
    ]


def test_other_control_frames_stay_wiresharks_and_a_false_count_is_an_error(folder: Path) -> None:
    [frame] = encode(
        FrameAddress(A, CONTROLLER_MAC, 10, 1), Opcode.KEEP_ALIVE, records(Opcode.KEEP_ALIVE, **PAIR), 0, 0
    )
    false_count = bytearray(frame)
    false_count[21] = 9
    rows = dissect(folder, [PAUSE, bytes(false_count)], "dets.opcode", "macc.opcode", "_ws.expert.message")
    assert rows[0][0] == ""
    assert rows[0][1] == "0x0001"
    assert rows[1][0] == "0xde04"
    assert "Count does not fit" in rows[1][2]
