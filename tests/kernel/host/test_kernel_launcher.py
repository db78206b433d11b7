"""user-mode-linux from outside: what a command inside can and cannot do, and that nothing outlives its end."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from experiments.machine.kernel_datapath import NO_STATUS, ROOT, TIMED_OUT, UserModeLinux, order, run

INSIDE = """
echo written >"$1/answer"
cat /sys/module/openvswitch/initstate >>"$1/answer"
ovs-vsctl --timeout=20 list-br | wc -l >>"$1/answer"
for folder in "$2" /root /etc /var/tmp; do
    touch "$folder/dets-was-here" 2>/dev/null && echo "could write $folder" >>"$1/answer"
done
touch /run/own /tmp/own /var/log/own /etc/openvswitch/own || echo "could not write its own" >>"$1/answer"
exit 3
"""


def processes_of(folder: str) -> list[int]:
    """The processes that have a folder in their command line: the kernel and all inside."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if folder in (entry / "cmdline").read_text(errors="replace"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_a_command_has_its_own_switch_and_cannot_write_the_host(tmp_path: Path) -> None:
    folder = tmp_path / "exchange with blanks"
    folder.mkdir()
    assert run(["sh", "-c", INSIDE, "sh", str(folder), str(ROOT)], folder, 120.0) == 3
    assert (folder / "answer").read_text().split() == ["written", "live", "0"]
    for forbidden in (ROOT, "/root", "/etc", "/var/tmp"):
        assert not os.path.lexists(f"{forbidden}/dets-was-here")
    for own in ("/run/own", "/tmp/own", "/var/log/own", "/etc/openvswitch/own"):
        assert not os.path.lexists(own)


def test_time_out_ends_everything_inside(tmp_path: Path) -> None:
    command = ["sh", "-c", f"touch {tmp_path}/started; sleep 1000"]
    with UserModeLinux(command, tmp_path) as machine:
        deadline_s = time.monotonic() + 60
        while not (tmp_path / "started").exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        assert machine.wait(0.1) == TIMED_OUT
        own = str(machine.exchange)
        assert len(processes_of(own)) > 1
    while processes_of(own):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_going_down_without_a_word_is_told(tmp_path: Path) -> None:
    with UserModeLinux(["halt", "-f"], tmp_path, output=subprocess.DEVNULL) as machine:
        assert machine.wait(60.0) == NO_STATUS
        assert machine.ended


def test_an_order_shows_what_lies_under_covered_folders() -> None:
    text = order(["echo", "a b"], {"NAME": "it's"}, Path("/tmp/x y"))
    assert "FOLDER='/tmp/x y'\n" in text
    assert "echo 'a b'\n" in text
    assert "export NAME='it'\"'\"'s'\n" in text
