"""The DETS paper's fabrics for Mininet: ``mn --custom topologies/dets.py --topo dets-fig1``.

Parameters follow the name: ``--topo dets-fig5,pns=6,datapath=kernel``. ``mn`` executes this file without ``__file__``
and copies every name it defines over its own, so that there are few names here and all of them are peculiar to it.
The fabrics themselves are described in topologies/builders.py. On the userspace datapath a process next to each switch
makes its queues real (experiments/ovs/queue_classifier.py).
"""

import sys as _sys
from functools import partial as _partial
from pathlib import Path as _Path


def _dets_topo(name, datapath="user", **parameters):  # type: ignore[no-untyped-def]
    """Return the Topo of a fabric by name; called by ``mn``, so the project's root goes on sys.path at that time."""
    root = str(_Path(_dets_topo.__code__.co_filename).resolve().parent.parent)
    if root not in _sys.path:
        _sys.path.insert(0, root)
    from topologies.builders import fabrics
    from topologies.mn import FabricTopo

    return FabricTopo(fabrics[name](**parameters), datapath, follow_queues=True)


topos = {name: _partial(_dets_topo, name) for name in ("dets-fig1", "dets-fig5", "dets-fig7")}
