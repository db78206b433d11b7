"""Starts that fail: one line that says what to mend, and status 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

from experiments.machine.controller_process import free_ports

CONFIG = """
openflow: {{listen: "127.0.0.1:{openflow}"}}
rest: {{listen: "127.0.0.1:{rest}", certificate: absent.pem, key: absent.key}}
vlans: {{10: {{send_limit: 10M, receive_limit: 10M}}}}
switches: {{s1: {{dpid: 1, ports: {{1: {{capacity: 1G, access: 10}}}}}}}}
"""


def test_a_framework_that_is_unknown_is_refused() -> None:
    command = [sys.executable, "-m", "apps.runtime.launcher", "apps.dets"]
    environment = {**os.environ, "DETS_FRAMEWORK": "os_ken"}
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (ended.returncode, ended.stderr) == (2, "DETS_FRAMEWORK: 'os_ken' must be ryu or os-ken\n")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of compiled modules that is empty at first, as on the first start: all is compiled."""
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("no.such.app", "--app: 'no.such.app' is neither a file nor a module that Python finds"),
        ("ryu.app.no_such", "--app: 'ryu.app.no_such' is neither a file nor a module that Python finds"),
        ("apps/dets.py", "rest.certificate: '{folder}/absent.pem' cannot be read: No such file or directory"),
    ],
)
def test_what_is_not_there_is_named(app: str, said: str, compiled: str, tmp_path: Path) -> None:
    file = tmp_path / "dets.yaml"
    openflow, rest = free_ports(2)
    file.write_text(CONFIG.format(openflow=openflow, rest=rest))
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    command = [sys.executable, "-m", "apps.runtime.launcher", "--dets-config", str(file), app]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.splitlines()[-1] == said.format(folder=tmp_path)
    assert "Traceback" not in ended.stderr
    assert "SyntaxWarning" not in ended.stderr


def test_files_in_the_current_folder_hide_no_modules(tmp_path: Path) -> None:
    for name in ("select.py", "numpy.py"):
        (tmp_path / name).write_text("raise SystemExit(f'{__name__} is not what was meant')\n")
    (tmp_path / "beside.py").write_text("print('loaded', flush=True)\nraise SystemExit(3)\n")
    openflow, rest = free_ports(2)
    (tmp_path / "dets.yaml").write_text(
        CONFIG.format(openflow=openflow, rest=rest).replace(", certificate: absent.pem, key: absent.key", "")
    )
    command = [Path(sys.executable).parent / "dets", "run", "--config", "dets.yaml", "--app", "beside"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (3, "loaded\n"), ended.stderr


def test_a_stop_while_applications_are_made_is_one_line(tmp_path: Path) -> None:
    app = "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\nimport eventlet\neventlet.sleep(30)\n"
    (tmp_path / "slow.py").write_text(app)
    command = [sys.executable, "-m", "apps.runtime.launcher", str(tmp_path / "slow.py")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.splitlines()[-1] == "stopped before it had started"
    assert "Traceback" not in ended.stderr
