"""``dets cluster``: what etcd says of two controllers that share a fabric, and what is done to that by hand."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.cli.support.common import refusing_bad_files
from apps.cli.support.output import AnyForm, Column, Form, show
from controller.errors import InvalidValueError

if TYPE_CHECKING:
    from controller.fabric.description import Cluster

app = typer.Typer(no_args_is_help=True, help="Two controllers of one fabric: who is active (docs/cluster.md).")
OfConfig = Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="A node's configuration file.")]
CONFIG = Path("dets.yaml")
COLUMNS = (
    Column("active", "active"),
    Column("url", "url"),
    Column("generation", "generation"),
    Column("epoch", "epoch"),
    Column("revision", "revision"),
)


@app.command()
def status(config: OfConfig = CONFIG, output: AnyForm = Form.table) -> int:
    """Show which node is active, by etcd: its REST interface, its generation id, the last change of settings."""
    from apps.cluster.etcd import get
    from apps.cluster.node import etcd_of, prefix_of
    from controller.cluster.leadership import generation_id

    cluster = _cluster(config)
    prefix = prefix_of(cluster)
    with closing(etcd_of(cluster)) as etcd:
        active, epoch, head = etcd.read(*(get(prefix + name) for name in ("active", "epoch", "head")))
    about = json.loads(active[0].value) if active else {"node": None, "url": None}
    number = int(epoch[0].value) if epoch else 0
    generation = generation_id(number, active[0].create_revision) if active else None
    revision = json.loads(head[0].value)["revision"] if head else 0
    row = {"active": about["node"], "url": about["url"], "generation": generation, "epoch": number}
    show([{**row, "revision": revision}], output, COLUMNS)
    return 0 if active else 1


@app.command()
def leave(config: OfConfig = CONFIG) -> int:
    """Give up this node's lease if it is active, so that the other node takes over at once."""
    from apps.cluster.etcd import get
    from apps.cluster.node import etcd_of, prefix_of

    cluster = _cluster(config)
    with closing(etcd_of(cluster)) as etcd:
        active = etcd.read(get(f"{prefix_of(cluster)}active"))[0]
        mine = bool(active) and json.loads(active[0].value)["node"] == cluster.node
        if mine:
            etcd.revoke(active[0].lease_id)
    print(f"{cluster.node} has left" if mine else f"{cluster.node} is not active")
    return 0


@app.command()
def epoch(
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="The new epoch, above the one before.")],
    config: OfConfig = CONFIG,
) -> int:
    """Raise the epoch when etcd was restored or made again: its revisions are lower then, and switches refuse them."""
    from apps.cluster.etcd import get, put
    from apps.cluster.node import etcd_of, prefix_of
    from controller.cluster.leadership import generation_id

    generation_id(number, 1)
    cluster = _cluster(config)
    key = f"{prefix_of(cluster)}epoch"
    with closing(etcd_of(cluster)) as etcd:
        found = etcd.read(get(key))[0]
        before = int(found[0].value) if found else 0
        if number <= before:
            raise InvalidValueError("NUMBER", number, f"must be above {before}, the epoch now")
        etcd.transact([], [put(key, str(number).encode())], [])
    print(f"epoch {number}; the active node asks the switches again")
    return 0


def _cluster(config: Path) -> Cluster:
    from controller.config.load import load_config

    with refusing_bad_files():
        cluster = load_config(config).cluster
    if cluster is None:
        raise InvalidValueError("config", str(config), "has no section cluster")
    return cluster
