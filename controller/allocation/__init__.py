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
from controller.allocation.registry import algorithms, describe_algorithms, make_algorithm

__all__ = [
    "AlgorithmState",
    "AllocationAlgorithm",
    "BoolArray",
    "FloatArray",
    "IntArray",
    "Parameter",
    "Requests",
    "algorithms",
    "describe_algorithms",
    "make_algorithm",
]
