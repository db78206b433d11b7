"""``dets lab``: software switches, hosts and traffic to try the controller with."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from apps.cli.support.common import refusing_bad_files, say
from controller.errors import InvalidValueError

app = typer.Typer()


@app.command()
def lab(
    config: Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="The controller's configuration.")],
    offer: Annotated[
        list[str] | None,
        typer.Option(metavar="VID/SWITCH:PORT/SWITCH:PORT/RATE", help="A host sends so much to another; repeatable."),
    ] = None,
    duration: Annotated[float | None, typer.Option(metavar="SECONDS", help="How long; else until Ctrl-C.")] = None,
) -> int:
    """Run software switches with the ports of a configuration, a host behind each VN, and traffic; without root."""
    from controller.config.load import load_config
    from experiments.wire.lab import Lab, parse_offer

    if duration is not None and not 0.0 < duration <= 1e6:
        raise InvalidValueError("duration", duration, "must be above 0 and at most 1000000 seconds")
    with refusing_bad_files():
        loaded = load_config(config)
    offers = [parse_offer(text, loaded) for text in offer or []]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if loaded.rest.ui:
        scheme = "http" if loaded.rest.tls is None else "https"
        say(f"the live page of the controller: {scheme}://{loaded.rest.listen}/ui", flush=True)
    with Lab(loaded, offers) as running:
        try:
            running.run(lambda text: say(text, flush=True), duration)
        except KeyboardInterrupt:
            say("stopped", flush=True)
    return 0
