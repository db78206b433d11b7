"""Experiments on emulated fabrics, and benchmarks."""
