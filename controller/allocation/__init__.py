"""Rate allocation: pure algorithms, arrays in, arrays out. DETS's four (section III-A), Fair Level, and max-min.

Start with interface.py, then fair_share.py, slow_probe.py (Algorithm 1), fast_probe.py (Algorithm 2) and
forward_explicit.py.
"""

from controller.allocation.interface import (
    AlgorithmState,
    AllocationAlgorithm,
    BoolArray,
    FloatArray,
    IntArray,
    Requests,
)
from controller.allocation.parameters import Parameter

__all__ = [
    "AlgorithmState",
    "AllocationAlgorithm",
    "BoolArray",
    "FloatArray",
    "IntArray",
    "Parameter",
    "Requests",
]
