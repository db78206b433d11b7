"""One switch as the controller knows it: its flow entries, meters and queues, desired and installed.

Start with record.py; its meters are in ``meters``.
"""
