"""The ``dets`` command.

It must start fast: a sub-command imports its modules inside, so that no numpy, networkx or controller framework is
loaded for ``--help``. Exit status: 0 done, 1 failed, 2 invalid request. Start with ``main`` here, then the sub-commands
in ``commands``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from apps.cli.commands import cert, controller, docs, fabric, guarantees, hosts, limits, monitoring, settings
from apps.cli.support.command_options import in_words_typed
from apps.cli.support.common import FAILED, INTERRUPTED, REFUSED, ClickError, Commands, print_error
from apps.cli.support.rest_client import RequestError
from controller import __version__, plugins, rooms
from controller.errors import DetsError, InvalidValueError

app = typer.Typer(
    cls=Commands,
    help="DETS: tenants' rate limits enforced by one OpenFlow 1.3 controller.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's tables cut words, and show a flag as if it took a value
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(controller.app)
app.add_typer(limits.vlans, name="vlan", cls=Commands)
app.add_typer(limits.vns, name="vn", cls=Commands)
app.add_typer(limits.limits, name="limit", cls=Commands)
app.add_typer(limits.ports, name="port", cls=Commands)
app.add_typer(limits.entries, name="pair", cls=Commands)
app.add_typer(fabric.switches, name="switch", cls=Commands)
app.add_typer(fabric.links, name="link", cls=Commands)
app.add_typer(hosts.hosts, name="host", cls=Commands)
app.add_typer(guarantees.app)
app.add_typer(monitoring.app)
app.add_typer(settings.app)
app.add_typer(settings.tokens, name="token", cls=Commands)
app.add_typer(docs.app)
app.add_typer(cert.app, name="cert", cls=Commands)
for name, room in rooms.ROOMS.items():
    if room.commands and rooms.is_installed(name):
        app.add_typer(rooms.commands(name).app)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status; errors that users can correct are one line each on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--traceback" in arguments:
        return _run([word for word in arguments if word != "--traceback"])
    try:
        return _run(arguments)
    except (DetsError, RuntimeError, OSError, ImportError) as error:
        print_error(_words_of(error), keep="\n")  # errors of experiments end with lines of a log
        return FAILED
    finally:
        for plugin, reason in plugins.faults.items():
            print_error(f"{plugin} is not loaded: {reason}")


def _words_of(error: Exception) -> str:
    """Return an error as text for a user: an OSError with its file's name, an import error with its class."""
    if isinstance(error, ImportError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{str(error.filename)!r}: {error.strerror}"
    return str(error)


def _run(arguments: list[str]) -> int:
    """Run a command; return its exit status, with each error of the user on one line of stderr."""
    try:
        status = COMMAND(arguments, prog_name="dets", standalone_mode=False)
    except InvalidValueError as error:
        is_option = error.key.isidentifier() and not error.key.isupper()
        option = f"--{error.key.removesuffix('_bps').replace('_', '-')}" if is_option else error.key
        value = "" if error.value is None else f" {error.value!r}"  # None: missing
        print_error(f"{option}:{value} {error.reason}")
        return REFUSED
    except RequestError as error:
        print_error(in_words_typed(error, arguments))
        return REFUSED if error.status is not None and 400 <= error.status < 500 else FAILED
    except ClickError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)  # the help, with its lines
            return REFUSED
        message = error.format_message().replace("Value error, ", "").removesuffix(".")  # pydantic's text for a choice
        if message:
            command = getattr(getattr(error, "ctx", None), "command_path", "dets")  # such as ``dets run``
            print_error(f"{message}{_refused_value(error, message)} (see {command} --help)")
        return REFUSED
    except DetsError as error:
        from controller.config.yaml_document import ConfigError

        if not isinstance(error, ConfigError):
            raise
        print(error, file=sys.stderr)  # all problems of a file, one per line
        return REFUSED
    if status == INTERRUPTED:  # typer's status for Ctrl-C
        print_error("interrupted")
    return status if isinstance(status, int) else 0


def _refused_value(error: Exception, message: str) -> str:
    """Return ``: VALUE`` if the message of a usage error lacks the rejected value, otherwise "".

    The message lacks it if pydantic, by which typer reads numbers, has found the error.
    """
    validation = getattr(error.__cause__, "errors", None)
    value = "" if validation is None else f"{validation()[0]['input']!r}"
    return "" if value in message else f": {value}"


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--plugins", metavar="DIR", envvar=plugins.VARIABLE, help="Use the plugins of a folder too."),
    ] = None,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where an error comes from.")] = False,
) -> None:
    if folder is not None:
        plugins.use_folder(folder)
    if version:
        print(f"dets {__version__}")
        raise typer.Exit


COMMAND = typer.main.get_command(app)
