"""Admission: what is refused, why, and what is offered."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from controller.errors import InvalidValueError
from controller.limits.hose_model import AdmissionError, HoseTopology, VnLimits, admit, overloads

M = 1_000_000


def two_switches(core=100 * M, port=100 * M):
    """Ports a1, a2 at switch a and b1, b2 at switch b; links ab and ba."""
    ports = dict.fromkeys(("a1", "a2", "b1", "b2"), port)
    paths = {(x, y): (x[0] + y[0],) for x in ports for y in ports if x[0] != y[0]}
    return HoseTopology(ports, {"ab": core, "ba": core}, paths)


def limits(send, receive, vlan=10, ports=("a1", "a2", "b1", "b2")):
    return [VnLimits(vlan, port, send, receive) for port in ports]


def test_limits_that_fit():
    assert overloads(two_switches(), limits(50 * M, 50 * M)) == []
    admit(two_switches(), limits(50 * M, 50 * M), VnLimits(10, "a1", 50 * M, 100 * M))


def test_an_access_port_is_refused_with_what_fits():
    vns = limits(60 * M, 60 * M, 10, ("a1", "a2"))
    with pytest.raises(AdmissionError) as caught:
        admit(two_switches(), vns, VnLimits(20, "a1", 41 * M, 40 * M))
    error = caught.value
    assert (error.key, error.largest_bps, error.overload.location) == (
        "vlans.20.a1.send_limit",
        40 * M,
        "port a1 (sending)",
    )
    assert str(error) == (
        "vlans.20.a1.send_limit: 41M does not fit: port a1 (sending) would need to carry 101M of 100M; at most 40M fits"
    )
    admit(two_switches(), vns, VnLimits(20, "a1", 40 * M, 40 * M))


def test_the_limit_that_was_changed_is_spoken_of():
    vns = limits(60 * M, 60 * M, 10, ("a1", "b1"))
    for sending, key in ((True, "send_limit"), (False, "receive_limit")):
        with pytest.raises(AdmissionError) as caught:
            admit(two_switches(50 * M, 100 * M), vns[1:], VnLimits(10, "a1", 60 * M, 60 * M), sending=sending)
        assert caught.value.key == f"vlans.10.a1.{key}"


def test_the_receive_limit_is_blamed_when_only_lowering_it_helps():
    with pytest.raises(AdmissionError) as caught:
        admit(two_switches(), limits(60 * M, 60 * M, 10), VnLimits(20, "a1", 30 * M, 45 * M))
    assert (caught.value.key, caught.value.largest_bps) == ("vlans.20.a1.receive_limit", 40 * M)


def test_what_is_offered_is_the_largest_that_fits_everywhere():
    """The core is what is short: 100 of it, 70 of which a2 may need."""
    vns = limits(70 * M, 70 * M, 10, ("a2", "b1", "b2"))
    with pytest.raises(AdmissionError) as caught:
        admit(two_switches(), vns, VnLimits(10, "a1", 50 * M, 1 * M))
    offered = caught.value.largest_bps
    assert (caught.value.overload.location, offered) == ("link ab", 30 * M)
    admit(two_switches(), vns, VnLimits(10, "a1", offered, 1 * M))
    with pytest.raises(AdmissionError):
        admit(two_switches(), vns, VnLimits(10, "a1", offered + 1000, 1 * M))


def test_nothing_fits():
    """Both limits are too large: with the other as asked for, no send limit helps."""
    with pytest.raises(AdmissionError, match=r"send_limit: 45M does not fit: .*; nothing fits") as caught:
        admit(two_switches(), limits(60 * M, 60 * M, 10), VnLimits(20, "a1", 45 * M, 45 * M))
    assert caught.value.largest_bps == 0


def test_overloads_of_others_are_not_held_against_a_vn():
    vns = limits(80 * M, 80 * M, 10)
    assert [o.location for o in overloads(two_switches(), vns)] == ["link ab", "link ba"]
    admit(two_switches(), vns, VnLimits(20, "a1", 10 * M, 10 * M))
    with pytest.raises(AdmissionError, match=r"port a1 \(sending\)"):
        admit(two_switches(), vns, VnLimits(20, "a1", 21 * M, 10 * M))


@pytest.mark.parametrize("seed", range(30))
def test_the_worst_load_is_the_linear_programs(seed):
    """Paths per pair at random (as hashing over equal paths does), so that not every sender meets every receiver."""
    rng = np.random.default_rng(seed)
    ports = [f"p{i}" for i in range(6)]
    vns = [VnLimits(vlan, port, *map(int, rng.integers(1, 50, 2) * M)) for vlan in (10, 20) for port in ports]
    pairs = [(a, b) for a in ports for b in ports if a != b and rng.random() < rng.choice([0.2, 0.5, 1.0])]
    topology = HoseTopology(dict.fromkeys(ports, 10**12), {"core": 1}, dict.fromkeys(pairs, ("core",)))
    expected = 0.0
    for vlan in (10, 20):
        of = {vn.port: vn for vn in vns if vn.vlan_vid == vlan}
        rows = [[float(a == port) for a, _ in pairs] for port in ports] + [
            [float(b == port) for _, b in pairs] for port in ports
        ]
        bounds = [of[port].send_limit_bps for port in ports] + [of[port].receive_limit_bps for port in ports]
        if pairs:
            expected -= linprog([-1.0] * len(pairs), A_ub=rows, b_ub=bounds).fun
    found = {overload.location: overload.load_bps for overload in overloads(topology, vns)}
    assert found.get("link core", 0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("vn", "message"),
    [
        (VnLimits(10, "z9", M, M), "vlans.10.z9"),
        (VnLimits(10, "a1", 0, M), "vlans.10.a1.send_limit: 0"),
        (VnLimits(10, "a1", M, 10**16), "vlans.10.a1.receive_limit"),
    ],
)
def test_bad_limits_are_named(vn, message):
    with pytest.raises(InvalidValueError, match=message):
        overloads(two_switches(), [vn])
    with pytest.raises(InvalidValueError, match="stands twice"):
        overloads(two_switches(), limits(M, M) + limits(M, M))


def test_bad_topologies_are_named():
    with pytest.raises(InvalidValueError, match=r"link_capacity_bps\.ab: 0"):
        HoseTopology({"a": 1}, {"ab": 0}, {})
    with pytest.raises(InvalidValueError, match="is not a port"):
        HoseTopology({"a": 1}, {"ab": 1}, {("a", "b"): ("ab",)})
    with pytest.raises(InvalidValueError, match="is not a link"):
        HoseTopology({"a": 1, "b": 1}, {}, {("a", "b"): ("ab",)})
