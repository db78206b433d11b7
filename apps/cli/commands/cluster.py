"""``dets cluster``: what etcd says of the controllers of one fabric, and what is done to that by hand."""

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
    from controller.fabric.description import Cluster, Config

app = typer.Typer(
    no_args_is_help=True,
    help="Several controllers of one fabric: who is active, who owns which switch (docs/cluster.md).",
)
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
    """Show which node is active, by etcd: its REST interface, its generation id, the last change of settings.

    Where switches are shared out, their owners too.
    """
    from apps.cluster.etcd import get
    from apps.cluster.node import etcd_of, prefix_of
    from controller.cluster.leadership import generation_id

    whole = _load(config)
    cluster = _cluster(whole)
    prefix = prefix_of(cluster)
    with closing(etcd_of(cluster)) as etcd:
        keys = (get(prefix + name) for name in ("active", "epoch", "head"))
        active, epoch, head, owners = etcd.read(*keys, get(f"{prefix}own/", prefix=True))
    about = json.loads(active[0].value) if active else {"node": None, "url": None}
    number = int(epoch[0].value) if epoch else 0
    generation = generation_id(number, active[0].create_revision) if active else None
    revision = json.loads(head[0].value)["revision"] if head else 0
    row = {"active": about["node"], "url": about["url"], "generation": generation, "epoch": number}
    row["revision"] = revision
    owner_of = {_dpid(one.key): one.value.decode() for one in owners}
    if cluster.share == "switches":
        row["owners"] = {name: owner_of.get(one.dpid) for name, one in whole.switches.items()}
    show([row], output, COLUMNS)
    if cluster.share == "switches" and output is Form.table:
        rows = [{"switch": name, "node": node} for name, node in row["owners"].items()]
        show(rows, output, [Column("switch", "switch"), Column("node", "node")])
    return 0 if active and None not in row.get("owners", {}).values() else 1


@app.command()
def leave(config: OfConfig = CONFIG) -> int:
    """Give up this node's lease if it is active or owns switches, so that other nodes take over at once."""
    from apps.cluster.etcd import get
    from apps.cluster.node import etcd_of, prefix_of

    cluster = _cluster(_load(config))
    prefix = prefix_of(cluster)
    with closing(etcd_of(cluster)) as etcd:
        active, node = etcd.read(get(f"{prefix}active"), get(f"{prefix}nodes/{cluster.node}"))
        mine = [*node, *(one for one in active if json.loads(one.value)["node"] == cluster.node)]
        if mine:
            etcd.revoke(mine[0].lease_id)
    print(f"{cluster.node} has left" if mine else f"{cluster.node} is not active")
    return 0


@app.command()
def balance(config: OfConfig = CONFIG) -> int:
    """Share the switches out over the nodes again, after one has come back: each goes to the node that is first for it.

    Nothing is moved by itself while its node lives. Grants stand while a switch changes hands.
    """
    from apps.cluster.etcd import created_at, delete, get
    from apps.cluster.node import etcd_of, prefix_of
    from controller.cluster.ownership import MOST_AT_ONCE, order

    cluster = _cluster(_load(config))
    prefix = prefix_of(cluster)
    with closing(etcd_of(cluster)) as etcd:
        nodes, owners = etcd.read(get(f"{prefix}nodes/", prefix=True), get(f"{prefix}own/", prefix=True))
        names = [one.key.rpartition("/")[2] for one in nodes]
        moving = [one for one in owners if names and order(_dpid(one.key), names)[0] != one.value.decode()]
        for start in range(0, len(moving), MOST_AT_ONCE):
            some = moving[start : start + MOST_AT_ONCE]
            unchanged = [created_at(one.key, one.create_revision) for one in some]
            etcd.transact(unchanged, [delete(one.key) for one in some], [])
    print(f"{len(moving)} switches change hands")
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
    cluster = _cluster(_load(config))
    key = f"{prefix_of(cluster)}epoch"
    with closing(etcd_of(cluster)) as etcd:
        found = etcd.read(get(key))[0]
        before = int(found[0].value) if found else 0
        if number <= before:
            raise InvalidValueError("NUMBER", number, f"must be above {before}, the epoch now")
        etcd.transact([], [put(key, str(number).encode())], [])
    print(f"epoch {number}; the active node asks the switches again")
    return 0


def _load(config: Path) -> Config:
    from controller.config.load import load_config

    with refusing_bad_files():
        return load_config(config)


def _cluster(config: Config) -> Cluster:
    if config.cluster is None:
        raise InvalidValueError("config", config.source_name, "has no section cluster")
    return config.cluster


def _dpid(key: str) -> int:
    return int(key.rpartition("/")[2], 16)
