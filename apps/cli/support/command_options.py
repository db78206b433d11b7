"""Options that many sub-commands share: the controller to use, and how to make a change.

A decorated command takes a ``Client`` or a ``Change`` as its first argument; on the command line it has the options for
it instead.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from apps.cli.support.answers import Shape
from apps.cli.support.rest_client import DEFAULT_URL, Client, Query, RequestError, tls_context
from controller.errors import InvalidValueError
from controller.units import format_rate

CONTROLLER_PANEL, CHANGE_PANEL = "Controller", "Change"
DEFAULT_WAIT_S = 60.0
MAX_WAIT_S = 86400.0
NOT_FOUND, PRECONDITION_REQUIRED = 404, 428
CHANGED: Shape = {"revision": int}
CHANGED_MANY: Shape = {"revision": int, "changed": int}

_OPTION_OF = {
    "send_limit_bps": "--send",
    "receive_limit_bps": "--receive",
    "send_ceiling_bps": "--send-ceiling",
    "receive_ceiling_bps": "--receive-ceiling",
    "weight": "--weight",
    "name": "--name",
    "algorithm": "--algorithm",
    "shadow": "--shadow",
}
_PORT_OPTIONS = ("--port", "--from", "--to", "--switch")
_NAMED = {"vlan_vid": ("--vlan",), "vlan": ("--vlan",), "switch": _PORT_OPTIONS, "port_no": _PORT_OPTIONS}
"""The parts of paths and queries that people name, and the options for them."""
_Path = Path | None
_ASKING: dict[str, tuple[Any, Any]] = {
    "url": (str | None, typer.Option(envvar="DETS_URL", help=f"The controller; {DEFAULT_URL} if nothing says else.")),
    "token_file": (
        _Path,
        typer.Option(envvar="DETS_TOKEN_FILE", help="Holds the token; DETS_TOKEN is the token itself."),
    ),
    "cacert": (_Path, typer.Option(envvar="DETS_CACERT", help="CA of the controller's certificate.")),
    "cert": (_Path, typer.Option(envvar="DETS_CERT", help="Client certificate, if the controller asks for one.")),
    "key": (_Path, typer.Option(envvar="DETS_KEY", help="The client certificate's key.")),
}
_CHANGING: dict[str, tuple[Any, Any, Any]] = {
    "dry_run": (bool, typer.Option("--dry-run", help="Check and show it, and change nothing."), False),
    "wait": (bool, typer.Option("--wait", help="Return when it is in force on the switches."), False),
    "timeout": (
        float,
        typer.Option(metavar="SECONDS", help="How long --wait waits; then exit status 1."),
        DEFAULT_WAIT_S,
    ),
    "if_revision": (
        int | None,
        typer.Option(metavar="N", min=0, help="Only if it has not been changed since this revision."),
        None,
    ),
}


@dataclass(frozen=True)
class Change:
    """The options of a change, with the client."""

    client: Client
    dry_run: bool
    wait: bool
    timeout_s: float
    if_revision: int | None

    def make(
        self, method: str, path: str, body: object = None, if_match: str | None = None, shape: Shape = CHANGED
    ) -> Any:
        """Make the change, or a dry run, and return the response; with ``--wait``, once the change is confirmed.

        ``if_match`` applies unless ``--if-revision`` is given.
        """
        if self.if_revision is not None:
            if_match = f'"{self.if_revision}"'
        query: Query = {"dry_run": "true"} if self.dry_run else {}
        try:
            answer = self.client.call(path, method=method, body=body, query=query, if_match=if_match, shape=shape)
        except RequestError as error:
            raise _in_options(error) from error
        if self.wait and not self.dry_run:
            self.client.wait_in_force(answer["revision"], self.timeout_s)
        return answer

    def outcome(self, revision: int) -> str:
        """Return the progress of the change, for the end of a sentence."""
        if self.dry_run:
            return "nothing is changed: --dry-run"
        return f"revision {revision}{', in force' if self.wait else ''}"


def _in_options(error: RequestError) -> RequestError:
    """Return an error with options in place of the REST interface's fields, and rates as they are typed.

    An error that is not only about fields with options is returned unchanged.
    """
    if error.status == PRECONDITION_REQUIRED:
        return RequestError(f"{error} (here: --if-revision N)", error.status, error.problem)
    problems = error.problem.get("errors") or []
    if not problems or any(problem["field"] not in _OPTION_OF for problem in problems):
        return error
    sentences = []
    for problem in problems:
        is_rate = isinstance(problem["value"], int) and problem["field"].endswith("_bps")
        value = format_rate(problem["value"]) if is_rate else problem["value"]
        sentences.append(f"{_OPTION_OF[problem['field']]}: {value} {problem['reason']}")
    return RequestError("; ".join(sentences), error.status, error.problem)


def in_words_typed(error: RequestError, arguments: list[str]) -> str:
    """Return the text of an error; one about an unknown name with the option and the text that the user typed."""
    problems = error.problem.get("errors") or []
    if error.status != NOT_FOUND or len(problems) != 1 or problems[0]["field"] not in _NAMED:
        return str(error)
    # ``flag`` is the option of which a word is the value; "": the word is an argument without an option.
    field, value, flag = problems[0]["field"], str(problems[0]["value"]), ""
    for word in arguments:
        if word.startswith("--"):
            flag, _, word = word.partition("=")
        if word and flag in ("", *_NAMED[field]) and value in _parts(field, word):
            return f"{flag or _NAMED[field][0].strip('-').upper()}: {word} {problems[0]['reason']}"
        if word:
            flag = ""
    return str(error)


def _parts(field: str, word: str) -> tuple[str, ...]:
    """Return what a typed word may have become in the path of a request: a VLAN, or a part of SWITCH:PORT."""
    switch, colon, port = word.rpartition(":")
    return (word,) if not colon or field.startswith("vlan") else (switch,) if field == "switch" else (port,)


def check_timeout(timeout: float) -> None:
    """Raise InvalidValueError for an invalid time limit."""
    if not 0 < timeout <= MAX_WAIT_S:
        raise InvalidValueError("timeout", timeout, f"must be above 0 and at most {MAX_WAIT_S:g} seconds")


def with_client(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that select the controller to a command, as a ``Client``."""
    return with_options(command, _asking_options(), _client)


def with_change(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a change and of ``with_client`` to a command, as a ``Change``."""

    def change(dry_run: bool, wait: bool, timeout: float, if_revision: int | None, **asked: Any) -> Change:
        check_timeout(timeout)
        return Change(_client(**asked), dry_run, wait, timeout, if_revision)

    options = [
        option_of(CHANGE_PANEL, name, kind, option, default) for name, (kind, option, default) in _CHANGING.items()
    ]
    return with_options(command, [*options, *_asking_options()], change)


def _asking_options() -> list[inspect.Parameter]:
    """Return the options that select the controller."""
    return [option_of(CONTROLLER_PANEL, name, kind, option, None) for name, (kind, option) in _ASKING.items()]


def option_of(panel: str | None, name: str, kind: Any, option: Any, default: Any) -> inspect.Parameter:
    """Return an option as a parameter of a command; ``option`` is typer's, shown in a panel of the help."""
    option.rich_help_panel = panel
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def with_options(
    command: Callable[..., int], options: list[inspect.Parameter], make: Callable[..., Any]
) -> Callable[..., int]:
    """Return a command with ``options`` instead of its first argument, which ``make`` builds from them."""
    signature = inspect.signature(command, eval_str=True)
    own = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in list(signature.parameters.values())[1:]]
    names = [option.name for option in options]

    @functools.wraps(command)
    def wrapped(**values: Any) -> int:
        return command(make(**{name: values.pop(name) for name in names}), **values)

    parameters = [*own, *options]
    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": int}
    return wrapped


def _client(**options: Any) -> Client:
    """Return the client for options (of the command line, or the environment), which precede the settings file."""
    settings = {**_settings(), **{name: value for name, value in options.items() if value is not None}}
    files = [None if settings.get(name) is None else Path(settings[name]) for name in ("cacert", "cert", "key")]
    return Client(settings.get("url", DEFAULT_URL), _token(settings.get("token_file"), options), tls_context(*files))


def _token(token_file: str | Path | None, options: Mapping[str, Any]) -> str | None:
    """Return the bearer token; None without any.

    A file named by an option precedes DETS_TOKEN, which precedes a file named in the settings file. ``token_file`` is
    the file of the option or the settings, ``options["token_file"]`` that of the option alone.
    """
    token = os.environ.get("DETS_TOKEN")
    if token is not None and options["token_file"] is None:
        return _checked_token("DETS_TOKEN", token)
    if token_file is None:
        return None
    try:
        return _checked_token("token_file", Path(token_file).read_text(encoding="utf-8").strip(), str(token_file))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidValueError("token_file", str(token_file), f"cannot be read: {reason}") from error


def _checked_token(key: str, token: str, shown: str = "(hidden)") -> str:
    """Return a token; raise InvalidValueError, which shows ``shown`` as the value, if it is not one word."""
    if not (token.isascii() and token.isprintable() and token) or " " in token:
        raise InvalidValueError(key, shown, "holds no token: it is one word, as dets token create prints it")
    return token


def settings_file() -> Path:
    """Return the path of the command line's settings: ``~/.config/dets/client.toml``."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "dets" / "client.toml"


def _settings() -> dict[str, str]:
    """Return the user's default options from the settings file; {} without a file."""
    path = settings_file()
    if not path.is_file():
        return {}
    import tomllib

    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidValueError(str(path), "", f"cannot be read: {error}") from error
    for name, value in settings.items():
        if name not in _ASKING:
            raise InvalidValueError(str(path), name, f"is not one of {', '.join(_ASKING)}")
        if not isinstance(value, str):
            raise InvalidValueError(f"{path}: {name}", value, "is not text: put it in quotes")
    return settings
