"""The fabrics of topologies/builders.py for Mininet: ``mn --custom topologies/dets.py --topo dets-fig1``.

Parameters follow the name: ``--topo dets-fig5,pns=6,datapath=kernel``. With ``--controller dets`` the controller runs
too, with the configuration that ``dets topology dets-fig5,pns=6`` writes. ``mn`` executes this file without
``__file__`` and copies every name it defines over its own, so this file defines few names, and only unusual ones. On
the userspace datapath a process next to each switch makes its queues real (experiments/ovs/queue_classifier.py).
"""

import sys as _sys
import typing as _typing
from functools import partial as _partial
from pathlib import Path as _Path

if _typing.TYPE_CHECKING:
    from collections.abc import Callable as _Callable

    from topologies.fabric import Fabric as _Fabric
    from topologies.mininet_controller import DetsController as _DetsController
    from topologies.mininet_topo import FabricTopo as _FabricTopo


def _fabrics() -> "dict[str, _Callable[..., _Fabric]]":
    """Return the builders by name; adds the project's root to sys.path."""
    root = str(_Path(_fabrics.__code__.co_filename).resolve().parent.parent)
    if root not in _sys.path:
        _sys.path.insert(0, root)
    from topologies.builders import fabrics

    return dict(fabrics)


def _dets_topo(name: str, *numbers: object, datapath: str = "user", **parameters: object) -> "_FabricTopo":
    """Return the Topo of a fabric by name; called by ``mn``."""
    _fabrics()
    from topologies.builders import build
    from topologies.mininet_topo import FabricTopo

    words = ",".join([name, *map(str, numbers), *(f"{key}={value}" for key, value in parameters.items())])
    # After any other exception mn cleans up by name: it ends foreign processes and removes foreign bridges.
    try:
        FabricTopo.chosen = words
        return FabricTopo(build(words), datapath, emulate_queues=True)
    except ValueError as error:
        raise SystemExit(str(error)) from None


def _dets_controllers() -> "dict[str, type[_DetsController]]":
    """Return the class of the controller that ``mn`` may start; {} without Mininet, which ``mn`` has."""
    try:
        from topologies.mininet_controller import DetsController
    except ImportError:
        return {}
    return {"dets": DetsController}


topos = {name: _partial(_dets_topo, name) for name in _fabrics()}
controllers = _dets_controllers()
