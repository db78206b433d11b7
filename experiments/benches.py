"""``dets bench``: a sub-command for each benchmark, whose options are the parameters of its ``run``.

To add a benchmark, write its ``run`` with ``experiments.bench.harness``, and its line in BENCHES. A benchmark is
imported only when it runs, or for its help.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import signal
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

import typer

from apps.cli.support.command_options import option_of
from apps.cli.support.common import FAILED, AsJson, Commands, as_option
from controller.errors import InvalidValueError

NAMES = ("allocation", "agent", "attack", "cluster", "config", "enforcement", "fidelity", "loop", "model", "rest")
BENCHES = {name: f"experiments.bench.{name}.bench" for name in NAMES} | {"soak": "experiments.soak.run"}
STRICT = ("soak",)  # a missed target is a failure


class Benches(Commands):
    """The group whose commands are the benchmarks."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the benchmarks."""
        return list(BENCHES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a benchmark's command; None for an unknown name."""
        return command_of(cmd_name) if cmd_name in BENCHES else None


app = typer.Typer(cls=Benches)


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Run a benchmark. A missed target is printed and does not change the exit status, except soak's."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that benchmarks end what they have started
    if context.invoked_subcommand is None:
        for name in BENCHES:
            print(f"{name:12} {_summary(_run_of(name))}")


def command_of(name: str) -> Any:
    """Return the sub-command of a benchmark."""
    run = _run_of(name)

    @functools.wraps(run)
    def command(as_json: bool, **options: Any) -> int:
        # Only the result goes to stdout; all other output of a benchmark goes to stderr.
        with contextlib.redirect_stdout(sys.stderr):
            try:
                result = {"name": name, **run(**options)}
            except InvalidValueError as error:
                raise as_option(error) from error
        if as_json:
            print(json.dumps(result, allow_nan=False))
        else:
            print_result(result)
        return FAILED if name in STRICT and not all(row["met"] for row in result["targets"]) else 0

    options = [_option(parameter) for parameter in inspect.signature(run, eval_str=True).parameters.values()]
    json_option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)
    # Typer takes the options of a command from its signature.
    command.__signature__ = inspect.Signature([*options, json_option])  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in (*options, json_option)}
    single_command = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single_command.command(name, help=_summary(run))(command)
    return typer.main.get_command(single_command)


def _run_of(name: str) -> Callable[..., dict[str, Any]]:
    """Return the function ``run`` of a benchmark."""
    run: Callable[..., dict[str, Any]] = importlib.import_module(BENCHES[name]).run
    return run


def _summary(run: Callable[..., Any]) -> str:
    """Return the first line of a docstring."""
    return (run.__doc__ or "").partition("\n")[0]


def _option(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter of ``run`` as an option: annotated with its help, or with its typer annotation."""
    value_type, help_text = typing.get_args(parameter.annotation)
    if not isinstance(help_text, str):
        return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    flag = [f"--{parameter.name.replace('_', '-')}"] if parameter.default is False else []
    metavar = parameter.name.upper() if "list" in str(value_type) else None
    option = typer.Option(*flag, help=help_text, metavar=metavar)
    return option_of(None, parameter.name, value_type, option, parameter.default)


def print_result(result: Mapping[str, Any]) -> None:
    """Print a benchmark's figures and targets."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    figures = Table(title=f"bench {result['name']}", title_justify="left")
    figures.add_column("figure")
    figures.add_column("value", justify="right")
    for name, value in _flat(result.get("figures", {})):
        figures.add_row(name, _shown(value))
    console.print(figures)
    targets = Table(title="targets", title_justify="left")
    for column in ("target", "value", "wanted", "unit", "met"):
        targets.add_column(column)
    for row in result.get("targets", []):
        verdict = "[green]yes[/green]" if row["met"] else "[red]no[/red]"
        targets.add_row(str(row["name"]), _shown(row["value"]), _shown(row["target"]), str(row["unit"]), verdict)
    console.print(targets)


def _flat(figures: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return the (path, value) of each figure in nested figures."""
    pairs = figures.items() if isinstance(figures, Mapping) else enumerate(figures)
    rows: list[tuple[str, Any]] = []
    for key, value in pairs:
        name = f"{prefix}{key}"
        nested = isinstance(value, Mapping | list)
        rows += _flat(value, f"{name}.") if nested else [(name, value)]
    return rows


def _shown(value: Any) -> str:
    """Return a value of a figure as text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
