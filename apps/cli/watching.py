"""``dets status``, ``top``, ``events`` and ``explain``: what a running controller does, and why."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apps.cli.connection import asking
from apps.cli.output import AnyForm, Column, Form, show
from apps.client import Client, explanations

app = typer.Typer()


@app.command()
@asking
def explain(
    client: Client,
    vlan: Annotated[int, typer.Option(metavar="VID", help="The VLAN.")],
    sender: Annotated[str, typer.Option("--from", metavar="SWITCH:PORT", help="The sending VN's edge port.")],
    receiver: Annotated[
        str | None,
        typer.Option("--to", metavar="SWITCH:PORT", help="The receiving VN's; without it, all pairs of --from."),
    ] = None,
    output: AnyForm = Form.table,
) -> int:
    """Tell what binds the limit of a pair of VNs in a running controller, and what would bind it next."""
    found = explanations(client, vlan, sender, receiver)
    if output is Form.table:
        for one in found:
            print(one["sentence"])
    else:
        show(found if receiver is None else found[0], output, ())
    return 0


@app.command()
@asking
def status(client: Client, output: AnyForm = Form.table) -> int:
    """Tell whether the controller works and which switches are ready; exit status 1 if anything ails."""
    health: dict[str, Any] = client.call("/v1/health")
    if output is not Form.table:
        show(health, output, ())
    else:
        troubles = health.get("troubles", {})
        rows = [
            {"switch": name, "state": state, "troubles": troubles.get(name, [])}
            for name, state in health["switches"].items()
        ]
        print(health["status"])
        show(rows, output, [Column(name, name) for name in ("switch", "state", "troubles")])
    return 0 if health["status"] == "ready" else 1
