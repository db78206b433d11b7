"""The controller's conversation with the databases of switches (OVSDB): their receiving queues.

Start with queue_reconciler.py (when queues are seen to), then ovsdb_client.py (one transaction).
"""
