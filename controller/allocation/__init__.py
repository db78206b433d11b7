"""Rate allocation: pure algorithms, arrays in, arrays out.

Start with interface.py (what an algorithm gets and returns), then fair_share.py, the simplest one.
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
