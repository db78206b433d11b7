"""``dets demo``, ``experiment`` and ``figures``: DETS shown and measured, on Open vSwitch or on the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apps.cli.support.common import Parameters, as_option, parse_parameters
from controller.errors import InvalidValueError
from controller.units import format_rate, parse_rate
from experiments import registry
from experiments.options import ExperimentOptions

DEFAULTS = ExperimentOptions()
UNUSED_ON = {"ovs": ("slot",), "wire": ("datapath",), "model": ("datapath",)}
OF_ISOLATION = (
    "senders",
    "link_rate",
    "victim_limit",
    "aggressor_limit",
    "udp_rate",
    "duration",
    "warmup",
    "cooldown",
    "congestion_control",
    "topology",
    "datapath",
    "slot",
    "static",
)

app = typer.Typer()


@app.command()
def demo() -> int:
    """See DETS protect a TCP tenant from a UDP blast: on Open vSwitch (root, two minutes), else on the model."""
    from experiments.demo import run as run_demo

    run_demo()
    return 0


@app.command()
def experiment(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Leave it out to list them.")] = None,
    algorithm: Annotated[str, typer.Option(help="Rate allocation algorithm.")] = DEFAULTS.algorithm,
    parameter: Parameters = None,
    senders: Annotated[int, typer.Option(help="TCP senders, and as many UDP senders.")] = DEFAULTS.senders,
    link_rate: Annotated[str, typer.Option(metavar="RATE")] = format_rate(DEFAULTS.link_rate_bps),
    victim_limit: Annotated[str, typer.Option(metavar="RATE", help="The TCP tenant's limit, wire rate.")] = format_rate(
        DEFAULTS.victim_limit_bps
    ),
    aggressor_limit: Annotated[
        str, typer.Option(metavar="RATE", help="The UDP tenant's limit, wire rate.")
    ] = format_rate(DEFAULTS.aggressor_limit_bps),
    udp_rate: Annotated[str, typer.Option(metavar="RATE", help="What each UDP sender offers.")] = format_rate(
        DEFAULTS.udp_rate_bps
    ),
    duration: Annotated[float, typer.Option(help="Seconds of UDP blast.")] = DEFAULTS.blast_s,
    warmup: Annotated[float, typer.Option(help="Seconds of TCP alone before it.")] = DEFAULTS.warmup_s,
    cooldown: Annotated[float, typer.Option(help="Seconds of TCP alone after it.")] = DEFAULTS.cooldown_s,
    congestion_control: Annotated[
        str, typer.Option(help="cubic or reno; bbr on ovs, dctcp elsewhere.")
    ] = DEFAULTS.congestion_control,
    topology: Annotated[str, typer.Option(help="dets-fig1, dets-fig5 or dets-fig7.")] = DEFAULTS.topology,
    fabric: Annotated[str, typer.Option(help="ovs (root), wire (software switches) or model.")] = DEFAULTS.fabric,
    datapath: Annotated[str, typer.Option(help="Open vSwitch datapath: user or kernel.")] = DEFAULTS.datapath,
    slot: Annotated[float, typer.Option(help="Wire and model: the grain of time, in seconds.")] = DEFAULTS.slot_s,
    seed: Annotated[int, typer.Option(help="Order of senders; on the model every chance.")] = DEFAULTS.seed,
    output: Annotated[Path | None, typer.Option(help="Output folder; default results/NAME.")] = None,
    baseline: Annotated[bool, typer.Option(help="Run it without control first.")] = DEFAULTS.baseline,
    static: Annotated[bool, typer.Option("--static", help="Run it under static equal limits too.")] = DEFAULTS.static,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = DEFAULTS.quiet,
) -> int:
    """Run an experiment on Open vSwitch (needs root), software switches or the model. A RATE is in bit/s, as 40M."""
    if name is None:
        for known, summary in {**{n: e.summary for n, e in registry.experiments.items()}, **_scenarios()}.items():
            print(f"{known:20} {summary}")
        return 0
    if name in _scenarios():
        _refuse_unused(context, OF_ISOLATION, f"means nothing to {name}, whose file in experiments/scenarios says it")
        given = context.get_parameter_source("algorithm")
        control = " ".join([algorithm, *(parameter or [])])
        controls = (control,) if given is not None and given.name == "COMMANDLINE" else ()
        return _run_scenario(name, fabric, controls, baseline, seed, output or Path("results") / name, quiet)
    entry = registry.find("an experiment", registry.experiments, name)
    _refuse_unused(context, entry.unused, f"means nothing to {name}, which runs without control")
    _refuse_unused(context, UNUSED_ON.get(fabric, ()), f"means nothing on the {fabric} fabric")
    options = ExperimentOptions(
        algorithm=algorithm,
        parameters=parse_parameters(parameter),
        senders=senders,
        link_rate_bps=parse_rate(link_rate, "link_rate"),
        victim_limit_bps=parse_rate(victim_limit, "victim_limit"),
        aggressor_limit_bps=parse_rate(aggressor_limit, "aggressor_limit"),
        udp_rate_bps=parse_rate(udp_rate, "udp_rate"),
        warmup_s=warmup,
        blast_s=duration,
        cooldown_s=cooldown,
        congestion_control=congestion_control,
        slot_s=slot,
        seed=seed,
        topology=topology,
        fabric=fabric,
        datapath=datapath,
        output=output or Path("results") / name,
        baseline=baseline,
        static=static,
        quiet=quiet,
    )
    entry.load()(_checked(options))
    return 0


@app.command()
def figures(
    fabric: Annotated[str, typer.Option(help="model (minutes), ovs (root, a quarter of an hour) or wire.")] = "model",
    only: Annotated[
        list[str] | None, typer.Option(metavar="EXPERIMENT", help="This experiment alone; repeatable.")
    ] = None,
    control: Annotated[
        list[str] | None, typer.Option(help="This control alone, as fp or 'fp d=4'; repeatable.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds of each; default: what each says.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also run what is done already.")] = False,
    output: Annotated[Path, typer.Option(help="Where runs, pictures and index.html go.")] = Path("results"),
    docs: Annotated[Path, typer.Option(help="Where results.md goes.")] = Path("docs"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> int:
    """Make every figure and claim of the paper again; what is done already is kept, so it can be interrupted."""
    from experiments.evaluation.figures import FigureOptions, make_figures

    options = FigureOptions(
        fabric=fabric,
        experiments=tuple(only or ()),
        controls=tuple(control or ()),
        seeds=seeds,
        again=again,
        results=output,
        docs=docs,
        quiet=quiet,
    )
    made = make_figures(options)
    for key, verdict in made["claims"].items():
        held = {True: "holds", False: "does not hold", None: "not known"}[verdict["holds"]]
        print(f"{key:15} {held:14} {verdict['found']}")
    print(f"{output / 'index.html'}, {docs / 'results.md'}")
    return 0


def _scenarios() -> dict[str, str]:
    """Return the titles of the scenarios by name."""
    from experiments.scenarios import scenarios

    return {name: scenario.title for name, scenario in scenarios().items()}


def _run_scenario(
    name: str, fabric: str, controls: tuple[str, ...], baseline: bool, seed: int, output: Path, quiet: bool
) -> int:
    from experiments.evaluation.single import ScenarioOptions, run

    run(name, ScenarioOptions(fabric, controls, baseline, seed, output, quiet))
    return 0


def _refuse_unused(context: typer.Context, unused: tuple[str, ...], reason: str) -> None:
    for option in unused:
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            raise InvalidValueError(option, context.params[option], reason)


def _checked(options: ExperimentOptions) -> ExperimentOptions:
    try:
        return options.checked()
    except InvalidValueError as error:
        shown = as_option(error)
        key = "duration" if shown.key == "blast" else shown.key
        raise InvalidValueError(key, shown.value, shown.reason) from error
