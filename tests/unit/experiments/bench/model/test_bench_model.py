"""``dets bench model``: figures of two experiments, one of them packet by packet, and what it refuses."""

import pytest

from controller.errors import InvalidValueError
from experiments.bench.model.bench import EXPERIMENTS, run
from experiments.scenarios import scenarios


def test_each_experiment_has_its_cost_next_to_that_of_the_baseline():
    packets = "hygenicc-packets-2-udp static"
    result = run([packets, "seawall-fig7 seawall"], "seawall-fig9-alone none", 1.0)
    baseline, by_packets, seawall = result["figures"].values()
    assert list(result["figures"]) == ["seawall-fig9-alone none", packets, "seawall-fig7 seawall"]
    assert baseline["of_baseline"] == 1.0
    assert by_packets["of_baseline"] == pytest.approx(by_packets["cpu_s_per_s"] / baseline["cpu_s_per_s"])
    assert "controller_cpu_s_per_s" not in by_packets
    assert 0.0 < seawall["controller_cpu_s_per_s"] < seawall["cpu_s_per_s"]
    assert len(result["targets"]) == 3


def test_an_unknown_experiment_is_refused_by_name():
    with pytest.raises(InvalidValueError, match="'nothing' is not one of"):
        run(["nothing fp"], seconds=1.0)


def test_the_default_experiments_and_their_controls_are_known():
    known = scenarios()
    for name in EXPERIMENTS:
        experiment, _, control = name.partition(" ")
        assert control in (*known[experiment].controls, *known[experiment].paper_controls), name
