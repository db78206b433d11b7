"""The benchmarks of ``dets bench``, a package each; every package has its ``run`` in bench.py."""
