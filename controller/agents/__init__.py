"""The controller's view of the agents on hosts: which edge port has which, what they report, what they are told.

It is pure: frames go in and out as bytes (``control_frames``), time is an argument. Start at ``agent_manager``, then
``agent_port``, ``agent_counters``, ``addressable_pairs`` (which pairs they are told of) and ``agent_outbox``.
"""
