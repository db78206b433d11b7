"""The benchmarks of ``dets bench``, one room each; every one has its ``run`` in bench.py."""
