"""Every pinned version installs on the oldest Python that setup.py admits: Debian 12 has 3.11.2."""

from __future__ import annotations

import re
from importlib import metadata

import pytest
from packaging.specifiers import SpecifierSet
from support.paths import ROOT

OLDEST = re.search(r'python_requires=">=([\d.]+)"', (ROOT / "setup.py").read_text())[1] + ".0"
PINNED = [
    line.partition("==")[0]
    for name in ("constraints.txt", "build-constraints.txt")
    for line in (ROOT / name).read_text().splitlines()
    if "==" in line
]


def test_every_pinned_version_that_is_installed_admits_the_oldest_python() -> None:
    needs = {}
    for name in PINNED:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # of another Python or platform
        needs[f"{name}=={distribution.version}"] = distribution.metadata.get("Requires-Python") or ""
    assert len(needs) > len(PINNED) / 2
    refused = {name: specifier for name, specifier in needs.items() if not SpecifierSet(specifier).contains(OLDEST)}
    assert not refused


@pytest.mark.parametrize("name", ["setup.py", "experiments/setup.py"])
def test_both_packages_admit_the_same_pythons(name: str) -> None:
    assert f'python_requires=">={OLDEST.removesuffix(".0")}"' in (ROOT / name).read_text()
