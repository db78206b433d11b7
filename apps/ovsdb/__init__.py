"""The controller's connections to the databases of switches (OVSDB), for their receiving queues.

Start with queue_reconciler.py (when queues are reconciled), then ovsdb_client.py (one transaction).
"""
