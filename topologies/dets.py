"""The fabrics of topologies/builders.py for Mininet: ``mn --custom topologies/dets.py --topo dets-fig1``.

Parameters follow the name: ``--topo dets-fig5,pns=6,datapath=kernel``. ``mn`` executes this file without ``__file__``
and copies every name it defines over its own, so that there are few names here and all of them are peculiar to it.
On the userspace datapath a process next to each switch
makes its queues real (experiments/ovs/queue_classifier.py).
"""

import sys as _sys
import typing as _typing
from functools import partial as _partial
from pathlib import Path as _Path

if _typing.TYPE_CHECKING:
    from collections.abc import Callable as _Callable

    from topologies.fabric import Fabric as _Fabric
    from topologies.mininet_topo import FabricTopo as _FabricTopo


def _fabrics() -> "dict[str, _Callable[..., _Fabric]]":
    """Return the builders by name; the project's root goes on sys.path for that."""
    root = str(_Path(_fabrics.__code__.co_filename).resolve().parent.parent)
    if root not in _sys.path:
        _sys.path.insert(0, root)
    from topologies.builders import fabrics

    return dict(fabrics)


def _dets_topo(name: str, datapath: str = "user", **parameters: object) -> "_FabricTopo":
    """Return the Topo of a fabric by name; called by ``mn``."""
    from inspect import signature

    build = _fabrics()[name]
    known = ["datapath", *signature(build).parameters]
    unknown = parameters.keys() - known
    # After any other exception mn cleans up by name: it ends processes and removes bridges that are not its own.
    if unknown:
        raise SystemExit(f"{name}: there is no parameter {min(unknown)}; there are {', '.join(known)}")
    try:
        fabric = build(**parameters)
        from topologies.mininet_topo import FabricTopo

        return FabricTopo(fabric, datapath, emulate_queues=True)
    except (TypeError, ValueError) as error:
        raise SystemExit(f"{name}: {error}") from None


topos = {name: _partial(_dets_topo, name) for name in _fabrics()}
