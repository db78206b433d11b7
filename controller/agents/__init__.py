"""The controller's side of the agents on hosts: which port has an agent, what it reports, which frames it gets.

The package is pure: frames go in and out as bytes (``control_frames``), time is an argument. Start at
``agent_manager``, then ``agent_port``, ``agent_counters``, ``addressable_pairs`` (the pairs that frames can name) and
``agent_outbox``.
"""
