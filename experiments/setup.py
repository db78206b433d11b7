"""Packaging of dets-lab: experiments for trying, showing and measuring dets-controller, which runs without it."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parents[1]
VERSION = re.search(r'^__version__ = "([^"]+)"$', (ROOT / "controller" / "__init__.py").read_text(), re.MULTILINE)[1]

PLOT = ["matplotlib>=3.9"]
TABLES = ["pandas>=2.2"]

setup(
    name="dets-lab",
    version=VERSION,
    description="Fabrics, traffic, experiments and benchmarks for dets-controller",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages("..", include=["experiments", "experiments.*", "topologies", "topologies.*"]),
    package_dir={"": ".."},
    install_requires=[f"dets-controller=={VERSION}"],
    extras_require={"plot": PLOT, "tables": TABLES, "notebook": [*PLOT, *TABLES, "ipykernel>=6.29"]},
    package_data={"experiments.machine": ["*.c", "*.sh"], "experiments.papers": ["*.toml"]},
    options={"build": {"build_base": "../build/lab"}},
)
