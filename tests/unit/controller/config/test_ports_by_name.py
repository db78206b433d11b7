"""Edge ports that the configuration calls by their interfaces' names, and what is expected of those with a number."""

from __future__ import annotations

import zlib
from hashlib import sha256

import pytest
import yaml

from controller.config.loader import parse_config
from controller.config.yaml_document import ConfigError
from controller.fabric.config_model import FIRST_NAMED, LAST_NAMED, EdgePort


def of_keys(keys: dict[object, object]) -> dict[str, EdgePort]:
    """Return the ports of a switch by what the file calls them."""
    edges = {key: {"capacity": "1G", "access": 10, **(rest or {})} for key, rest in keys.items()}  # type: ignore[dict-item]
    text = yaml.dump(
        {
            "vlans": {10: {"send_limit": "1M", "receive_limit": "1M", "algorithm": "fs"}},
            "switches": {"s1": {"dpid": 1, "ports": edges}},
        }
    )
    found = parse_config(text).switches["s1"].ports
    return {port.label: port for port in found.values()}


def test_a_ports_number_follows_from_its_name_and_from_nothing_else() -> None:
    found, alone = of_keys({"eth1": None, "dets-patch-to-br9-aa": None, 7: None}), of_keys({"eth1": None})
    assert found["eth1"].port_no == alone["eth1"].port_no
    assert all(FIRST_NAMED <= found[name].port_no <= LAST_NAMED for name in ("eth1", "dets-patch-to-br9-aa"))
    assert (found["eth1"].name, found["eth1"].interface, found["7"].interface) == ("eth1", "eth1", None)
    assert found["eth1"].vns[0].port_no == found["eth1"].port_no


def test_what_is_expected_of_a_number() -> None:
    found = of_keys({1: {"expect": "GigabitEthernet1/0/1"}, 2: {"expect": "any"}, 3: None})
    assert [port.expect for port in found.values()] == ["GigabitEthernet1/0/1", "any", None]


@pytest.mark.parametrize(
    ("key", "rest", "words"),
    [
        ("007", None, "'007' is not a port number or an interface's name"),
        ("eth/1", None, "'eth/1' is not a port number or an interface's name"),
        (FIRST_NAMED, None, "are kept for ports by name"),
        ("eth1", {"expect": "eth1"}, "has no effect here"),
        (1, {"expect": ""}, "is empty"),
        (1, {"expect": "e" * 256}, "is longer than 255 characters"),
        (1, {"expect": "eth1\n"}, "cannot be printed"),
        (1, {"expect": 1}, "is not text"),
    ],
)
def test_bad_names(key: object, rest: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        of_keys({key: rest})


def test_names_of_one_check_sum_are_refused() -> None:
    by_number: dict[int, str] = {}
    for count in range(200_000):
        name = f"e{sha256(str(count).encode()).hexdigest()[:12]}"
        number = zlib.crc32(name.encode()) % (LAST_NAMED - FIRST_NAMED + 1)
        if number in by_number:
            with pytest.raises(ConfigError, match="has the same check sum as"):
                of_keys({by_number[number]: None, name: None})
            return
        by_number[number] = name
    pytest.fail("no two names have the same check sum")
