"""Keys and entries that stand for several: ``ports: {1-24: ...}``, ``vlans: {10-20: ...}``, ``trunk: [10-200]``."""

from __future__ import annotations

import dataclasses
import io

import pytest
from support import configs

from apps import cli
from controller.config.loader import parse_config

VLANS = "vlans: {10-12: {send_limit: 10M, receive_limit: 10M}, 300: {send_limit: 1M, receive_limit: 1M}}\n"


def refused(ports: str, vlans: str = VLANS) -> list[str]:
    return configs.refused(f"{vlans}switches: {{s1: {{dpid: 1, ports: {{{ports}}}}}}}\n")


GOOD = "{capacity: 100M, access: 10}"


@pytest.mark.parametrize(
    ("ports", "problem"),
    [
        (f"1-3: {GOOD}, 2-4: {GOOD}", "f:2:69: switches.s1.ports.2-4: 2 is in 1-3 already (line 2)"),
        (
            "1-3: {name: a, capacity: 100M, access: 10}",
            "f:2:40: switches.s1.ports.1-3.name: cannot apply to all of 1-3",
        ),
        ("1-3: {expect: a, capacity: 100M, access: 10}", "f:2:40: switches.s1.ports.1-3.expect: cannot apply to all"),
        (
            f"3-1: {GOOD}",
            "f:2:34: switches.s1.ports.3-1: is no range: write FIRST-LAST within 1 to 4294967040, of 4096",
        ),
        (f"0-2: {GOOD}", "f:2:34: switches.s1.ports.0-2: is no range"),
        (f"1-4097: {GOOD}", "f:2:34: switches.s1.ports.1-4097: is no range"),
        (f"4294967040-4294967041: {GOOD}", "f:2:34: switches.s1.ports.4294967040-4294967041: is no range"),
        ("1: {capacity: 1G, trunk: [10-12, 11]}", "f:2:67: switches.s1.ports.1.trunk[1]: 11 is on this port already"),
        ("1: {capacity: 1G, trunk: [20-30]}", "switches.s1.ports.1.trunk[0]: 20-30 holds no VLAN of this file"),
        ("1: {capacity: 1G, trunk: [0-30]}", "switches.s1.ports.1.trunk[0]: '0-30' is not FIRST-LAST within 1 to 4094"),
        ("1: {capacity: 1G, trunk: [10-11], native: 12}", "switches.s1.ports.1.native: 12 is not on this port's trunk"),
        ("1: {capacity: 1G, trunk: [10-11], vns: {12: {}}}", "VLAN 12 is not on this port; its VLANs are 10, 11"),
        # an entry of its own and the range around it: each is told where it is written
        (f"1-3: {GOOD}, 2: {{capacity: 1Q}}", "f:2:83: switches.s1.ports.2.capacity: "),
        ("1-3: {capacity: 1Q, access: 10}, 2: {}", "f:2:50: switches.s1.ports.1-3.capacity: "),
        (f"1-3: {GOOD}, 2: {{acess: 10}}", "f:2:73: switches.s1.ports.2.acess: is not a known key (did you mean"),
        (f"1-3: {GOOD}, 2: 7", "f:2:72: switches.s1.ports.2: 7 is not a section"),
    ],
)
def test_a_bad_range_is_one_problem(ports: str, problem: str) -> None:
    (line,) = refused(ports)
    assert problem in line


def test_what_is_wrong_with_many_is_told_once_where_it_is_written() -> None:
    vlans = "vlans:\n  10-12:\n    send_limit: 10M\n    receive_limit: 200M\n"
    lines = refused(f"1-24: {GOOD}", vlans)
    assert lines == [
        "f:5:51: switches.s1.ports.1-24.capacity: the receive_limit of VLAN 10 here is vlans.10.receive_limit (line 4)"
        ", 200M, above the port's capacity, 100M"
    ]
    (line,) = refused(
        f"1: {GOOD}",
        "vlans: {10-12: {send_limit: 1M, receive_limit: 1M}, 11-13: {send_limit: 1M, receive_limit: 1M}}\n",
    )
    assert "f:1:53: vlans.11-13: 11 is in 10-12 already (line 1)" in line


OWN = """\
vlans:
  10-13: {send_limit: 10M, receive_limit: 10M, algorithm: fp, parameters: {d: 3}}
  11: {name: gold, send_limit: 20M}
  12: {algorithm: fs}
  300: {send_limit: 1M, receive_limit: 1M}
switches:
  s1:
    dpid: 1
    ports:
      7: {capacity: 1G, vns: {13: {send_limit: 1M}}}
      1-8: {capacity: 100M, trunk: [10-13], native: 10, vns: {10: {send_limit: 2M}}}
      3: {access: 11}
      5: {agent: trust}
      6: {name: desk}
      9-9: {capacity: 1G, trunk: [11-299], vns: {12: {send_limit: 2M}}}
      10: {capacity: 1G, trunk: [300, 1-11], native: 11}
"""
ALIKE = "capacity: 100M, trunk: [10-13], native: 10, vns: {10: {send_limit: 2M}}"
WRITTEN_OUT = f"""\
vlans:
  10: {{send_limit: 10M, receive_limit: 10M, algorithm: fp, parameters: {{d: 3}}}}
  11: {{name: gold, send_limit: 20M, receive_limit: 10M, algorithm: fp, parameters: {{d: 3}}}}
  12: {{send_limit: 10M, receive_limit: 10M, algorithm: fs}}
  13: {{send_limit: 10M, receive_limit: 10M, algorithm: fp, parameters: {{d: 3}}}}
  300: {{send_limit: 1M, receive_limit: 1M}}
switches:
  s1:
    dpid: 1
    ports:
      1: {{{ALIKE}}}
      2: {{{ALIKE}}}
      3: {{capacity: 100M, access: 11}}
      4: {{{ALIKE}}}
      5: {{{ALIKE}, agent: trust}}
      6: {{{ALIKE}, name: desk}}
      7: {{capacity: 1G, trunk: [10-13], native: 10, vns: {{13: {{send_limit: 1M}}}}}}
      8: {{{ALIKE}}}
      9: {{capacity: 1G, trunk: [11, 12, 13], vns: {{12: {{send_limit: 2M}}}}}}
      10: {{capacity: 1G, trunk: [300, 10, 11], native: 11}}
"""


def test_a_range_is_what_it_stands_for_and_an_entry_of_its_own_wins_key_by_key() -> None:
    assert dataclasses.asdict(parse_config(OWN)) == dataclasses.asdict(parse_config(WRITTEN_OUT))


def test_ranges_of_more_than_there_can_be_are_refused_at_once() -> None:
    ranges = ", ".join(f"{4096 * n + 1}-{4096 * (n + 1)}: {GOOD}" for n in range(17))
    (line,) = refused(ranges)
    assert line.startswith("f:2:33: switches.s1.ports: has ranges of 69632 numbers in all, 65536 at most")
    vlans = "vlans: {1-4094: {send_limit: 1k, receive_limit: 1k}}\n"
    (line,) = refused("1-4096: {capacity: 1G, trunk: [1-4094]}", vlans)
    assert line == (
        "f:2:34: switches.s1.ports.1-4096: brings the VNs, one for each VLAN of each port, to 266110; "
        "there can be 262144 at most"
    )
    vlans = "vlans: {" + ", ".join(f"1-{number}: {{}}" for number in range(4000, 4017)) + "}\n"
    assert refused("1: {capacity: 1G, access: 10}", vlans)[0].startswith("f:1:8: vlans: has ranges of ")


def test_a_configuration_comes_from_standard_input_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(text: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return cli.main(["check", "-"]), *capsys.readouterr()

    assert check(OWN)[:2] == (0, "ok: 1 switch, 10 edge ports, 5 VLANs, 35 VNs; control every 55 ms\n")
    code, _, told = check(OWN.replace("10M", "10Mib/s", 1))
    assert code == 2
    assert told.startswith("<stdin>:2:23: vlans.10-13.send_limit: '10Mib/s' is not a rate")
    assert "'Mib/s' is no unit: there are k, M, G and T" in told
    assert "here kbps is kilobits, in tc it is kilobytes" in told
