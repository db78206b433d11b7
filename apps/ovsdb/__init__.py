"""The controller's conversation with the databases of switches (OVSDB): their receiving queues.

Start with queue_keeper.py (when queues are seen to), then queue_writer.py (one transaction).
"""
