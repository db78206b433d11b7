"""Run a command with Open vSwitch's kernel datapath: natively if this kernel has it, or else in user-mode-linux.

    python -m experiments.machine.kernel_datapath -- dets bench enforcement --datapath kernel

Debian's user-mode-linux is a kernel, with all modules of a Debian, that runs as a process. It boots on this machine's
own root file system, which it can read and not write; /run, /tmp, /var/log and /etc/openvswitch are its own and vanish
with it. It runs its own Open vSwitch, so nothing of the host's is visible or changed. Source: docs/experiments.md.
Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from experiments.machine.cpu_usage import disable_cpu_idle

ROOT = Path(__file__).resolve().parents[2]
INIT, STATE = Path(__file__).with_suffix(".sh"), Path(__file__).with_suffix(".c")
KERNEL = "linux.uml"
MODULES = Path("/usr/lib/uml/modules")
PACKAGE = "user-mode-linux"
COVERED = ("/run", "/tmp", "/var/log", "/etc/openvswitch")
NEEDED_PROGRAMS = {"ovs-vswitchd": "openvswitch-switch", "mnexec": "mininet", "modprobe": "kmod"}
MEMORY_BYTES = 1 << 30
TIMEOUT_S = 600.0
TIMED_OUT = 124  # as timeout(1) returns
NO_STATUS = 125  # it ended without the command's exit status


def is_native() -> bool:
    """Return whether this kernel has Open vSwitch's module, loaded or loadable."""
    if Path("/sys/module/openvswitch").exists():
        return True
    try:
        done = subprocess.run(["modprobe", "-n", "-q", "openvswitch"], capture_output=True, check=False, timeout=10)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def why_not_emulated() -> str | None:
    """Return the reason why this machine cannot run user-mode-linux with Open vSwitch; None if it can."""
    if os.geteuid() != 0:
        return "not root"
    if shutil.which(KERNEL) is None or not MODULES.is_dir():
        return f"the kernel has no openvswitch module and Debian's {PACKAGE} is not installed"
    missing = [package for program, package in NEEDED_PROGRAMS.items() if shutil.which(program) is None]
    return f"needs Debian's {', '.join(missing)}" if missing else None


class UserModeLinux:
    """A command inside user-mode-linux: started by ``with``; afterwards all of its processes are ended.

    ``folder`` must exist; the command may write there, nowhere else on the host. The files console.log (the kernel's
    own messages) and ovs-vswitchd.log go there. ``exchange`` is a folder that exists while the command runs.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | int | None = None,
    ) -> None:
        self.folder = folder.resolve()
        self._command = list(command)
        self._environment = dict(environment or {})
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self._awake = contextlib.ExitStack()
        self.exchange = Path()

    def __enter__(self) -> UserModeLinux:
        # A folder made here: the kernel's command line allows no blanks, which other paths may have.
        self.exchange = Path(tempfile.mkdtemp(prefix="uml-"))
        shutil.copy(INIT, self.exchange / "init")
        self.exchange.joinpath("order.sh").write_text(order(self._command, self._environment, self.folder))
        memory = choose_memory_folder()
        with self.folder.joinpath("console.log").open("wb") as console:
            error = self._output if self._output is not None else 2
            self._process = subprocess.Popen(
                [
                    shutil.which(KERNEL) or KERNEL,
                    f"mem={MEMORY_BYTES >> 20}M",
                    *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"),
                    f"uml_dir={self.exchange}",
                    f"init={self.exchange / 'init'}",
                    f"EXCHANGE={self.exchange}",
                    *("con=null", f"con0=null,fd:{console.fileno()}", "con1=null,fd:1", "con2=null,fd:2"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=error,
                pass_fds=[console.fileno()],
                env={"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": memory, **amx_environment(self.exchange)},
                start_new_session=True,
            )
        self._awake.enter_context(disable_cpu_idle())
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        assert self._process is not None
        return self._process.poll() is not None

    def wait(self, timeout_s: float) -> int:
        """Return the command's exit status; TIMED_OUT after ``timeout_s``, NO_STATUS if it ended without one."""
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        try:
            return int(self.exchange.joinpath("status").read_text())
        except (OSError, ValueError):
            return NO_STATUS

    def stop(self) -> None:
        """End it at once, with every process inside."""
        self._awake.close()
        if self._process is not None:
            # The processes inside are children of the kernel's process, in its session.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
            shutil.rmtree(self.exchange, ignore_errors=True)


def order(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> str:
    """Return the script for the first process inside: what is covered, what is needed below that, the command.

    ``folder`` is the writable one.
    """
    needed = {str(ROOT), sys.prefix, sys.base_prefix}
    hidden = sorted(path for path in needed if _is_covered(path))
    # Consoles are terminals, but unattended.
    quiet = {"TERM": "dumb", "NO_COLOR": "1"}
    settings = {"HOME": "/run", "PYTHONDONTWRITEBYTECODE": "1", **quiet, **environment}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    return (
        f"COVERED={shlex.quote(' '.join(COVERED))}\nNEEDED={shlex.quote(chr(10).join(hidden))}\n"
        f"FOLDER={shlex.quote(str(folder))}\n"
        f"order() {{\ncd {shlex.quote(str(ROOT))} || return 1\n{exports}{shlex.join(command)}\n}}\n"
    )


def _is_covered(path: str) -> bool:
    """Return whether a path is below one of the folders that the guest replaces by its own."""
    return any(Path(path).is_relative_to(folder) for folder in COVERED)


def amx_environment(folder: Path) -> dict[str, str]:
    """Return the environment in which the kernel also runs on processors with AMX.

    Its library is made in ``folder``.

    {} without a C compiler: then the kernel does not run on processors with AMX.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return {}
    library = folder / "state.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(STATE)], check=True)
    return {"LD_PRELOAD": str(library)}


def choose_memory_folder() -> str:
    """Return the folder for the file that is the guest's memory: /dev/shm if it has the space."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage("/dev/shm").free >= MEMORY_BYTES:
            return "/dev/shm"
    return tempfile.gettempdir()


def run(command: Sequence[str], folder: Path | None, timeout_s: float) -> int:
    """Run a command, natively or in user-mode-linux, and return its exit status, TIMED_OUT after ``timeout_s``.

    Raises RuntimeError if neither is possible.
    """
    if is_native():
        try:
            return subprocess.run(command, check=False, timeout=timeout_s).returncode
        except subprocess.TimeoutExpired:
            print("timed out", file=sys.stderr)
            return TIMED_OUT
    reason = why_not_emulated()
    if reason is not None:
        raise RuntimeError(f"no kernel datapath: {reason}")
    with tempfile.TemporaryDirectory(prefix="dets-kernel-") as own:
        with UserModeLinux(command, folder or Path(own)) as machine:
            status = machine.wait(timeout_s)
        if status in (TIMED_OUT, NO_STATUS):
            output = machine.folder.joinpath("console.log").read_text(errors="replace")
            print(f"user-mode-linux: {'timed out' if status == TIMED_OUT else 'ended'}\n{output}", file=sys.stderr)
        return status


def main(arguments: list[str]) -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.machine.kernel_datapath", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--folder", type=Path, help="folder of the host that the command may write to; by default none")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds (default: %(default)g)")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    options = parser.parse_args(arguments)
    try:
        return run(options.command, options.folder, options.timeout)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
