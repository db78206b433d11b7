"""One way for each job: what there may be one of, and who may still do it by themselves. Names here only go."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from support.paths import ROOT

PRODUCT = ("controller", "apps", "experiments", "topologies")


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def doing(found: Callable[[ast.AST], bool], *tops: str) -> set[str]:
    """Return the files, by their paths, that do something."""
    paths = [path for top in tops for path in (ROOT / top).rglob("*.py")]
    return {str(path.relative_to(ROOT)) for path in paths if any(map(found, nodes(path)))}


def is_call_of(name: str) -> Callable[[ast.AST], bool]:
    return lambda node: isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def defines(name: str) -> Callable[[ast.AST], bool]:
    return lambda node: isinstance(node, ast.FunctionDef) and node.name == name


def imports_http(node: ast.AST) -> bool:
    modules = ("urllib.request", "http.client")
    if isinstance(node, ast.ImportFrom):
        return node.module in modules
    return isinstance(node, ast.Import) and any(one.name in modules for one in node.names)


def starts_a_controller(node: ast.AST) -> bool:
    """Whether it is the command of one: a list with these words."""
    words = [one.value for one in node.elts if isinstance(one, ast.Constant)] if isinstance(node, ast.List) else []
    return "apps.runtime.launcher" in words or {"apps.cli", "run"} <= set(words)


def asks_for_a_library(node: ast.AST) -> bool:
    """Whether compiled passes are looked for, as ``kernel.library is None`` does."""
    return any(isinstance(one, ast.Attribute) and one.attr == "library" for one in compared_to_none(node))


def asks_what_is_absent(node: ast.AST) -> bool:
    """Whether it asks if there is something that has a null object."""
    absent = {"share", "membership", "agents"}
    return any(getattr(one, "attr", getattr(one, "id", "")) in absent for one in compared_to_none(node))


def compared_to_none(node: ast.AST) -> Iterator[ast.expr]:
    is_asked = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot)
    if is_asked and isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None:
        yield node.left


METERING = "controller/metering"
WAYS = {
    "parameters of policies": (is_call_of("Parameter"), PRODUCT, {"controller/allocation/parameters.py"}),
    "REST clients": (
        imports_http,
        (*PRODUCT, "tests/support"),
        {
            *(f"apps/cli/support/{name}.py" for name in ("answers", "rest_client", "timed_http")),
            *("apps/cluster/etcd_client.py", "apps/cluster/rest/node_client.py"),  # other servers
            "tests/support/rest_server.py",  # how it answers on the wire
            "topologies/mininet_controller.py",  # mn runs it without the command line
        },
    ),
    "starting controllers": (
        starts_a_controller,
        ("experiments", "tests/support"),
        {"experiments/machine/controller_process.py", "experiments/bench/loop/bench.py"},  # a plain Ryu, to compare
    ),
    "compiled or plain": (
        asks_for_a_library,
        PRODUCT,
        {
            "controller/native_loader.py",
            *(f"{METERING}/{name}.py" for name in ("guarantees", "receive_budgets", "counters", "send_limit_meters")),
            *("controller/openflow/meters.py", "controller/switch/flow_stats_reader.py"),
            *("controller/capability/meter_monitor.py", "apps/runtime/connection/ryu_datapath.py"),
            *(
                "apps/runtime/sockets/socket_reader.py",
                "controller/node_protocol/encoder.py",
                "controller/node_protocol/decoder.py",
            ),
            *(
                f"controller/shards/{name}.py"
                for name in ("pair_partition", "received_grants", "merged_reports", "grant_replies")
            ),
            *("controller/shards/receiver_table.py", "experiments/bench/allocation/bench.py"),
        },
    ),
    "targets of benchmarks": (defines("_target"), ("experiments/bench",), set()),
    "null objects": (asks_what_is_absent, ("controller", "apps"), set()),
}


@pytest.mark.parametrize("job", WAYS)
def test_a_job_is_done_in_one_way(job: str) -> None:
    found, tops, allowed = WAYS[job]
    assert doing(found, *tops) - allowed == set()
