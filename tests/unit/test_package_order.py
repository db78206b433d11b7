"""The walls between the packages: who may import whom, as the table in CONTRIBUTING.md says."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
from support.paths import ROOT

TOPS = ("controller", "apps", "topologies", "experiments")
MAX_FILES = 14
# Files of their own next to the packages of a top-level folder.
MAX_TOP_FILES = 8
BEGIN, END = "<!-- package order -->", "<!-- end -->"


def modules() -> dict[str, Path]:
    found = {}
    for top in TOPS:
        for path in (ROOT / top).rglob("*.py"):
            found[".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def package(module: str) -> str:
    return ".".join(MODULES[module].relative_to(ROOT).parts[:-1])


def order() -> list[list[str]]:
    """Return the packages floor by floor, the ground first, as CONTRIBUTING.md has them."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split(BEGIN)[1].split(END)[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    return [re.findall(r"`([\w.]+)/?`", row.replace("/", ".").replace(".`", "`")) for row in rows]


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for every import of the project's own, those within functions included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in TOPS:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner, "") if inner in MODULES else (node.module, alias.name)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name in MODULES)


@cache
def all_imports() -> list[tuple[str, str, str]]:
    return [(module, *found) for module in sorted(MODULES) for found in imports(MODULES[module])]


def test_the_table_names_every_package_once() -> None:
    named = [one for floor in order() for one in floor]
    assert len(named) == len(set(named))
    assert set(named) == {package(module) for module in MODULES if MODULES[module].name != "__init__.py"} | {
        package(module) for module, path in MODULES.items() if path.name == "__init__.py" and list(imports(path))
    }


def test_modules_import_only_from_floors_below_their_own() -> None:
    floor_of = {name: number for number, floor in enumerate(order()) for name in floor}
    assert [
        f"{module} imports {other}"
        for module, other, _ in all_imports()
        if package(other) != package(module) and floor_of[package(other)] >= floor_of[package(module)]
    ] == []


def test_no_private_name_of_another_package_is_imported() -> None:
    assert [
        f"{module} imports {other}.{name}"
        for module, other, name in all_imports()
        if package(other) != package(module)
        and any(word.startswith("_") and not word.startswith("__") for word in (*other.split("."), name))
    ] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = nx.DiGraph((module, other) for module, other, _ in all_imports() if other != module)
    assert [sorted(one) for one in nx.strongly_connected_components(graph) if len(one) > 1] == []


def test_rooms_are_small_and_say_what_they_are_for() -> None:
    for folder in {path.parent for path in MODULES.values()}:
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= MAX_FILES, folder
        if folder.name in TOPS:
            assert len(files) <= MAX_TOP_FILES, folder
        docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
        assert docstring, f"{folder}: __init__.py must say what the room is for"
