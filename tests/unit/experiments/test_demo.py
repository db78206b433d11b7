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
    monkeypatch.setattr(demo.experiment_runner, "run", lambda _name, options: asked.append(options) or {})
    demo.run()
    assert [options.checked().fabric for options in asked] == [fabric]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(why)


@pytest.mark.parametrize(("uid", "fabric"), [(0, "ovs"), (1000, "wire")])
def test_with_a_cluster_the_receivers_controller_is_killed_in_the_middle_of_the_blast(monkeypatch, capsys, uid, fabric):
    asked = []

    def run(_name, options, kill_at_s):
        asked.append((options.checked(), kill_at_s))
        figures = {
            f"{name}_goodput_bps_{when}_kill": 19e6 for name in ("least", "most") for when in ("before", "after")
        }
        below = {"intervals_below_before_kill": 1, "intervals_below_after_kill": 2}
        figures |= {"killed": "n2", "new_owners": ["s4 by n1"], "out_of_control_s": 0.5, **below}
        return {"level": {"figures": figures}}

    monkeypatch.setattr(demo.os, "geteuid", lambda: uid)
    monkeypatch.setattr(demo.shutil, "which", lambda _name: "/usr/bin/ovs-vsctl")
    monkeypatch.setattr(demo.experiment_runner, "run", run)
    demo.run_cluster()
    ((options, kill_at_s),) = asked
    assert (options.fabric, options.topology, options.algorithm) == (fabric, "dets-fig7", "level")
    assert options.warmup_s < kill_at_s < options.warmup_s + options.blast_s
    out = capsys.readouterr().out
    assert "n2 was killed. Its switches were under control again after 0.50 s: s4 by n1." in out
    assert "  after: 19.0 to 19.0 Mb/s, below in 2" in out
