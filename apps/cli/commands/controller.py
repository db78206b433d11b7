"""``dets check``, ``run``, ``reload``, ``record`` and ``replay``: the controller started, reloaded and recorded."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from apps.cli.support.command_options import Change, with_change, with_client
from apps.cli.support.common import (
    FAILED,
    AsJson,
    Parameters,
    as_option,
    counted,
    echo,
    parse_parameters,
    print_error,
)
from apps.cli.support.output import AnyForm, OutputFormat, show
from apps.cli.support.rest_client import Client
from controller.errors import InvalidValueError

app = typer.Typer()


@app.command()
def check(config: Annotated[str, typer.Argument(metavar="CONFIG", help="The YAML file; -: standard input.")]) -> int:
    """Check a configuration file, offline; every problem is shown with line and column.

    Overrides in its store take precedence over it. The command shows how many there are and which do not fit; those are
    no errors.
    """
    from apps.runtime.memory_tuning import gc_paused, keep_made
    from apps.settings.override_report import override_counts
    from controller.config.loader import load_config, read_config

    with gc_paused():
        loaded = read_config(sys.stdin.buffer, "<stdin>") if config == "-" else load_config(config)
        ports, vns = sum(1 for _ in loaded.ports()), sum(1 for _ in loaded.vns())
        keep_made(vns)
    counts = [(len(loaded.switches), "switch"), (ports, "edge port"), (len(loaded.vlans), "VLAN"), (vns, "VN")]
    words = ", ".join(counted(count, noun) for count, noun in counts)
    echo(f"ok: {words}; control every {loaded.interval_ms} ms")
    overrides, inactive = override_counts(loaded)
    if overrides:
        echo(f"{counted(overrides, 'override')} in {loaded.rest.store}, {len(inactive)} not in force")
    for name, reason in inactive.items():
        echo(f"not in force: {name}: {reason}")
    return 0


@app.command()
def run(
    config: Annotated[str, typer.Option("--config", "-c", metavar="FILE", help="The YAML file.")],
    extra: Annotated[
        list[str] | None, typer.Option("--app", metavar="MODULE", help="Another Ryu application to load; repeatable.")
    ] = None,
) -> int:
    """Run the controller until SIGINT or SIGTERM."""
    from apps.runtime.launcher import main as launch

    return launch(config, list(extra or []))


@app.command()
@with_client
def record(
    client: Client,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The recording, not there yet; - prints it.")
    ],
    duration: Annotated[float | None, typer.Option(metavar="SECONDS", help="How long; else until Ctrl-C.")] = None,
) -> int:
    """Record counters, decisions and configuration of a running controller, interval by interval."""
    from apps.cli.support.recording_files import record as record_to

    if duration is not None and not 0.0 < duration <= 1e6:
        raise InvalidValueError("duration", duration, "must be above 0 and at most 1000000 seconds")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the controller stops recording
    recorded = counted(record_to(client, output, duration), "interval")
    if str(output) == "-":
        print_error(f"recorded {recorded}")
    else:
        echo(f"recorded {recorded} in {output}")
    return 0


@app.command()
def replay(
    recording: Annotated[Path, typer.Argument(metavar="FILE", help="What dets record has written.")],
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="Decide with this algorithm too, and show the differences.")
    ] = None,
    parameter: Parameters = None,
    as_json: AsJson = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print every interval's decisions, a row for each pair.")
    ] = False,
) -> int:
    """Decide a recorded run again, offline; exit status 1 if any decision differs from the recorded one."""
    from apps.cli.support.recording_files import replayed, write_decisions

    if as_csv and as_json:
        raise InvalidValueError("csv", None, "and --json are two forms of one answer: choose one")
    try:
        if as_csv:
            parameters = parse_parameters(parameter)
            return 0 if write_decisions(recording, algorithm, parameters, sys.stdout) else FAILED
        result = replayed(recording, algorithm, parse_parameters(parameter))
    except InvalidValueError as error:
        raise as_option(error) from error
    if as_json:
        echo(json.dumps(result, allow_nan=False))
    else:
        from apps.cli.support.output import print_replay

        print_replay(result)
    return 0 if result["same"] else FAILED


@app.command("reload")
@with_change
def reload(change: Change, output: AnyForm = OutputFormat.table) -> int:
    """Let the controller read its configuration file again, and show the differences.

    The file is checked as a whole; on any error the old configuration stays. What did not change is not touched.
    """
    answer = change.make("POST", "/v1/reload", shape={"revision": int, "summary": [str], "changes": [dict]})
    if output is not OutputFormat.table:
        show(answer, output, ())
        return 0
    for line in answer["summary"]:
        echo(line)
    echo(f"{counted(len(answer['changes']), 'value')} changed ({change.outcome(answer['revision'])})")
    return 0
