"""Configurations for tests, written as an operator would write them."""

from __future__ import annotations

import pytest
import yaml

from controller.config.loader import parse_config
from controller.config.yaml_document import ConfigError
from controller.fabric.config_model import Config


def star(
    ports: int = 5,
    *,
    capacity: str = "1G",
    limits: dict[int, str] | None = None,
    algorithm: str = "fs",
    vlans: dict[int, dict[str, object]] | None = None,
    **sections: dict[str, object],
) -> Config:
    """One switch of dpid 1 with trunk ports 1 to ``ports``; ``limits`` gives each VLAN's send and receive limit."""
    limits = limits or {10: "400M", 20: "500M"}
    return fabric(
        {1: {port: list(limits) for port in range(1, ports + 1)}}, capacity, limits, algorithm, vlans, **sections
    )


def fabric(
    switches: dict[int, dict[int, list[int] | int]],
    capacity: str = "1G",
    limits: dict[int, str] | None = None,
    algorithm: str = "fs",
    vlans: dict[int, dict[str, object]] | None = None,
    native: dict[tuple[int, int], int] | None = None,
    **sections: dict[str, object],
) -> Config:
    """Switches by dpid, with edge ports by number: a list of VLANs makes a trunk, one VLAN an access port.

    ``native`` gives the VLANs that go without a tag at trunks, by dpid and number.

    Their queues are set over OVSDB, so that senders' meters have nothing to hold but their grants.
    """
    limits, native = limits or {10: "400M", 20: "500M"}, native or {}
    document = {
        "vlans": {
            vid: {"send_limit": limit, "receive_limit": limit, "algorithm": algorithm, **(vlans or {}).get(vid, {})}
            for vid, limit in limits.items()
        },
        "switches": {
            f"s{dpid}": {
                "dpid": dpid,
                "ovsdb": "unix:/run/openvswitch/db.sock",
                "ports": {
                    port_no: {
                        "capacity": capacity,
                        "access" if isinstance(vids, int) else "trunk": vids,
                        **({"native": native[dpid, port_no]} if (dpid, port_no) in native else {}),
                    }
                    for port_no, vids in ports.items()
                },
            }
            for dpid, ports in switches.items()
        },
        **sections,
    }
    return parse_config(yaml.safe_dump(document), "test.yaml")


def refused(text: str) -> list[str]:
    """Return the lines that a configuration, of a file called f, is refused with."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "f")
    return str(caught.value).splitlines()
