"""What ``make dist`` makes is installed with the documented command, controls, and is removed again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.paths import ROOT

from controller import __version__
from experiments.machine.controller_process import configuration, free_ports
from topologies.builders import fig1

pytestmark = pytest.mark.long
INSTALL_S = 300.0
CONTROL = ROOT / "tests" / "support" / "installed_control.sh"
CONTROLLED = [f"{name}: limit set and reset" for name in ("dets run", "ryu-manager")]
# In a copy of this machine's files, with processes and a network of its own: $1 holds the package and the script.
IN_A_COPY = """
set -eu
mount -t tmpfs dets /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay dets -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
mkdir /mnt/root/srv/dets
cp "$1"/* /mnt/root/srv/dets
mount -t proc dets /mnt/root/proc
mount --rbind /dev /mnt/root/dev
mount -t tmpfs dets /mnt/root/run
ip link set lo up
chroot /mnt/root sh -euc '
    dpkg --install /srv/dets/dets.deb >&2
    stat --format "%U:%G %a" /etc/dets/dets.yaml
    install -d -o dets -g dets -m 700 /var/lib/dets # as the unit does
    cd /var/lib/dets
    setpriv --reuid dets --regid dets --clear-groups \
        sh /srv/dets/installed_control.sh /opt/dets/bin /etc/dets/dets.yaml 10 s1:1 127.0.0.1:8080
    dpkg --purge dets-controller >&2
    for left in /opt/dets /etc/dets /var/lib/dets /usr/bin/dets; do [ ! -e $left ] || echo $left; done
    ! id dets 2>/dev/null'
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Path:
    """The folder of a release, with a wheel for this Python, which pip builds and installs with what an index has."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--retries", "0", "--no-deps", "setuptools"]
    if subprocess.run(pip, cwd=tmp_path_factory.mktemp("index"), capture_output=True, check=False).returncode:
        pytest.skip("NO PACKAGE INDEX: no release is made and installed")
    folder = tmp_path_factory.mktemp("dist")
    run(ROOT / "scripts" / "dist", folder, sys.executable)
    return folder


def run(*words, **options) -> str:
    """Run a command that must succeed. No wheels but the index's and the release's are known to pip."""
    environment = {name: value for name, value in os.environ.items() if name != "PIP_FIND_LINKS"}
    done = subprocess.run(
        [str(word) for word in words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def documented(first: str) -> str:
    """The line of the operator's guide that begins so."""
    guide = (ROOT / "docs" / "operator-guide.md").read_text()
    return re.search(rf"^    ({re.escape(first)}.*)$", guide, re.MULTILINE)[1]


def test_it_has_all_parts_and_their_sums(release):
    names = {path.name for path in release.iterdir() if path.suffix != ".deb"}
    version = __version__
    tag = f"cp3{sys.version_info[1]}"
    (wheel,) = [name for name in names if name.startswith(f"dets_controller-{version}-{tag}-{tag}-manylinux")]
    rest = {"CHANGELOG.md", "README", "SHA256SUMS", "constraints.txt", "deploy", f"dets-controller-{version}.tar.gz"}
    assert names == {*rest, wheel, f"dets_lab-{version}-py3-none-any.whl", "ryu-4.34-py3-none-any.whl"}
    run("sha256sum", "--quiet", "--strict", "--check", "SHA256SUMS", cwd=release)
    files = sum(path.is_file() for path in release.rglob("*"))
    assert len((release / "SHA256SUMS").read_text().splitlines()) == files - 1


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="NO REPOSITORY: which files it has is not known")
def test_the_sdist_has_the_repositorys_files(release):
    (sdist,) = release.glob("*.tar.gz")
    held = {name.partition("/")[2] for name in run("tar", "--list", "--file", sdist).splitlines()}
    assert set(run("git", "ls-files", cwd=ROOT).splitlines()) - held == {".gitignore"}
    assert {name for name in held if name.endswith((".pyc", ".so"))} == set()


def test_it_installs_into_an_empty_environment_and_out_of_it(release, tmp_path):
    folder = tmp_path / "dets"
    run(sys.executable, "-m", "venv", folder)
    command = documented("/opt/dets/bin/pip install --find-links")
    assert f"    {command}\n" in (release / "README").read_text()
    command = command.replace("/opt/dets", str(folder))
    run("sh", "-c", command, cwd=release)
    fabric = fig1(pns=2)
    config = configuration(fabric, dict.fromkeys(fabric.vlans, 10_000_000), "fp", {"d": 2}, *free_ports(2))
    (tmp_path / "dets.yaml").write_text(yaml.safe_dump(config | {"store": {"file": str(tmp_path / "dets.db")}}))
    vlan, port = min(fabric.vlans), f"{fabric.switches[0].name}:1"
    said = run("sh", CONTROL, folder / "bin", "dets.yaml", vlan, port, config["rest"]["listen"], cwd=tmp_path)
    assert said.splitlines() == CONTROLLED
    run(folder / "bin" / "pip", "uninstall", "--yes", "dets-controller", "ryu")
    assert not [name for name in ("dets", "ryu-manager", "ryu") if (folder / "bin" / name).exists()]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("dpkg-deb") is None, reason="NOT ROOT ON DEBIAN")
def test_the_debian_package_installs_and_purges(release, tmp_path):
    (package,) = release.glob("*.deb")
    shutil.copy(package, tmp_path / "dets.deb")
    shutil.copy(CONTROL, tmp_path)
    isolated = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child")
    said = run(*isolated, "sh", "-c", IN_A_COPY, "sh", tmp_path)
    assert said.splitlines() == ["root:dets 640", *CONTROLLED]
