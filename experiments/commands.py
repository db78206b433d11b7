"""Sub-commands of ``dets`` for trying, showing and measuring DETS.

They exist if ``experiments`` is installed (``apps.cli``). Each imports what it needs itself.
"""

from __future__ import annotations

import dataclasses
import inspect
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from apps.cli.support.command_options import option_of, with_options
from apps.cli.support.common import Parameters, as_option, echo, parse_parameters
from controller.errors import InvalidValueError
from controller.units import format_rate, parse_rate
from experiments import benches
from experiments.experiment_options import ExperimentOptions, option_name

KINDS = {"int": int, "float": float, "str": str, "bool": bool, "Path | None": Path | None}

app = typer.Typer()


@app.command()
def lab(
    config: Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="The controller's configuration.")],
    offer: Annotated[
        list[str] | None,
        typer.Option(metavar="VID/SWITCH:PORT/SWITCH:PORT/RATE", help="One host's traffic to another; repeatable."),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Duration; by default until Ctrl-C.")
    ] = None,
) -> int:
    """Run software switches with the ports of a configuration, a host behind each VN, and traffic; without root."""
    from controller.config.loader import load_config
    from experiments.wire.lab import Lab, parse_offer

    if duration is not None and not 0.0 < duration <= 1e6:
        raise InvalidValueError("duration", duration, "must be above 0 and at most 1000000 seconds")
    loaded = load_config(config)
    offers = [parse_offer(text, loaded) for text in offer or []]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if loaded.rest.ui:
        scheme = "http" if loaded.rest.tls is None else "https"
        echo(f"web UI of the controller: {scheme}://{loaded.rest.listen}/ui", flush=True)
    with Lab(loaded, offers) as running:
        try:
            running.run(lambda text: echo(text, flush=True), duration)
        except KeyboardInterrupt:
            echo("stopped", flush=True)
    return 0


@app.command()
def topology(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME[,KEY=VALUE...]", help="A topology, as for mn --topo.")
    ] = None,
    openflow_port: Annotated[
        int, typer.Option(metavar="PORT", help="Where switches connect.", min=1, max=65535)
    ] = 6653,
    rest_port: Annotated[int, typer.Option(metavar="PORT", help="Where REST is served.", min=1, max=65535)] = 8080,
) -> int:
    """Write a configuration for a topology, with equal limits for all VLANs; without a name, list the topologies."""
    from experiments.machine.controller_process import configuration, dump_yaml, has_ovsdb
    from topologies.builders import build, fabrics

    if name is None:
        for fabric_name, builder in fabrics.items():
            echo(",".join([fabric_name, *inspect.signature(builder).parameters]))
        return 0
    try:
        fabric = build(name)
    except ValueError as error:
        raise InvalidValueError("NAME", None, str(error)) from None
    limits_bps = {
        vid: min(pn.link_rate_bps // len(pn.vlans) for pn in fabric.pns if vid in pn.vlans) // 1000 * 1000
        for vid in fabric.vlans
    }
    document = configuration(fabric, limits_bps, "fp", {}, openflow_port, rest_port, queues=has_ovsdb())
    print(dump_yaml(document), end="")
    return 0


@app.command()
def demo(
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Three controllers in sharded mode; one is killed. Needs etcd-server.")
    ] = False,
) -> int:
    """See DETS protect a TCP tenant from a UDP blast: on Open vSwitch (root, two minutes), or else on the model."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from experiments.demo import run as run_demo
    from experiments.demo import run_cluster

    (run_cluster if cluster else run_demo)()
    return 0


def running(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of an experiment, as ``ExperimentOptions``."""
    fields = {option_name(field): field for field in dataclasses.fields(ExperimentOptions)}

    def options_of(**values: Any) -> ExperimentOptions:
        return ExperimentOptions(**{fields[name].name: _value(name, value) for name, value in values.items()})

    return with_options(command, [_parameter(name, field) for name, field in fields.items()], options_of)


def _parameter(name: str, field: dataclasses.Field[Any]) -> inspect.Parameter:
    """Return a field as an option of the command line: a rate as text, a switch that is off as a flag."""
    if name == "parameter":
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Parameters)
    kind: Any = KINDS[str(field.type)]
    default: Any = field.default
    words = [f"--{name}"] if default is False else []
    words += [field.metadata["short"]] if field.metadata["short"] else []
    option = typer.Option(*words, help=field.metadata["help"] or None)
    if field.name.endswith("_bps"):
        kind, default, option.metavar = str, format_rate(default), "RATE"
    return option_of(None, name, kind, option, default)


def _value(name: str, value: Any) -> Any:
    """Return the value of an option as its field holds it: rates and parameters are parsed."""
    if name == "parameter":
        return parse_parameters(value)
    return parse_rate(value, name) if f"{name}_bps" in ExperimentOptions.__slots__ else value


@app.command()
@running
def experiment(
    options: ExperimentOptions,
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Leave it out to list them.")] = None,
) -> int:
    """Run an experiment on Open vSwitch (needs root), software switches or the model. A RATE is in bit/s, as 40M."""
    if name is None:
        from experiments.scenarios import scenarios

        for scenario_name, scenario in scenarios().items():
            print(f"{scenario_name:20} {scenario.title}")
        return 0
    from experiments.experiment_runner import run

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    set_by_user = {
        key for key in context.params if getattr(context.get_parameter_source(key), "name", "") == "COMMANDLINE"
    }
    try:
        run(name, options, set_by_user)
    except InvalidValueError as error:
        raise as_option(error) from error
    return 0


@app.command()
def figures(
    paper: Annotated[str, typer.Option(help="The paper whose claims are judged.")] = "dets",
    fabric: Annotated[str, typer.Option(help="model (minutes), ovs (root, a quarter of an hour) or wire.")] = "model",
    only: Annotated[
        list[str] | None, typer.Option(metavar="EXPERIMENT", help="Only this experiment; repeatable.")
    ] = None,
    control: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this control, such as fp or 'fp d=4'; repeatable.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds of each experiment; by default its own number.")] = None,
    conditions: Annotated[
        str, typer.Option(help="product, paper (no shaping queue at receivers; late grants on the model) or both.")
    ] = "both",
    force: Annotated[bool, typer.Option("--force", help="Repeat runs that are complete.")] = False,
    pages_only: Annotated[
        bool, typer.Option("--pages-only", help="Run nothing; write the pages from DOCS/results/*.json.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Run nothing; list pages that an older version made; exit status 1 if any."),
    ] = False,
    repeat: Annotated[
        bool, typer.Option("--repeat", help="Repeat one seed of each control on the model and compare.")
    ] = False,
    output: Annotated[Path, typer.Option(help="Folder of runs and pictures.")] = Path("results"),
    docs: Annotated[Path, typer.Option(help="Folder of results.md and results/.")] = Path("docs"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Make every figure and claim of a paper again. Complete runs are kept, so the command can be interrupted."""
    from experiments.figures.figure_runner import FigureOptions, make_figures, repeat_runs, stale_pages, write_pages
    from experiments.figures.markdown_pages import page_of
    from experiments.figures.result_digests import HOLDS
    from experiments.papers import paper_named

    options = FigureOptions(
        paper=paper,
        fabric=fabric,
        experiments=tuple(only or ()),
        controls=tuple(control or ()),
        seeds=seeds,
        conditions=conditions,
        force=force,
        results=output,
        docs=docs,
        quiet=quiet,
    )
    if check:
        stale = stale_pages(docs)
        print(*(stale or ["all pages are of this tree"]), sep="\n")
        return 1 if stale else 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that runs end what they have started
    if repeat:
        changed = repeat_runs(options)
        print(*(changed or ["all runs that were repeated gave the same"]), sep="\n")
        return 1 if changed else 0
    if pages_only:
        print(*write_pages(options), sep="\n")
        return 0
    digest = make_figures(options)
    for key, verdict in digest["claims"].items():
        print(f"{key:15} {HOLDS[verdict['holds']]:9} {verdict['result']}")
    print(f"{options.runs_folder}, {docs / page_of(paper_named(paper))}")
    return 0


app.add_typer(benches.app, name="bench", cls=benches.Benches)
