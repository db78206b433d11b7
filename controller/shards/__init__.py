"""One fabric, many controllers: each is the owner of some switches, and they tell each other DETS's messages.

Start at shard.py (an interval in three phases); peer.py is what a shard knows of another one,
outbox.py what it says. What crosses is in ``controller.node_protocol``.
"""
