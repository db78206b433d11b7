"""What the agent's bench measures with, without HTB."""

from __future__ import annotations

import os

import pytest

from controller.errors import InvalidValueError
from experiments.bench.agent.bench import run


@pytest.mark.parametrize("options", [{"pairs": 0}, {"seconds": 0.1}])
def test_bad_options_are_refused(options) -> None:
    with pytest.raises(InvalidValueError, match="outside"):
        run(**options)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may make namespaces")
def test_the_bench_needs_root() -> None:
    with pytest.raises(PermissionError, match="root"):
        run()
