"""The model fabric: switches, links, hosts and TCP in virtual time, around the real central controller.

Start with fabric.py, then control/control_plane.py (how the controller is attached) and tcp.py. docs/experiments.md has
an example. native_build.py compiles ``COMPILED_MODULES``; without a build of exactly these sources, Python runs them,
more slowly, with the same results (``warn_if_not_compiled``).
"""

import hashlib
import sys
from pathlib import Path

COMPILED_MODULES = ("fabric", "packets", "queues", "sources", "tcp", "tcp_congestion")
MIN_SLOT_S, MAX_SLOT_S = 1e-5, 0.01  # duration of a slot of virtual time


def compiled_folder() -> Path:
    """Return the folder for the compiled form of the present sources, made or not."""
    here = Path(__file__).parent
    sources = b"".join((here / f"{name}.py").read_bytes() for name in COMPILED_MODULES)
    name = f"{sys.implementation.cache_tag}-{hashlib.sha256(sources).hexdigest()[:16]}"
    return here.parents[1] / "build" / "model" / name


def warn_if_not_compiled() -> None:
    """Print a warning unless the present sources are compiled."""
    if not compiled_folder().exists():
        print("The model is not compiled, so it is slower: make environment compiles it", file=sys.stderr)


if (_modules := compiled_folder() / "modules").is_dir():
    sys.path.append(str(_modules.parent))  # folder of their shared library
    __path__.insert(0, str(_modules))
