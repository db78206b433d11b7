"""``dets cluster``: the state of the controllers of one fabric in etcd, and manual changes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.cli.support.common import Commands, echo
from apps.cli.support.output import AnyForm, Column, OutputFormat, show
from controller.errors import DetsError, InvalidValueError

if TYPE_CHECKING:
    from apps.cluster.etcd_client import EtcdClient
    from apps.cluster.etcd_tokens import EtcdTokens
    from apps.cluster.placement_requests import PlacementRequests
    from controller.fabric.config_model import Cluster, Config

app = typer.Typer(
    name="cluster",
    cls=Commands,
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
def status(config: OfConfig = CONFIG, output: AnyForm = OutputFormat.table) -> int:
    """Show the active node by etcd: its REST interface, its generation id, the last change of settings.

    In sharded mode, also the owners of switches.
    """
    from apps.cluster.cluster_node import prefix_of
    from apps.cluster.etcd_client import get
    from controller.cluster.leadership import generation_id

    with _etcd_of(config) as (loaded, cluster, etcd):
        active, epoch_keys, head = etcd.read(*(get(prefix_of(cluster) + name) for name in ("active", "epoch", "head")))
        requests = _requests_of(loaded, cluster, etcd)
        view = requests.read_state()
    active_node = json.loads(active[0].value) if active else {"node": None, "url": None}
    epoch = int(epoch_keys[0].value) if epoch_keys else 0
    row: dict[str, Any] = {
        "active": active_node["node"],
        "url": active_node["url"],
        "generation": generation_id(epoch, active[0].create_revision) if active else None,
        "epoch": epoch,
        "revision": json.loads(head[0].value)["revision"] if head else 0,
    }
    if cluster.mode != "sharded":
        show([row], output, COLUMNS)
        return 0 if active else 1
    row["owners"] = {name: view.owners.get(switch.dpid) for name, switch in loaded.switches.items()}
    row["pinned"], row["drained"] = requests.pinned(view), sorted(view.drained)
    row["connected"] = requests.connected(view)
    show([row], output, COLUMNS)
    if output is OutputFormat.table:
        _show_shared(row, set(view.nodes))
    return 0 if active and None not in row["owners"].values() else 1


def _show_shared(row: dict[str, Any], live: set[str]) -> None:
    """Print two tables of a sharded cluster: its nodes, and the owner of each switch.

    ``row`` is the output of ``status``, ``live`` are the nodes with a lease. Nodes without one are shown if drained.
    """
    owners = list(row["owners"].values())
    drained_states = {name: "drained" if name in live else "drained, not connected" for name in row["drained"]}
    nodes = [
        {"node": name, "state": drained_states.get(name, ""), "connected": len(names), "owned": owners.count(name)}
        for name, names in row["connected"].items()
    ]
    show(nodes, OutputFormat.table, [Column(key, key) for key in ("node", "state", "connected", "owned")])
    switches = [
        {"switch": name, "node": node, "pinned": row["pinned"].get(name)} for name, node in row["owners"].items()
    ]
    show(switches, OutputFormat.table, [Column(key, key) for key in ("switch", "node", "pinned")])


@app.command()
def release_lease(config: OfConfig = CONFIG) -> int:
    """Release this node's lease if it is active or owns switches, so that other nodes take over at once."""
    from apps.cluster.cluster_node import prefix_of
    from apps.cluster.etcd_client import get

    with _etcd_of(config) as (_, cluster, etcd):
        prefix = prefix_of(cluster)
        active, node = etcd.read(get(f"{prefix}active"), get(f"{prefix}nodes/{cluster.node}"))
        own_keys = [*node, *(key_value for key_value in active if json.loads(key_value.value)["node"] == cluster.node)]
        if own_keys:
            etcd.revoke(own_keys[0].lease_id)
    echo(f"{cluster.node} has left" if own_keys else f"{cluster.node} is not active")
    return 0


OfNode = Annotated[str, typer.Argument(metavar="NODE", help="The name of a node (cluster.node).")]
OfSwitch = Annotated[str, typer.Argument(metavar="SWITCH", help="The name of a switch in the configuration.")]


@app.command()
def drain(node: OfNode, config: OfConfig = CONFIG) -> int:
    """Move all switches off a node, one at a time. It takes no switches until `undrain`, also after a restart.

    Waits until the node has no switch that another node is connected to. Sharded mode only.
    """
    with _placement_requests(config) as requests:
        requests.drain(node)
        remaining = requests.wait_drained(node)
    echo(f"{node} is drained" if not remaining else f"{node} is drained, and still has {', '.join(remaining)}")
    return 0 if not remaining else 1


@app.command()
def undrain(node: OfNode, config: OfConfig = CONFIG) -> int:
    """Let a drained node take switches again: those pinned to it at once, others by balance or move."""
    with _placement_requests(config) as requests:
        requests.undrain(node)
    echo(f"{node} takes switches again")
    return 0


@app.command()
def move(switch: OfSwitch, node: OfNode, config: OfConfig = CONFIG) -> int:
    """Move a switch to a node that is connected to it, and wait. It stays there while that node lives."""
    with _placement_requests(config) as requests:
        has_moved = requests.move(switch, node)
    echo(f"{switch} is with {node}" if has_moved else f"{node} has not taken {switch}, which stays where it is")
    return 0 if has_moved else 1


@app.command()
def pin(switch: OfSwitch, node: OfNode, config: OfConfig = CONFIG) -> int:
    """Keep a switch with a node: it moves there now, and whenever that node returns and is not drained."""
    with _placement_requests(config) as requests:
        has_moved = requests.pin(switch, node)
    echo(f"{switch} is pinned to {node}" + ("" if has_moved else ", which has not taken it yet"))
    return 0 if has_moved else 1


@app.command()
def unpin(switch: OfSwitch, config: OfConfig = CONFIG) -> int:
    """Let any node own a pinned switch again. It stays where it is."""
    with _placement_requests(config) as requests:
        node = requests.unpin(switch)
    echo(f"{switch} is not pinned to {node} any more")
    return 0


@app.command()
def balance(config: OfConfig = CONFIG) -> int:
    """Distribute the switches over the nodes again, after a node has returned: each goes to its first node.

    No switch moves automatically while its node lives. Pinned switches stay. Grants are frozen while a switch changes
    its owner.
    """
    with _placement_requests(config) as requests:
        moved, requested = requests.move_to_first_candidates()
        view = requests.read_state()
    echo(f"{moved} switches have changed hands" + (f", of {requested}" if moved < requested else ""))
    for node, switches in requests.connected(view).items():
        if node not in view.drained and len(switches) < len(view.owners):
            echo(f"{node} is connected to {len(switches)} of {len(view.owners)} switches, and takes only these")
    return 0 if moved == requested else 1


@app.command()
def epoch(
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="The new epoch, above the one before.")],
    config: OfConfig = CONFIG,
) -> int:
    """Raise the epoch after etcd was restored or recreated.

    Its revisions start lower, and switches reject older generation ids.
    """
    from apps.cluster.cluster_node import prefix_of
    from apps.cluster.etcd_client import get, put
    from controller.cluster.leadership import MAX_EPOCH

    if not 0 < number <= MAX_EPOCH:
        raise InvalidValueError("NUMBER", number, f"is outside 1 to {MAX_EPOCH}")
    with _etcd_of(config) as (_, cluster, etcd):
        key = f"{prefix_of(cluster)}epoch"
        epoch_keys = etcd.read(get(key))[0]
        before = int(epoch_keys[0].value) if epoch_keys else 0
        if number <= before:
            raise InvalidValueError("NUMBER", number, f"must be above {before}, the epoch now")
        etcd.transact([], [put(key, str(number).encode())], [])
    echo(f"epoch {number}; the active node requests its roles again")
    return 0


def tokens_of(cluster: Cluster) -> EtcdTokens:
    """Return the tokens that all nodes share, for ``dets token``."""
    from apps.cluster.cluster_node import etcd_of, prefix_of
    from apps.cluster.etcd_tokens import EtcdTokens

    return EtcdTokens(etcd_of(cluster), prefix_of(cluster))


@contextmanager
def _placement_requests(config: Path) -> Iterator[PlacementRequests]:
    """Return a context with the placement requests of a configuration's cluster, which must be sharded."""
    with _etcd_of(config) as (loaded, cluster, etcd):
        if cluster.mode != "sharded":
            raise InvalidValueError("cluster.mode", cluster.mode, "must be sharded")
        yield _requests_of(loaded, cluster, etcd)


@contextmanager
def _etcd_of(config: Path) -> Iterator[tuple[Config, Cluster, EtcdClient]]:
    """Return a context with a configuration, its section ``cluster`` and the cluster's etcd.

    Raises ConfigError, InvalidValueError without this section, and DetsError if etcd holds data that no node writes.
    """
    from apps.cluster.cluster_node import etcd_of, prefix_of
    from controller.config.loader import load_config

    loaded = load_config(config)
    cluster = loaded.cluster
    if cluster is None:
        raise InvalidValueError("config", loaded.source_name, "has no section cluster")
    with closing(etcd_of(cluster)) as etcd:
        try:
            yield loaded, cluster, etcd
        except DetsError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DetsError(f"etcd: what is below {prefix_of(cluster)} is not as nodes write it: {error!r}") from error


def _requests_of(config: Config, cluster: Cluster, etcd: EtcdClient) -> PlacementRequests:
    """Return the placement requests to the nodes of a configuration's cluster."""
    from apps.cluster.cluster_node import prefix_of
    from apps.cluster.placement_requests import PlacementRequests

    dpids = {name: switch.dpid for name, switch in config.switches.items()}
    return PlacementRequests(etcd, prefix_of(cluster), dpids)
