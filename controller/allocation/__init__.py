"""The mathematics of sharing, arrays in, arrays out: fair filling of segments, max-min, and the binding constraints.

Start with interface.py, then segments.py, which the algorithms of controller/dets use.
"""

from controller.allocation.interface import AllocationInput, BoolArray, FloatArray, IntArray, State
from controller.allocation.parameters import parameter

__all__ = ["AllocationInput", "BoolArray", "FloatArray", "IntArray", "State", "parameter"]
