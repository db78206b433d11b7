"""What the agent's bench measures with, without HTB."""

from __future__ import annotations

import os

import pytest

from controller.errors import InvalidValueError
from experiments.bench.agent.bench import run
from experiments.bench.agent.many_agents import run_many_agents


def test_a_crowd_of_agents_comes_under_control() -> None:
    figures = run_many_agents(agents=30, pairs=5)
    assert figures["frames_in_per_s"] == figures["frames_out_per_s"] == round(30 / 0.055)


@pytest.mark.parametrize("options", [{"pairs": 0}, {"seconds": 0.1}])
def test_bad_options_are_refused(options) -> None:
    with pytest.raises(InvalidValueError, match="outside"):
        run(**options)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may make namespaces")
def test_the_bench_needs_root() -> None:
    with pytest.raises(PermissionError, match="root"):
        run()
