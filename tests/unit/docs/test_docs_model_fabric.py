"""The example of the model fabric in docs/experiments.md runs."""

from __future__ import annotations

import re

from support.paths import ROOT

PAGE = ROOT / "docs" / "experiments.md"


def test_the_example_runs_and_tcp_keeps_its_limit(capsys):
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (example,) = [one for one in examples if "ModelFabric(" in one]
    exec(compile(example, str(PAGE), "exec"), {})
    packets, octets = map(int, re.findall(r"\d+", capsys.readouterr().out))
    assert octets == 1518 * packets
    assert 0.9 * 400e6 < octets * 8 / 10 <= 400e6
