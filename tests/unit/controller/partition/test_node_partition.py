"""What a node queues for its peers at the end of an interval."""

from __future__ import annotations

from support.configs import fabric
from support.sharded_fabric import ShardedFabric

from controller.fabric.topology import PortId
from controller.node_protocol.bundle import unbundle
from controller.node_protocol.switch_snapshot import KIND as SNAPSHOT
from controller.node_protocol.table_codec import message_kind
from controller.partition.node_partition import MIN_S, RETRANSMIT_S

CLUSTER = {"node": "a", "etcd": ["http://127.0.0.1:1"], "mode": "sharded", "peer_listen": "127.0.0.1:6654"}


def test_a_snapshot_is_queued_for_each_peer_after_a_change_and_periodically() -> None:
    config = fabric({1: {1: [10]}, 2: {2: [10]}}, limits={10: "400M"}, cluster=CLUSTER)
    net = ShardedFabric(config, [(PortId(1, 9), PortId(2, 9))], {1: "a", 2: "b"})
    net.start()
    partition, start_s = net.nodes.sharing["a"], net.now_s + RETRANSMIT_S

    def has_snapshot(after_s: float, ready: tuple[int, ...] = (1,)) -> bool:
        partition.end_interval(ready, start_s + after_s)
        bundles = partition.drain_messages()
        assert bundles.keys() <= {"b"}
        return SNAPSHOT in [message_kind(data) for bundle in bundles.values() for data in unbundle(bundle)]

    assert has_snapshot(0.0)
    assert partition.drain_messages() == {}
    assert not has_snapshot(RETRANSMIT_S - 0.01)
    assert has_snapshot(RETRANSMIT_S)
    assert not has_snapshot(RETRANSMIT_S + MIN_S - 0.01, ready=())
    assert has_snapshot(RETRANSMIT_S + MIN_S, ready=())
