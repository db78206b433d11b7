"""``dets bench``: a sub-command per benchmark, which declares the benchmark's options, all in this module.

To add one, write a function here that ends in ``measured``. What it measures with is a function, named ``module:name``,
of those options that were given, and returns a dictionary with ``figures``, ``settings`` and ``targets``, a list of
``{name, value, unit, target, met}``. It is not imported before its turn.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from apps.cli.support.common import FAILED, AsJson, Parameters, as_option, parse_parameters
from controller.errors import InvalidValueError
from controller.units import parse_rate

app = typer.Typer()


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Run a benchmark. A missed target is printed and does not change the exit status, except soak's."""
    if context.invoked_subcommand is None:
        for command in app.registered_commands:
            assert command.callback is not None
            summary = (command.callback.__doc__ or "").partition("\n")[0]
            print(f"{command.name or command.callback.__name__:12} {summary}")


@app.command()
def allocate(as_json: AsJson = False) -> int:
    """Rate allocation algorithms, entries per second."""
    return measured("allocate", "experiments.bench.allocate.bench:run", as_json)


@app.command()
def agent(
    pairs: Annotated[int | None, typer.Option(help="Pairs of one agent.")] = None,
    seconds: Annotated[float | None, typer.Option(help="How long each rate is measured.")] = None,
    as_json: AsJson = False,
) -> int:
    """What an agent costs its host and the controller, and how true its rates are (root)."""
    return measured("agent", "experiments.bench.agent.bench:run", as_json, pairs=pairs, seconds=seconds)


@app.command()
def attack(
    seconds: Annotated[float | None, typer.Option(help="How long each attack lasts.")] = None,
    attack: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this attack; repeatable.")] = None,
    as_json: AsJson = False,
) -> int:
    """What hostile peers of OpenFlow and REST cost the control loop and the tenants of other switches."""
    return measured("attack", "experiments.bench.attack.bench:run", as_json, seconds=seconds, attack=attack or None)


@app.command()
def cluster(
    switches: Annotated[int | None, typer.Option(help="How many switches.")] = None,
    entries: Annotated[int | None, typer.Option(help="Metered entries of each.")] = None,
    repeats: Annotated[int | None, typer.Option(help="How often the active node ends in each way.")] = None,
    seconds: Annotated[float | None, typer.Option(help="How long costs are measured.")] = None,
    crossing: Annotated[
        int | None, typer.Option(help="Then so many entries between two shards, in one process.")
    ] = None,
    shared: Annotated[
        int | None, typer.Option(help="Then 1, 2 and 4 nodes with so many entries each, in one process.")
    ] = None,
    hosts: Annotated[
        int | None, typer.Option(help="Then two nodes and so many hosts, of which one changes, in one process.")
    ] = None,
    kills: Annotated[int | None, typer.Option(help="Then so many random kills and pauses in a row.")] = None,
    faults: Annotated[
        bool | None, typer.Option("--faults", help="Then partitions, full disks and clocks that step (root).")
    ] = None,
    moves: Annotated[
        bool | None, typer.Option("--moves", help="Three nodes whose switches change hands, instead of a pair.")
    ] = None,
    deaths: Annotated[int | None, typer.Option(help="With --moves: then so many nodes die, one a minute.")] = None,
    seed: Annotated[int | None, typer.Option(help="Which ones.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder of figures and plot.")] = None,
    as_json: AsJson = False,
) -> int:
    """How soon a standby takes over, what a pair costs, and kills in a row (etcd-server)."""
    options: dict[str, Any] = {
        "switches": switches,
        "entries": entries,
        "repeats": repeats,
        "seconds": seconds,
        "crossing": crossing,
        "shared": shared,
        "hosts": hosts,
        "kills": kills,
        "faults": faults,
        "moves": moves,
        "deaths": deaths,
        "seed": seed,
        "output": output,
    }
    return measured("cluster", "experiments.bench.cluster.bench:run", as_json, **options)


@app.command()
def config(
    vlans: Annotated[int | None, typer.Option(help="VLANs, each at every port.")] = None,
    ports: Annotated[int | None, typer.Option(help="Edge ports.")] = None,
    seconds: Annotated[float | None, typer.Option(help="How long nothing is done, and signals are sent.")] = None,
    reloads: Annotated[int | None, typer.Option(help="How often the file is changed and reloaded.")] = None,
    as_json: AsJson = False,
) -> int:
    """What checking, starting with and reloading a large configuration takes, and the loop misses."""
    options: dict[str, Any] = {"vlans": vlans, "ports": ports, "seconds": seconds, "reloads": reloads}
    return measured("config", "experiments.bench.config.bench:run", as_json, **options)


@app.command()
def enforcement(
    datapath: Annotated[str | None, typer.Option(help="userspace (the default) or kernel.")] = None,
    full: Annotated[bool | None, typer.Option("--full", help="All cases; else a subset.")] = None,
    grant: Annotated[list[str] | None, typer.Option(metavar="RATE", help="Only this grant; repeatable.")] = None,
    traffic: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this traffic; repeatable.")] = None,
    pattern: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this schedule; repeatable.")] = None,
    seconds: Annotated[float | None, typer.Option(help="How long each batch is measured.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of schedules that are drawn.")] = None,
    interval_ms: Annotated[int | None, typer.Option(help="The control interval.")] = None,
    bursts: Annotated[
        bool, typer.Option("--bursts", help="What bursting senders gain, and what others lose, instead.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Folder of table and plot.")] = None,
    as_json: AsJson = False,
) -> int:
    """What is delivered against what is granted, on real Open vSwitch (root)."""
    if bursts:
        others = {"datapath": datapath, "grant": grant, "traffic": traffic, "pattern": pattern, "seconds": seconds}
        others["interval_ms"] = interval_ms
        for name, value in others.items():
            if value:
                raise InvalidValueError(name, value, "means nothing with --bursts")
        options: dict[str, Any] = {"full": full, "seed": seed, "output": output}
        return measured("enforcement", "experiments.bench.enforcement.bursts:run", as_json, **options)
    return measured(
        "enforcement",
        "experiments.bench.enforcement.bench:run",
        as_json,
        datapath=datapath,
        full=full,
        grants_bps=[parse_rate(text, "grant") for text in grant] if grant else None,
        traffic=traffic or None,
        patterns=pattern or None,
        seconds=seconds,
        seed=seed,
        interval_ms=interval_ms,
        output=output,
    )


@app.command()
def fidelity(as_json: AsJson = False) -> int:
    """The model fabric against Open vSwitch (root; else the model alone)."""
    return measured("fidelity", "experiments.bench.fidelity.bench:run", as_json)


@app.command()
def loop(
    switches: Annotated[int | None, typer.Option(help="How many switches.")] = None,
    entries: Annotated[
        int | None, typer.Option(help="Metered entries of each; left out, 1,000 to a million in all.")
    ] = None,
    interval_ms: Annotated[int | None, typer.Option(help="The control interval.")] = None,
    seconds: Annotated[float | None, typer.Option(help="How long each case is measured.")] = None,
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="This one, and fp next to it, on pairs that go over four links.")
    ] = None,
    parameter: Parameters = None,
    output: Annotated[Path | None, typer.Option(help="Folder of table and plot.")] = None,
    profile: Annotated[bool | None, typer.Option("--profile", help="Show where processor time goes instead.")] = None,
    as_json: AsJson = False,
) -> int:
    """The control loop of the real application, against stock Ryu handlers, or under one algorithm against fp."""
    numbers = {"switches": switches, "entries": entries, "interval_ms": interval_ms, "seconds": seconds}
    options: dict[str, Any] = {**numbers, "output": output, "profile": profile}
    if algorithm is None:
        if parameter:
            raise InvalidValueError("parameter", parameter[0], "needs --algorithm: it is a parameter of one")
        return measured("loop", "experiments.bench.loop.bench:run", as_json, **options)
    options |= {"algorithm": algorithm, "parameters": parse_parameters(parameter)}
    try:
        return measured("loop", "experiments.bench.loop.algorithm:run", as_json, **options)
    except InvalidValueError as error:
        raise as_option(error) from error


@app.command()
def rest(
    vlans: Annotated[int | None, typer.Option(help="How many VLANs, of 20 VNs each; 1,000 when left out.")] = None,
    entries: Annotated[int | None, typer.Option(help="How many pairs talk.")] = None,
    changes: Annotated[int | None, typer.Option(help="How many VNs get other limits in one transaction.")] = None,
    streams: Annotated[int | None, typer.Option(help="How many event streams are followed.")] = None,
    seconds: Annotated[float | None, typer.Option(help="How long the loop is watched in each phase.")] = None,
    as_json: AsJson = False,
) -> int:
    """What listing, changing, scraping and following by REST cost the control loop."""
    options: dict[str, Any] = {
        "vlans": vlans,
        "entries": entries,
        "changes": changes,
        "streams": streams,
        "seconds": seconds,
    }
    return measured("rest", "experiments.bench.rest.bench:run", as_json, **options)


@app.command()
def soak(
    minutes: Annotated[float | None, typer.Option(help="How long, from 1; 30 when left out.")] = None,
    seed: Annotated[int | None, typer.Option(help="What happens when.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder of results; default results/soak.")] = None,
    as_json: AsJson = False,
) -> int:
    """Minutes of churn on Open vSwitch (root); exit status 1 if anything was missed, leaked or unexplained."""
    options: dict[str, Any] = {"minutes": minutes, "seed": seed, "output": output}
    return measured("soak", "experiments.soak.run:run", as_json, strict=True, **options)


def measured(name: str, target: str, as_json: bool, *, strict: bool = False, **options: Any) -> int:
    """Run the benchmark ``target`` with the options that are not None, and show its result.

    ``strict`` makes a missed target a failure.
    """
    module, _, function = target.partition(":")
    measure = getattr(importlib.import_module(module), function)
    # The result alone belongs on stdout; whatever else a benchmark prints goes to stderr.
    with contextlib.redirect_stdout(sys.stderr):
        result = {"name": name, **measure(**{key: value for key, value in options.items() if value is not None})}
    if as_json:
        print(json.dumps(result, allow_nan=False))
    else:
        from apps.cli.support.output import print_bench

        print_bench(result)
    return FAILED if strict and not all(row["met"] for row in result["targets"]) else 0
