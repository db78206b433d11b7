"""Whether an edge port is the one that is meant."""

from __future__ import annotations

import pytest

from controller.fabric.config_model import EdgePort, Switch
from controller.openflow import constants as ofp
from controller.openflow.multipart import PortDesc
from controller.switch.port_states import ABSENT, cut_name, port_states


def switch(**expected: str | None) -> Switch:
    """A switch of ports 1, 2, ...: what is expected of each."""
    ports = {
        number: EdgePort(number, f"s1-{number}", 10**9, None, (), expect=name)
        for number, name in enumerate(expected.values(), 1)
    }
    return Switch("s1", 1, None, ports)


def there(*names: str, state: int = 0) -> dict[int, PortDesc]:
    return {number: PortDesc(number, name, number, 0, state, 0, 0) for number, name in enumerate(names, 1)}


def fenced(described: Switch, ports: dict[int, PortDesc], known: dict[int, str] | None = None) -> list[int]:
    return [port_no for port_no, state in port_states(described, ports, known or {}).items() if state.fence]


@pytest.mark.parametrize(
    ("expect", "known", "name", "open_"),
    [
        (None, None, "eth1", True),  # the first time
        (None, "eth1", "eth1", True),
        (None, "eth1", "eth2", False),
        (None, "eth1", "", False),
        ("eth1", None, "eth1", True),
        ("eth1", None, "eth2", False),
        ("eth2", "eth1", "eth2", True),  # the operator's word counts
        ("eth2", "eth1", "eth1", False),
        ("any", "eth1", "eth2", True),
        ("dets-patch-to-br9-aa", None, "dets-patch-to-b", True),  # as OpenFlow cuts it
        ("dets-patch-to-br9-aa", None, "dets-patch-to-br9-aa", False),
    ],
)
def test_a_port_of_another_name_is_fenced(expect: str | None, known: str | None, name: str, open_: bool) -> None:
    found = fenced(switch(one=expect), there(name), {} if known is None else {1: known})
    assert (found == []) == open_


def test_a_fence_names_the_setting_that_ends_it() -> None:
    state = port_states(switch(one=None), there("tap7"), {1: "eth1"})[1]
    assert state.fence == "it is 'tap7' where 'eth1' is expected; expect: 'tap7' lets it pass"
    assert not port_states(switch(one="tap7"), there("tap7"), {1: "eth1"})[1].fence


def test_names_that_were_cut_to_the_same_are_nobodys() -> None:
    ports = there("dets-patch-to-b", "dets-patch-to-b", "dets-patch-to-c", "eth4", "eth4")
    described = switch(one=None, two="any", three=None, four=None)
    assert fenced(described, ports) == [1]
    assert fenced(described, {no: ports[no] for no in (1, 3, 4)}) == [2]


def test_a_name_that_two_ports_have_finds_neither() -> None:
    ports = {
        number: EdgePort(number, name, 10**9, None, (), interface=name) for number, name in ((101, "a"), (102, "b"))
    }
    states = port_states(Switch("s1", 1, None, ports), there("a", "b", "a"), {})
    assert [(one.number, bool(one.fence)) for one in states.values()] == [(None, True), (2, False)]


def test_names_of_several_bytes_are_cut_within_15() -> None:
    assert cut_name("é" * 10).encode().startswith("é".encode() * 7)
    ports = there("é" * 7 + "\\xc3")
    assert fenced(switch(one="é" * 10), ports) == []


def test_states() -> None:
    states = port_states(switch(one=None, two=None), there("eth1", state=ofp.PORT_STATE_LINK_DOWN), {})
    assert [(one.state, one.fence) for one in states.values()] == [("down", ""), ("absent", ABSENT)]
