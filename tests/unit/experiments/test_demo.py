"""Where the demonstration runs, and that it says so."""

from __future__ import annotations

import pytest

from experiments import demo


@pytest.mark.parametrize(
    ("uid", "ovs_vsctl", "fabric", "why"),
    [
        (0, "/usr/bin/ovs-vsctl", "ovs", "On Open vSwitch, in real time: root"),
        (0, None, "model", "On the model fabric, in virtual time: Open vSwitch is not installed"),
        (1000, "/usr/bin/ovs-vsctl", "model", "On the model fabric, in virtual time: not root"),
    ],
)
def test_it_runs_where_it_can_and_says_why(monkeypatch, capsys, uid, ovs_vsctl, fabric, why):
    asked = []
    monkeypatch.setattr(demo.os, "geteuid", lambda: uid)
    monkeypatch.setattr(demo.shutil, "which", lambda _name: ovs_vsctl)
    monkeypatch.setattr(demo.single, "run", lambda _name, options: asked.append(options) or {})
    demo.run()
    demo.run(quiet=True)
    assert [(options.checked().fabric, options.quiet) for options in asked] == [(fabric, False), (fabric, True)]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(why)
