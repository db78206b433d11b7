"""The files that a run depends on, as digests: comments, docstrings and blank lines do not count.

A part is a folder with all below it, a file, or only the files of a folder. Rooms that a run does not use are excluded.
Of the pinned versions those of the packages that a run imports count.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import io
import tokenize
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from controller import rooms
from controller.policy.registry import CLASSES
from experiments.measure.manifest import PACKAGES, ROOT

SUFFIXES = (".py", ".c", ".h")
LAWS = ("allocation", "dets", "gatekeeper", "hygenicc", "policy", "seawall")
"""The folders of controller/ that decide rates."""
PINS = "constraints.txt"
COMMON = (
    "topologies",
    *(f"experiments/scenarios/{name}.py" for name in ("limits", "scenario", "traffic", "transfers")),
    *(f"experiments/evaluation/{name}.py" for name in ("entity_oracle", "measures", "oracle")),
    "experiments/measure/rate_series.py",
    PINS,
)
APPLICATION = (
    "apps/dets.py",
    *(f"apps/{name}" for name in ("agent", "ovsdb", "runtime", "settings", "southbound")),
)
"""The parts of apps/ between the switches and the laws: a run depends neither on pages nor on the command line."""
MODEL_USES_OF_OVS = ("experiments/ovs/queue_classifier.py", "experiments/ovs/static_limits.py")
FABRIC_CODE = {
    "model": ("experiments/model", "experiments/switch", *MODEL_USES_OF_OVS, "experiments/runs", "apps/agent"),
    "ovs": ("experiments/ovs", "experiments/machine", "experiments/runs", *APPLICATION),
    "wire": ("experiments/wire", "experiments/switch", "experiments/machine", "experiments/runs", *APPLICATION),
}


def depends_on(fabric: str, control: str, shaping: str = "meter", root: Path = ROOT) -> dict[str, str]:
    """Return the digest by name of every part that a run depends on, on a fabric under a control such as ``fp d=4``.

    ``shaping`` is one of scenario.SHAPINGS: with any but "meter" the agents' room counts too. Other rooms count only if
    the control is theirs. The scenario is not included: see scenario_digest.
    """
    needed = {rooms.room_of(CLASSES.get(control.split(" ")[0], ""))} | ({"agents"} if shaping != "meter" else set())
    absent = {
        package.replace(".", "/")
        for name, room in rooms.ROOMS.items()
        if name not in needed
        for package in room.packages
    }
    folders = sorted(f"controller/{folder.name}" for folder in (root / "controller").iterdir() if folder.is_dir())
    parts = ("controller/*", *(folder for folder in folders if folder not in absent), *COMMON, *FABRIC_CODE[fabric])
    return {part: digest for part in parts if (digest := part_digest(part, root))}


def scenario_digest(scenario: object, *more: object) -> str:
    """Return the digest of a scenario's settings; ``more`` are values that comparison of scenarios ignores.

    Neither a new name of a field nor a new field at its default changes it.
    """
    return _shortened(repr(([_given(scenario)], more)))


def _given(value: Any) -> Any:
    """Return a value, each dataclass in it as the numbers and values of the fields that are not at their default."""
    if dataclasses.is_dataclass(value):
        fields = [(number, field, getattr(value, field.name)) for number, field in enumerate(dataclasses.fields(value))]
        set_there = [
            (number, _given(content)) for number, field, content in fields if field.repr and content != _default(field)
        ]
        return [type(value).__name__, *set_there]
    if isinstance(value, Mapping):
        return [(key, _given(inner)) for key, inner in value.items()]
    return [_given(item) for item in value] if isinstance(value, tuple) else value


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def is_law(part: str) -> bool:
    """Whether a part decides rates."""
    return part in {f"controller/{name}" for name in LAWS}


def files_of(part: str, root: Path = ROOT) -> list[Path]:
    """Return the files of a part, in order."""
    path = root / part.removesuffix("/*")
    found = [path] if path.is_file() else path.iterdir() if part.endswith("/*") else path.rglob("*")
    return sorted(file for file in found if file.is_file() and (file == path or file.suffix in SUFFIXES))


@cache
def part_digest(part: str, root: Path = ROOT) -> str:
    """Return the digest of a part; "" without files. It is computed once: a process runs the code it started with."""
    path, files = root / part.removesuffix("/*"), files_of(part, root)
    if files == [path]:
        return _shortened(_content(path))
    named = ((file.relative_to(path).as_posix(), _content(file)) for file in files)
    return _shortened("\0".join(f"{name}\n{content}" for name, content in named)) if files else ""


def _content(file: Path) -> str:
    text = file.read_text()
    if file.name == PINS:
        return "\n".join(line for line in text.splitlines() if line.partition("==")[0].lower() in PACKAGES)
    return code_of(text) if file.suffix == ".py" else text


def code_of(source: str) -> str:
    """Return Python source without comments, docstrings, blank lines and spaces at line ends."""
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline) if "#" in source else ():
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(kept for line in lines if (kept := line.rstrip()))


def _shortened(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:12]
