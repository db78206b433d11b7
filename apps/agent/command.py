"""``dets agent``: the host's end of DETS, which shapes the traffic of the host's VNs."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.errors import InvalidValueError
from controller.units import parse_rate

app = typer.Typer()


@app.command()
def agent(
    interface: Annotated[str, typer.Option(metavar="NAME", help="The interface towards the edge switch.")],
    vlans: Annotated[str | None, typer.Option(metavar="VID,VID", help="The VLANs of its VNs, on a trunk.")] = None,
    access: Annotated[bool, typer.Option("--access", help="Frames have no tag, as at an access port.")] = False,
    link_rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="The link's rate, as 10G; default: the interface's speed.")
    ] = None,
    ethertype: Annotated[str, typer.Option(help="0x8808, or 0x88b5 where network cards drop it.")] = "0x8808",
    interval: Annotated[int, typer.Option(help="Milliseconds between reports, until the controller sets them.")] = 55,
    replace: Annotated[
        bool, typer.Option("--replace-qdisc", help="Replace a root qdisc that another program has installed.")
    ] = False,
    on_stop: Annotated[str, typer.Option(metavar="remove|keep", help="What happens to rates at the end.")] = "remove",
    probe: Annotated[bool, typer.Option("--probe", help="Test which EtherType passes, and exit.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Exchange frames, without shaping.")] = False,
) -> int:
    """Shape the traffic of this host's VNs at the controller's rates (root, or CAP_NET_ADMIN and CAP_NET_RAW)."""
    from apps.agent import main
    from apps.agent.agent import AgentOptions

    if on_stop not in ("remove", "keep"):
        raise InvalidValueError("on_stop", on_stop, "is neither remove nor keep")
    try:
        number = int(ethertype, 16)
    except ValueError:
        raise InvalidValueError("ethertype", ethertype, "is neither 0x8808 nor 0x88b5") from None
    given_bps = None if link_rate is None else parse_rate(link_rate, "link_rate")
    vids = main.parse_vlans(vlans, access=access)
    main.check_interface(interface)
    if probe:
        return main.probe(interface, main.checked(AgentOptions(vids, 0, number, interval)))
    options = main.checked(AgentOptions(vids, main.link_rate_bps(interface, given_bps), number, interval))
    keep = on_stop == "keep"
    return main.run_agent(interface, options, replace_root=replace, keep=keep, dry_run=dry_run)
