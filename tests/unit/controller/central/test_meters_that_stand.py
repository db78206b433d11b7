"""What a controller finds on switches when it takes them over goes on standing, meters of new pairs among it."""

from __future__ import annotations

from dataclasses import replace

from support.configs import fabric
from support.fabrics import Fabric
from support.host_traffic import EDGES, contents, restarted, talk

from controller.forwarding.pipeline import Table


def without_queues():
    config = fabric(EDGES)
    return replace(config, switches={name: replace(one, ovsdb=None) for name, one in config.switches.items()})


def test_meters_of_new_pairs_are_adopted() -> None:
    net = Fabric(without_queues())
    net.start()
    talk(net, (1, 1), (2, 1), 10)
    before = contents(net)
    newcomers = [flow for flow in net.switches[1].flows.values() if flow.table_id == Table.COUNT and flow.meter_id]
    assert newcomers
    again = restarted(net)
    again.start()
    talk(again, (1, 1), (2, 1), 10)
    assert contents(again) == before
