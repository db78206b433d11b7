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


@pytest.mark.parametrize(("uid", "fabric"), [(0, "ovs"), (1000, "wire")])
def test_with_a_cluster_the_active_controller_is_killed_in_the_middle_of_the_blast(monkeypatch, capsys, uid, fabric):
    asked = []

    def run(_name, options, kill_at_s):
        asked.append((options.checked(), kill_at_s))
        return {"out_of_control_s": 0.5, "intervals_below_before_kill": 1, "intervals_below_after_kill": 2}

    monkeypatch.setattr(demo.os, "geteuid", lambda: uid)
    monkeypatch.setattr(demo.shutil, "which", lambda _name: "/usr/bin/ovs-vsctl")
    monkeypatch.setattr(demo.single, "run", run)
    demo.run_cluster()
    ((options, kill_at_s),) = asked
    assert options.fabric == fabric
    assert options.warmup_s < kill_at_s < options.warmup_s + options.blast_s
    assert "Nobody decided for 0.50 s" in capsys.readouterr().out
