"""The rooms can be taken out: nothing imports them but ``controller.rooms``, and the rest runs without."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.missing_packages import KERNELS, VARIABLE
from support.paths import ROOT

from controller.rooms import ROOMS

BY_STRING = {
    "controller/plugins/__init__.py",  # the metadata of packages
    "controller/rooms.py",
    "controller/native_loader.py",
    "apps/runtime/os_ken_manager.py",  # Ryu's modules under another name
}
STARTED = """
import json, sys
sys.path.insert(0, "tests/support")
from missing_packages import leave_out_as_told
leave_out_as_told()
from apps.runtime import launcher
launcher._prepare()
import apps.cli, apps.dets
print(json.dumps(sorted(sys.modules)))
from controller.config.yaml_document import ConfigError
from controller.config.loader import load_config
for path in sys.argv[1:]:
    try:
        load_config(path)
    except ConfigError as error:
        print(error)
"""
CONFIG = """\
rest: {{ui: {ui}}}
vlans: {{10: {{algorithm: {algorithm}, send_limit: 100M, receive_limit: 100M}}}}
switches: {{s1: {{dpid: 1, ports: {{1: {{capacity: 1G, access: 10, agent: {agent}}}}}}}}}
{cluster}
"""
DEFAULTS = {"algorithm": "fs", "agent": "none", "ui": "false", "cluster": ""}
ASKS = {
    "agents": ("agent", "trust", "'trust' needs agents on hosts"),
    "cluster": ("cluster", "cluster: {node: n1, etcd: ['http://127.0.0.1:2379']}", "'n1' needs several controllers"),
    "seawall": ("algorithm", "seawall-exact", "'seawall-exact' needs Seawall's policies"),
    "gatekeeper": ("algorithm", "gatekeeper", "'gatekeeper' needs Gatekeeper's policy"),
    "hygenicc": ("algorithm", "hygenicc", "'hygenicc' needs HyGenICC's policy"),
    "ui": ("ui", "true", "True needs the web UI"),
}
"""What asks for a room, and what is said where it is missing."""


def is_of(room: str, module: str) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in ROOMS[room].packages)


def imports() -> Iterator[tuple[str, str]]:
    """Yield (module, what it imports) of all imports of what the controller is made of."""
    for top in ("controller", "apps"):
        for path in sorted((ROOT / top).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module:
                    yield from ((module, f"{node.module}.{alias.name}") for alias in node.names)
                elif isinstance(node, ast.Import):
                    yield from ((module, alias.name) for alias in node.names)


def test_nothing_outside_of_a_room_imports_it() -> None:
    assert not {
        (module, room)
        for module, other in imports()
        for room in ROOMS
        if is_of(room, other) and not is_of(room, module)
    }


def test_modules_are_imported_by_their_names_in_one_place() -> None:
    found = set()
    for top in ("controller", "apps"):
        for path in (ROOT / top).rglob("*.py"):
            if re.search(r"\b(importlib|__import__|find_spec)\b", path.read_text(encoding="utf-8")):
                found.add(str(path.relative_to(ROOT)))
    assert found == BY_STRING


def test_the_table_of_packages_marks_the_rooms() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    marked = {one.replace("/", ".") for one in re.findall(r"`([\w/]+)` \(room\)", text)}
    assert marked == {package for one in ROOMS.values() if one.install != "dets-lab" for package in one.packages}
    assert all((ROOT / package.replace(".", "/")).is_dir() for package in marked)


@pytest.mark.parametrize("room", [*ROOMS, KERNELS])
def test_the_rest_starts_without_a_room_and_says_what_needs_it(room, tmp_path) -> None:
    paths = []
    if room in ASKS:
        key, value, sentence = ASKS[room]
        paths.append(tmp_path / "dets.yaml")
        paths[0].write_text(CONFIG.format(**DEFAULTS | {key: value}))
    command = [sys.executable, "-W", "ignore", "-c", STARTED, *map(str, paths)]
    done = subprocess.run(
        command, cwd=ROOT, env={VARIABLE: room, "PATH": ""}, capture_output=True, text=True, check=True
    )
    loaded, *said = done.stdout.splitlines()
    if room == KERNELS:
        assert not [module for module in json.loads(loaded) if module.startswith("controller.") and "._" in module]
    else:
        assert not [module for module in json.loads(loaded) if is_of(room, module)]
    if room in ASKS:
        (line,) = said
        assert f"{sentence}: pip install {ROOMS[room].install}" in line
