"""Ceilings, weights and flood limits in the configuration: what fits is read, and all else is refused."""

import pytest
from support.configs import refused

from controller.config.loader import parse_config
from controller.config.yaml_document import ConfigError
from controller.fabric.vn_table import VnTable
from controller.limits.flood_limits import flood_limits

CEILINGS = """\
vlans:
  10: {algorithm: max-min, send_limit: 40M, receive_limit: 40M, receive_ceiling: 80M}
switches:
  s1: {dpid: 1, ports: {1: {capacity: 100M, access: 10}, 2: {capacity: 100M, access: 10, vns: {10: {OWN}}}}}
"""


def test_ceilings_are_the_vlans_or_the_vns_own() -> None:
    config = parse_config(CEILINGS.replace("OWN", "send_ceiling: 50M, receive_ceiling: 40M"))
    ceilings = [(vn.send_ceiling_bps, vn.receive_ceiling_bps) for vn in config.vns()]
    assert ceilings == [(None, 80_000_000), (50_000_000, 40_000_000)]
    # What only the shadow uses is accepted.
    parse_config(CEILINGS.replace("max-min", "fp, shadow: max-min").replace("OWN", "send_ceiling: 50M"))


@pytest.mark.parametrize("algorithm", ["fp", "fp, shadow: sp"])
def test_a_ceiling_that_nothing_uses_is_refused(algorithm: str) -> None:
    """Where it stands: at the VLAN, and at the VN that has its own."""
    with pytest.raises(ConfigError) as caught:
        parse_config(CEILINGS.replace("max-min", algorithm).replace("OWN", "send_ceiling: 50M"))
    assert [(problem.path, problem.line) for problem in caught.value.problems] == [
        ("vlans.10.receive_ceiling", 2),
        ("switches.s1.ports.2.vns.10.send_ceiling", 4),
    ]
    for problem in caught.value.problems:
        assert "has no effect: the VLAN's algorithm is fp, and only max-min" in problem.message


@pytest.mark.parametrize(
    ("own", "path"),
    [
        ("receive_ceiling: 39M", "switches.s1.ports.2.vns.10.receive_ceiling"),
        ("receive_ceiling: 101M", "switches.s1.ports.2.vns.10.receive_ceiling"),
        ("receive_limit: 90M", "switches.s1.ports.2"),  # above the VLAN's ceiling
    ],
)
def test_a_ceiling_is_between_the_limit_and_the_capacity(own: str, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(CEILINGS.replace("OWN", own))
    (problem,) = caught.value.problems
    assert problem.path == path
    assert "to the port's capacity of 100M" in problem.message


WEIGHTS = """\
vlans:
  10: {algorithm: fs, send_limit: 40M, receive_limit: 40M, weight: 2}
switches:
  s1: {dpid: 1, ports: {1: {capacity: 100M, access: 10}, 2: {capacity: 100M, access: 10, vns: {10: {OWN}}}}}
"""


def test_weights_are_the_vlans_or_the_vns_own() -> None:
    config = parse_config(WEIGHTS.replace("OWN", "weight: 0.5"))
    assert [vn.weight for vn in config.vns()] == [None, 0.5]
    assert VnTable.from_config(config).weight.tolist() == [2.0, 0.5]


@pytest.mark.parametrize("weight", ["0", "1e-7", "1000001", ".nan", ".inf"])
def test_a_bad_weight_of_a_vn_is_refused_at_its_place(weight: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(WEIGHTS.replace("OWN", f"weight: {weight}"))
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == ("switches.s1.ports.2.vns.10.weight", 4)


def test_a_weight_that_nothing_uses_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(WEIGHTS.replace("fs", "fe").replace("OWN", "weight: 3"))
    found = caught.value.problems
    assert [one.path for one in found] == ["vlans.10.weight", "switches.s1.ports.2.vns.10.weight"]
    for problem in found:
        assert "has no effect: the VLAN's algorithm is fe, and only fs, sp" in problem.message
    parse_config(WEIGHTS.replace("fs", "fe, shadow: fs").replace("OWN", "weight: 3"))


@pytest.mark.parametrize("where", ["algorithm: best", "algorithm: fe, shadow: best"])
def test_an_unknown_algorithm_is_refused_with_ceilings_and_weights_too(where: str) -> None:
    text = WEIGHTS.replace("algorithm: fs", f"{where}, send_ceiling: 50M").replace(
        "OWN", "weight: 3, send_ceiling: 60M"
    )
    with pytest.raises(ConfigError, match="'best' is not an allocation algorithm: write one of"):
        parse_config(text)
    with pytest.raises(ConfigError, match=r"'maxmin' is not an allocation algorithm \(did you mean max-min\?\): write"):
        parse_config(text.replace("best", "maxmin"))


FLOODING = """\
vlans:
  10:
    send_limit: 40M
    receive_limit: 40M
    flood_limit: {flood_limit}
switches:
  s1:
    dpid: 1
    ports:
      1: {capacity: 100M, access: 10}
      2: {capacity: 100M, access: 10}
      3: {capacity: 100M, access: 10, vns: {10: {receive_limit: 30M}}}
"""


@pytest.mark.parametrize(
    ("flood_limit", "reason"),
    [
        ("15001k", "15M does not fit: 2 VNs may flood to one whose receive limit is 30M; at most 15000000 (15M) fits"),
        ("1999", "1.999k is below 2k, what two meters can carry; at most 15000000 (15M) fits"),
    ],
)
def test_a_flood_limit_that_does_not_fit_the_receive_limits_is_refused(flood_limit: str, reason: str) -> None:
    (line,) = refused(FLOODING.replace("{flood_limit}", flood_limit))
    assert line == f"f:5:18: vlans.10.flood_limit: {reason}"


def test_a_flood_limit_that_fits_is_taken_and_where_none_fits_that_is_said() -> None:
    for flood_limit in ("15M", "2k"):
        parse_config(FLOODING.replace("{flood_limit}", flood_limit))
    (line,) = refused(FLOODING.replace("{flood_limit}", "2k").replace("30M", "3k"))
    assert line.endswith("2k does not fit: 2 VNs may flood to one whose receive limit is 3k; nothing fits")


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ("28M", "28M does not fit: s1:3 would need a receive limit of 31.11M for the floods of others, and has 30M"),
        ("1999", "1.999k is below 2k, what two meters can carry"),
    ],
)
def test_a_vns_own_flood_limit_has_to_fit_the_receive_limits_of_the_others(own: str, reason: str) -> None:
    text = FLOODING.replace("    flood_limit: {flood_limit}\n", "").replace(
        "1: {capacity: 100M, access: 10}", f"1: {{capacity: 100M, access: 10, vns: {{10: {{flood_limit: {own}}}}}}}"
    )
    (line,) = refused(text)
    assert line == f"f:9:63: switches.s1.ports.1.vns.10.flood_limit: {reason}"
    config = parse_config(text.replace(own, "27M"))
    assert flood_limits(VnTable.from_config(config), config.vlans).tolist() == [27e6, 1.5e6, 1.5e6]
