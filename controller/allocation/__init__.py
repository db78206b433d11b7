"""The mathematics of sharing, arrays in, arrays out: fair fills of groups, max-min, and what binds a rate.

Start with interface.py, then segments.py, which the algorithms of controller/dets share out by.
"""

from controller.allocation.interface import AllocationInput, BoolArray, FloatArray, IntArray, State
from controller.allocation.parameters import parameter

__all__ = ["AllocationInput", "BoolArray", "FloatArray", "IntArray", "State", "parameter"]
