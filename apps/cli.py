"""The ``dets`` command.

Its start must be quick: what a sub-command needs is imported inside it, so that no numpy, networkx or controller
framework is loaded for ``--help``. Exit status: 0 done, 1 failed, 2 what was asked for is not acceptable.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from controller import __version__
from controller.errors import DetsError, InvalidValueError
from controller.units import format_rate, parse_rate
from experiments import registry
from experiments.options import ExperimentOptions

FAILED, REFUSED, INTERRUPTED = 1, 2, 130
DEFAULTS = ExperimentOptions()
UNUSED_ON = {"ovs": ("slot",), "model": ("datapath",)}
DEFAULT_URL = "http://127.0.0.1:8080"
# typer carries click inside itself, or beside itself before 0.26; the base of its own error is click's in both.
_ClickError: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="dets",
    help="DETS: tenants' rate limits enforced by one OpenFlow 1.3 controller.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status; errors people can mend are one line each on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--traceback" in arguments:
        return _run([word for word in arguments if word != "--traceback"])
    try:
        return _run(arguments)
    except (DetsError, RuntimeError, OSError, ImportError) as error:
        _complain(f"{type(error).__name__}: {error}" if isinstance(error, ImportError) else str(error))
        return FAILED


def _run(arguments: list[str]) -> int:
    try:
        status = app(arguments, prog_name="dets", standalone_mode=False)
    except InvalidValueError as error:
        option = error.key if error.key == "NAME" else f"--{error.key.removesuffix('_bps').replace('_', '-')}"
        _complain(f"{option}: {error.value!r} {error.reason}")
        return REFUSED
    except _ClickError as error:
        message = error.format_message()
        if message:
            _complain(f"{message} (see dets --help)")
        return REFUSED
    if status == INTERRUPTED:  # what typer makes of Ctrl-C
        _complain("interrupted")
    return status if isinstance(status, int) else 0


def _complain(message: str) -> None:
    print(f"dets: {message}", file=sys.stderr)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where an error comes from.")] = False,
) -> None:
    if version:
        print(f"dets {__version__}")
        raise typer.Exit


@app.command()
def check(config: Annotated[str, typer.Argument(metavar="CONFIG", help="The YAML file.")]) -> int:
    """Check a configuration file, offline; every problem is told with line and column."""
    from controller.config import ConfigError, load_config

    try:
        loaded = load_config(config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return REFUSED
    ports, vns = sum(1 for _ in loaded.ports()), sum(1 for _ in loaded.vns())
    counts = [
        (len(loaded.switches), "switch", "es"),
        (ports, "edge port", "s"),
        (len(loaded.vlans), "VLAN", "s"),
        (vns, "VN", "s"),
    ]
    words = ", ".join(f"{count} {word}{'' if count == 1 else plural}" for count, word, plural in counts)
    print(f"ok: {words}; control every {loaded.interval_ms} ms")
    return 0


@app.command()
def run(
    config: Annotated[str, typer.Option("--config", "-c", metavar="FILE", help="The YAML file.")],
    extra: Annotated[
        list[str] | None, typer.Option("--app", metavar="MODULE", help="Another Ryu application to load; repeatable.")
    ] = None,
) -> int:
    """Run the controller until SIGINT or SIGTERM."""
    from apps.launcher import main as launch
    from controller.config_file import ConfigError

    try:
        return launch(config, list(extra or []))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return REFUSED


@app.command()
def explain(
    vlan: Annotated[int, typer.Option(metavar="VID", help="The VLAN.")],
    sender: Annotated[str, typer.Option("--from", metavar="SWITCH:PORT", help="The sending VN's edge port.")],
    receiver: Annotated[
        str | None,
        typer.Option("--to", metavar="SWITCH:PORT", help="The receiving VN's; without it, all pairs of --from."),
    ] = None,
    url: Annotated[str, typer.Option(help="Where the controller's REST interface is.")] = DEFAULT_URL,
    output: Annotated[str, typer.Option("--output", "-o", metavar="text|json")] = "text",
) -> int:
    """Tell what binds the limit of a pair of VNs in a running controller, and what would bind it next."""
    from apps.client import explanations

    if output not in ("text", "json"):
        raise InvalidValueError("output", output, "must be text or json")
    found = explanations(url, vlan, sender, receiver)
    if output == "json":
        print(json.dumps(found if receiver is None else found[0], indent=2))
    else:
        for one in found:
            print(one["sentence"])
    return 0


@app.command()
def record(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The recording; must not be there yet.")
    ],
    duration: Annotated[float | None, typer.Option(metavar="SECONDS", help="How long; else until Ctrl-C.")] = None,
    url: Annotated[str, typer.Option(help="Where the controller's REST interface is.")] = DEFAULT_URL,
) -> int:
    """Record counters, decisions and configuration of a running controller, interval by interval."""
    from apps.recordings import record as record_to

    if duration is not None and not 0.0 < duration <= 1e6:
        raise InvalidValueError("duration", duration, "must be above 0 and at most 1000000 seconds")
    print(f"recorded {_counted(record_to(url, output, duration), 'interval')} in {output}")
    return 0


@app.command()
def replay(
    recording: Annotated[Path, typer.Argument(metavar="FILE", help="What dets record has written.")],
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="Decide with this one beside, and show the differences.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> int:
    """Decide a recorded run again, offline; exit status 1 if any decision is not the recorded one to the last bit."""
    from apps.recordings import replayed

    result = replayed(recording, algorithm)
    if as_json:
        print(json.dumps(result, allow_nan=False))
    else:
        from apps.tables import print_replay

        print_replay(result)
    return 0 if result["same"] else FAILED


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
    parameter: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A parameter of the algorithm; repeatable.")
    ] = None,
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
        str, typer.Option(help="cubic or reno; bbr on ovs, dctcp on the model.")
    ] = DEFAULTS.congestion_control,
    topology: Annotated[str, typer.Option(help="dets-fig1, dets-fig5 or dets-fig7.")] = DEFAULTS.topology,
    fabric: Annotated[str, typer.Option(help="Where to run: ovs (root) or model (virtual time).")] = DEFAULTS.fabric,
    datapath: Annotated[str, typer.Option(help="Open vSwitch datapath: user or kernel.")] = DEFAULTS.datapath,
    slot: Annotated[float, typer.Option(help="Model: its grain of time, in seconds.")] = DEFAULTS.slot_s,
    seed: Annotated[int, typer.Option(help="Order of senders; on the model every chance.")] = DEFAULTS.seed,
    output: Annotated[Path | None, typer.Option(help="Output folder; default results/NAME.")] = None,
    baseline: Annotated[bool, typer.Option(help="Run it without control first.")] = DEFAULTS.baseline,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = DEFAULTS.quiet,
) -> int:
    """Run an experiment on Open vSwitch (needs root) or on the model. A RATE is in bit/s, such as 40M."""
    if name is None:
        return _list(registry.experiments)
    entry = registry.find("an experiment", registry.experiments, name)
    _refuse_unused(context, entry.unused, f"means nothing to {name}, which runs without control")
    _refuse_unused(context, UNUSED_ON.get(fabric, ()), f"means nothing on the {fabric} fabric")
    options = ExperimentOptions(
        algorithm=algorithm,
        parameters=dict(_parse_parameter(text) for text in parameter or []),
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
        quiet=quiet,
    )
    entry.load()(_checked(options))
    return 0


@app.command()
def bench(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Leave it out to list them.")] = None,
    switches: Annotated[int | None, typer.Option(help="loop: how many switches.")] = None,
    entries: Annotated[
        int | None, typer.Option(help="loop: metered entries of each; left out, 1,000 to 100,000 in all.")
    ] = None,
    interval_ms: Annotated[int | None, typer.Option(help="loop: the control interval.")] = None,
    seconds: Annotated[float | None, typer.Option(help="loop: how long each case is measured.")] = None,
    output: Annotated[Path | None, typer.Option(help="loop: folder of table and plot.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> int:
    """Run a benchmark. A target that is missed is told and does not change the exit status."""
    if name is None:
        return _list(registry.benches)
    entry = registry.find("a benchmark", registry.benches, name)
    _refuse_unused(context, entry.unused, f"means nothing to {name}")
    given = {
        "switches": switches,
        "entries": entries,
        "interval_ms": interval_ms,
        "seconds": seconds,
        "output": output,
    }
    measure = entry.load()
    # The result alone belongs on stdout; whatever else a benchmark prints goes to stderr.
    with contextlib.redirect_stdout(sys.stderr):
        result = {"name": name, **measure(**{key: value for key, value in given.items() if value is not None})}
    if as_json:
        print(json.dumps(result, allow_nan=False))
    else:
        from apps.tables import print_bench

        print_bench(result)
    return 0


def _counted(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count} {noun if count == 1 else noun + plural}"


def _list(entries: Mapping[str, registry.Entry]) -> int:
    for name, entry in entries.items():
        print(f"{name:12} {entry.summary}")
    return 0


def _refuse_unused(context: typer.Context, unused: tuple[str, ...], reason: str) -> None:
    for option in unused:
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            raise InvalidValueError(option, context.params[option], reason)


def _parse_parameter(text: str) -> tuple[str, object]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise InvalidValueError("parameter", text, "is not KEY=VALUE, such as d=2")
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return key, kind(value)
    return key, value


def _checked(options: ExperimentOptions) -> ExperimentOptions:
    try:
        return options.checked()
    except InvalidValueError as error:
        names = {"blast": "duration"}
        key = "parameter" if error.key.startswith("parameters") else names.get(error.key, error.key)
        shown = f"{error.key.partition('.')[2]}={error.value}" if key == "parameter" else error.value
        raise InvalidValueError(key, shown, error.reason) from error


if __name__ == "__main__":
    sys.exit(main())
