"""Rate allocation: pure algorithms, arrays in, arrays out."""

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
