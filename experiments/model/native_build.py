"""``python -m experiments.model.native_build``: compile the model's innermost modules with mypyc, unless compiled.

The folder's name is a digest of the sources, so that a changed source never runs in its old form.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from experiments.model import COMPILED_MODULES, compiled_folder

ROOT = Path(__file__).parents[2]
PACKAGES = ("controller", "apps", "topologies", "experiments")  # mypy reads the types that they import
_SETUP = """
import mypyc.build, os, setuptools
setuptools.setup(name="model", ext_modules=mypyc.build.mypycify({sources}, opt_level="2"))
os._exit(0)  # as mypy does itself: to free what it has read takes half as long as to compile
"""


def build() -> Path:
    """Return the folder with the compiled modules; CalledProcessError if they cannot be compiled."""
    folder = compiled_folder()
    if folder.exists():
        return folder
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, scratch / package, ignore=shutil.ignore_patterns("*.so", "vendor"))
        shutil.copy(ROOT / "pyproject.toml", scratch)
        setup = _SETUP.format(sources=[f"experiments/model/{module}.py" for module in COMPILED_MODULES])
        command = [sys.executable, "-c", setup, "--quiet", "build_ext", "--build-lib", "made"]
        subprocess.run(command, cwd=scratch, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        made = scratch / "ready"
        modules = made / "modules"
        modules.mkdir(parents=True)
        for library in (scratch / "made").rglob("*.so"):
            shutil.move(library, made if "__mypyc" in library.name else modules)
        for older in folder.parent.glob(f"{sys.implementation.cache_tag}-*"):
            shutil.rmtree(older, ignore_errors=True)
        beside = folder.with_suffix(f".{os.getpid()}")
        shutil.copytree(made, beside)
        beside.rename(folder)
    return folder


if __name__ == "__main__":
    try:
        build()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"The model is not compiled, so it is slower:\n{getattr(error, 'output', '') or error}", file=sys.stderr)
