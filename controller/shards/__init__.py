"""Sharded mode: each node owns some switches, and the nodes exchange DETS's messages.

Start at shard.py (an interval in three phases); peer.py has a shard's view of another one, outbox.py its messages to
peers. ``controller.node_protocol`` has the messages as bytes.
"""
